from __future__ import annotations

import asyncio

from ottla.controller.commands import (
    AlterPartitions,
    FenceBroker,
    PartitionChange,
    UnfenceBroker,
)
from ottla.controller.image import ALL_BROKERS, FEATURE_LEVEL, TopicInfo
from ottla.controller.port import ConfigChange, NewPartitions, NewTopic
from ottla.controller.state import PARTITIONS_AT_ONCE_MAX
from ottla.node.clock import Clock
from ottla.node.lifeline import Lifeline
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.node.cluster_stage import OTHER, US, Stage, code_of, run, stage
from tests.unit.node.doors import BEAT_MS, Controllers, follower, registration, until


def test_names_come_before_options_and_options_before_placement() -> None:
    async def story(one: Stage) -> None:
        await one.create("a")
        before = dict(one.controllers.image.topics)
        bad = {"x": "bad"}
        wanted = [
            NewTopic("a", configs=bad),
            NewTopic("no/name", configs=bad),
            NewTopic("b", replication_factor=9, configs=bad),
            NewTopic("b", replication_factor=9),
        ]
        codes = [
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ]
        for validate_only in (True, False):
            made = await one.broker.create_topics(wanted, validate_only=validate_only)
            assert [code_of(answer) for answer in made] == codes
        assert one.controllers.image.topics == before

    run(story)


def test_validating_proposes_nothing_and_sees_what_the_wishes_before_would_have_made() -> None:
    async def story(one: Stage) -> None:
        await one.create("a")
        version = one.controllers.image.version
        twice = [NewTopic("b", 2), NewTopic("b")]
        made = await one.broker.create_topics(twice, validate_only=True)
        assert isinstance(made[0], TopicInfo)
        assert len(made[0].partitions) == 2
        assert code_of(made[1]) is ErrorCode.TOPIC_ALREADY_EXISTS
        more = [NewPartitions("a", 4), NewPartitions("a", 2), NewPartitions("zz", 2)]
        grown = await one.broker.create_partitions(more, validate_only=True)
        assert [code_of(answer) for answer in grown] == [
            None,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        changes = [ConfigChange("topic", "a", {"x": "1"}), ConfigChange("topic", "a", {"x": "bad"})]
        changed = await one.broker.change_configs(changes, validate_only=True)
        assert [code_of(answer) for answer in changed] == [None, ErrorCode.INVALID_CONFIG]
        assert await one.broker.set_feature_level(FEATURE_LEVEL, validate_only=True) is None
        assert one.controllers.image.version == version

    run(story)


def test_one_request_makes_a_limited_number_of_partitions() -> None:
    async def story(one: Stage) -> None:
        await one.create("a")
        count = PARTITIONS_AT_ONCE_MAX // 2 + 1
        made = await one.broker.create_topics(
            [NewTopic("b", count), NewTopic("c", count)], validate_only=False
        )
        assert [code_of(answer) for answer in made] == [ErrorCode.POLICY_VIOLATION] * 2
        more = [NewPartitions("a", 2 * count)]
        grown = await one.broker.create_partitions(more, validate_only=False)
        assert [code_of(answer) for answer in grown] == [ErrorCode.POLICY_VIOLATION]

    run(story)


def test_topics_grow_change_and_go() -> None:
    async def story(one: Stage) -> None:
        await one.create("a", "b")
        more = [NewPartitions("a", 5)]
        assert await one.broker.create_partitions(more, validate_only=False) == [None]
        assert len(one.broker.image.topics["a"].partitions) == 5
        changes = [
            ConfigChange("topic", "a", {"x": "1"}),
            ConfigChange("broker", ALL_BROKERS, {"y": "2"}),
            ConfigChange("topic", "a", {"x": "bad"}),
            ConfigChange("topic", "zz", {"x": "1"}),
        ]
        changed = await one.broker.change_configs(changes, validate_only=False)
        assert [code_of(answer) for answer in changed] == [
            None,
            None,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert one.broker.image.topics["a"].configs == {"x": "1"}
        assert one.broker.image.broker_configs == {ALL_BROKERS: {"y": "2"}}
        deleted = await one.broker.delete_topics(["b", "zz"])
        assert [code_of(answer) for answer in deleted] == [
            None,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert set(one.broker.image.topics) == {"a"}

    run(story)


def test_what_another_node_was_told_a_moment_ago_is_seen_here_before_it_is_looked_up() -> None:
    async def story() -> None:
        async with stage(brokers=2) as one:
            other = follower(one.controllers, node_id=9, first_id=5000)
            line = Lifeline(
                registration=registration(9),
                doors=one.controllers.doors,
                clock=Clock(),
                session_ms=lambda: 5_000,
                heartbeat_ms=lambda: BEAT_MS,
                follower=other,
            )
            await line.start()
            await line.register()
            await one.create("a")
            one.hold_back(one.controllers.image.version)
            # The other hears of it when it commits, whoever holds its metadata back.
            creating = asyncio.create_task(
                other.create_topics([NewTopic("b")], validate_only=False)
            )
            await until(lambda: "b" in one.controllers.image.topics)
            deleting = asyncio.create_task(one.broker.delete_topics(["b"]))
            await asyncio.sleep(0.02)
            assert not deleting.done()
            one.hold_back(None)
            assert await deleting == [None]
            await creating
            await line.stop()

    asyncio.run(story())


def test_leaders_are_elected_where_they_are_asked_for_and_where_they_are_missed() -> None:
    async def story() -> None:
        async with stage(brokers=2) as one:
            wanted = [NewTopic("a", assignments={0: (OTHER, US), 1: (US, OTHER)}), NewTopic("c")]
            await one.broker.create_topics(wanted, validate_only=False)
            brokers = one.controllers.image.brokers
            epoch = brokers[OTHER].broker_epoch
            one.controllers.do(FenceBroker(OTHER, epoch))
            asked = [("a", 0), ("a", 1), ("a", -1), ("zz", 0), ("a", 0)]
            told = await one.broker.elect_leaders("preferred", asked)
            assert [(name, index) for name, index, _ in told] == asked
            assert [code_of(error) for _, _, error in told] == [
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                ErrorCode.ELECTION_NOT_NEEDED,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            ]
            told = await one.broker.elect_leaders("preferred", None)
            assert [(name, index, code_of(error)) for name, index, error in told] == [
                ("a", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
            ]
            told = await one.broker.elect_leaders("unclean", [("a", 0)])
            assert [code_of(error) for _, _, error in told] == [ErrorCode.ELECTION_NOT_NEEDED]
            assert await one.broker.elect_leaders("unclean", None) == []

    asyncio.run(story())


def test_a_preferred_leader_that_is_in_sync_gets_its_partition_back() -> None:
    async def story() -> None:
        async with stage(brokers=2) as one:
            wanted = [NewTopic("a", assignments={0: (OTHER, US)}), NewTopic("b", 2, 1)]
            await one.broker.create_topics(wanted, validate_only=False)
            _restart(one.controllers, OTHER)
            await one.broker.elect_leaders("preferred", None)
            partition = one.controllers.image.topics["a"].partitions[0]
            assert partition.leader == US
            _catch_up(one.controllers, "a", US, OTHER)
            told = await one.broker.elect_leaders("preferred", None)
            assert told == [("a", 0, None)]
            assert one.broker.image.topics["a"].partitions[0].leader == OTHER

    asyncio.run(story())


def _restart(controllers: Controllers, broker_id: BrokerId) -> None:
    epoch = controllers.image.brokers[broker_id].broker_epoch
    controllers.do(FenceBroker(broker_id, epoch))
    controllers.do(UnfenceBroker(broker_id, epoch, controllers.image.version, {}))


def _catch_up(controllers: Controllers, topic: str, leader: BrokerId, *others: BrokerId) -> None:
    """Have a leader take others into its in-sync set."""
    brokers, info = controllers.image.brokers, controllers.image.topics[topic]
    partition = info.partitions[0]
    change = PartitionChange(
        topic_id=info.topic_id,
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=tuple((one, brokers[one].broker_epoch) for one in (leader, *others)),
    )
    epoch = brokers[leader].broker_epoch
    outcome = controllers.do(AlterPartitions(leader, epoch, (change,)))
    assert outcome.results[0].refusal is None


def test_a_broker_that_is_up_or_unknown_is_not_forgotten() -> None:
    async def story(one: Stage) -> None:
        up = await one.broker.forget_broker(US)
        assert code_of(up) is ErrorCode.INVALID_REQUEST
        unknown = await one.broker.forget_broker(BrokerId(99))
        assert code_of(unknown) is ErrorCode.BROKER_ID_NOT_REGISTERED

    run(story)


def test_the_feature_level_is_asked_for() -> None:
    async def story(one: Stage) -> None:
        assert await one.broker.set_feature_level(FEATURE_LEVEL, validate_only=False) is None
        for validate_only in (True, False):
            refused = await one.broker.set_feature_level(99, validate_only=validate_only)
            assert code_of(refused) is ErrorCode.INVALID_UPDATE_VERSION

    run(story)


def test_the_quorum_is_described_by_whoever_is_active() -> None:
    async def story(one: Stage) -> None:
        one.controllers.elect(3)
        view = await one.broker.describe_quorum()
        assert view.status.leader == 3

    run(story)
