"""What brokers have the active controller propose, and what it proposes in its own time."""

from __future__ import annotations

import asyncio

import pytest

from ottla.controller.active import FORWARDED_MAX
from ottla.controller.commands import (
    AlterPartitions,
    BeginShutdown,
    Command,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    PartitionChange,
    ReportDamage,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.door import (
    Denied,
    NotActive,
    QuorumView,
)
from ottla.controller.image import ClusterDefaults
from ottla.controller.outcome import Outcome
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.controller.proposal import decode_proposal
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.unit.controller.controllers import (
    SESSION_MS,
    Broker,
    Controllers,
    keep_beating,
    started,
    told,
)
from tests.unit.controller.metadata import topic_id

DEFAULTS = TopicDefaults(partitions=1, replication_factor=1)


# ── Proposals ─────────────────────────────────────────────────────────────────────────────────


def _topic(name: str = "t", number: int = 1) -> CreateTopic:
    return CreateTopic(NewTopic(name, 1, 1), topic_id(number), DEFAULTS, seed=1)


def test_rule_68_what_is_sent_again_is_done_once_and_answered_alike() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        request = broker.request(TakeProducerIds(10))
        first = await broker.door.propose(request, client="c")
        again = await broker.door.propose(request, client="c")
        assert isinstance(first, Outcome)
        assert first == again
        assert first.producer_ids == range(10)
        assert stage.image.next_producer_id == 10

    told(story)


def test_rule_68_what_is_sent_again_to_another_controller_is_done_once() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 9))[9]
        door = await stage.active()
        request = broker.request(_topic())
        first = await door.forward(request, client="c", caller=9)
        stage.cluster.crash(door.node_id)
        del stage.members[door.node_id]
        await door.stop()
        assert await (await stage.active()).forward(request, client="c", caller=9) == first
        assert isinstance(first, Outcome)
        assert first.refusal is None
        assert list(stage.image.topics) == ["t"]

    told(story, 3)


@pytest.mark.parametrize(
    "command",
    [
        TakeOffice(BrokerId(1), 1, ClusterDefaults()),
        FenceBroker(BrokerId(1), 2),
        UnfenceBroker(BrokerId(1), 2, 2, {}),
        BeginShutdown(BrokerId(1), 2),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_the_controller_decides_no_broker_may_propose(command: Command) -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        version = stage.image.version
        answer = await broker.door.propose(broker.request(command), client="c")
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INVALID_REQUEST
        assert type(command).__name__ in answer.sentence
        assert stage.image.version == version

    told(story)


def test_no_broker_may_propose_in_the_name_of_another() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        door = await stage.active()
        request = brokers[2].request(TakeProducerIds(1))
        answer = await door.forward(request, client="c", caller=1)
        assert answer == Denied(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "Node 1 may not propose in the name of node 2.",
        )
        for command in (
            AlterPartitions(BrokerId(1), brokers[1].epoch, ()),
            ReportDamage(BrokerId(1), brokers[1].epoch, {}),
        ):
            answer = await door.forward(brokers[2].request(command), client="c", caller=None)
            assert isinstance(answer, Denied)
            assert answer.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert isinstance(await door.forward(request, client="c", caller=None), Outcome)

    told(story)


@pytest.mark.parametrize("data", [b"", b"\0", b"\x01\x02", b"x" * 40_000, b"\x80\x04K\x01."])
def test_what_is_no_proposal_is_denied_with_a_sentence(data: bytes) -> None:
    async def story(stage: Controllers) -> None:
        door = await stage.active()
        answer = await door.propose(data, client="c")
        assert isinstance(answer, Denied)
        assert answer.code is ErrorCode.INVALID_REQUEST
        assert answer.sentence.endswith(".")
        assert stage.image.version == 1

    told(story)


def test_a_refused_command_is_an_outcome_and_people_read_of_it_in_the_log() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        await broker.door.propose(broker.request(_topic()), client="User:ann/192.0.2.1")
        answer = await broker.door.propose(broker.request(_topic()), client="User:bob/192.0.2.2")
        assert isinstance(answer, Outcome)
        assert answer.refusal is not None
        assert answer.refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS
        await broker.door.propose(broker.request(TakeProducerIds(1)), client="c")
        first, second = stage.events("command_forwarded")
        assert (first["client"], first["node"], first["kind"]) == (
            "User:ann/192.0.2.1",
            1,
            "CreateTopic",
        )
        assert first["version"] == stage.image.version - 2
        assert second["refused"] == "TOPIC_ALREADY_EXISTS"

    told(story)


def test_only_so_many_proposals_are_under_way() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        requests = [broker.request(TakeProducerIds(1)) for _ in range(FORWARDED_MAX + 1)]
        answers = await asyncio.gather(
            *(broker.door.propose(request, client="c") for request in requests)
        )
        assert sum(isinstance(one, Outcome) for one in answers) == FORWARDED_MAX
        assert isinstance(answers[-1], NotActive)

    told(story)


def test_an_unknown_fate_is_asked_for_again_with_the_same_bytes() -> None:
    async def story(stage: Controllers) -> None:
        broker = Broker(1, await stage.active())
        await broker.register()
        member = stage.members[1]
        member.asked.clear()
        member.unknown = 2
        await broker.beat()
        await stage.until(lambda: bool(stage.events("broker_unfenced")))
        assert len(member.asked) == 3
        assert len(set(member.asked)) == 1

    told(story)


# ── Looking, and balance ──────────────────────────────────────────────────────────────────────


def test_a_version_that_is_read_holds_everything_before_it() -> None:
    async def story(stage: Controllers) -> None:
        broker = (await started(stage, 1))[1]
        answer = await broker.door.propose(broker.request(TakeProducerIds(1)), client="c")
        assert isinstance(answer, Outcome)
        assert await broker.door.read_version() == answer.version == stage.image.version

    told(story)


def test_the_quorum_is_described_with_those_who_only_follow() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 8, 9)
        await brokers[8].beat(applied=stage.image.version)
        await brokers[9].beat(applied=stage.image.version - 1)
        view = await (await stage.active()).describe_quorum()
        assert isinstance(view, QuorumView)
        assert view.status.voters == (1,)
        end = view.status.last_index
        assert view.observers == {8: end, 9: end - 1}

    told(story)


def test_preferred_leaders_are_given_back_what_they_should_lead() -> None:
    async def story(stage: Controllers) -> None:
        stage.balance_s = 5
        brokers = await started(stage, 1, 2)
        assignments = {0: (BrokerId(1), BrokerId(2))}
        wanted = CreateTopic(NewTopic("t", assignments=assignments), topic_id(1), DEFAULTS, 1)
        door = await stage.active()
        await door.forward(brokers[1].request(wanted), client="c", caller=1)
        elect = ElectLeaders("preferred", None)

        def asked() -> int:
            return sum(
                decode_proposal(data, feature_level=1).command == elect
                for data in stage.members[1].asked
            )

        await keep_beating(stage, 6_000, *brokers.values())
        assert asked() == 0
        # Broker 1 is silent, so that the other leads; then it is back and in sync again.
        await keep_beating(stage, SESSION_MS + 200, brokers[2])
        assert stage.image.topics["t"].partitions[0].leader == 2
        await brokers[1].beat()
        await stage.until(lambda: not stage.broker(1).is_fenced)
        await rejoin(stage, brokers)
        await keep_beating(stage, 6_000, *brokers.values())
        assert stage.image.topics["t"].partitions[0].leader == 1
        assert asked() == 1

    told(story)


async def rejoin(stage: Controllers, brokers: dict[int, Broker]) -> None:
    """Have the leader take the other replica into the in-sync set again."""
    partition = stage.image.topics["t"].partitions[0]
    isr = tuple((BrokerId(number), broker.epoch) for number, broker in brokers.items())
    change = PartitionChange(topic_id(1), 0, partition.leader_epoch, partition.partition_epoch, isr)
    request = brokers[2].request(AlterPartitions(BrokerId(2), brokers[2].epoch, (change,)))
    answer = await (await stage.active()).forward(request, client="", caller=2)
    assert isinstance(answer, Outcome)
    assert answer.results[0].refusal is None, answer


def test_a_topic_is_deleted_through_the_door_of_any_broker() -> None:
    async def story(stage: Controllers) -> None:
        brokers = await started(stage, 1, 2)
        door = await stage.active()
        await door.forward(brokers[1].request(_topic()), client="c", caller=1)
        gone = brokers[2].request(DeleteTopic("t", topic_id(1)))
        assert isinstance(await door.forward(gone, client="c", caller=2), Outcome)
        assert not stage.image.topics

    told(story)
