"""Each answer is the one that Apache Kafka 4.3.1 gives, or a comment says why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from ottla.controller.image import FEATURE_LEVEL
from ottla.controller.port import NewTopic
from ottla.node.kafka.cluster import describe_cluster
from ottla.node.kafka.metadata import (
    api_versions,
    describe_topic_partitions,
    metadata,
    software_of,
    unsupported_api_versions,
)
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.apis import (
    API_TABLE,
    API_VERSIONS,
    DESCRIBE_CLUSTER,
    DESCRIBE_TOPIC_PARTITIONS,
    METADATA,
)
from ottla.proto.kafka.decode import decode_response
from ottla.proto.kafka.encode import encode_response
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from tests.unit.node.kafka.one_door import CLUSTER_ID, Cluster
from tests.unit.node.kafka.stage import HERE, NODE_ID, Stage

STRANGER = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
NOT_ASKED_FOR = -(2**31)
ALL_TOPIC_OPERATIONS = 3576
ALL_CLUSTER_OPERATIONS = 8096
AUTO = {"auto.create.topics.enable": "true"}


def stage_with(*topics: tuple[str, int], options: Mapping[str, str] | None = None) -> Stage:
    stage = Stage(options)
    wanted = [NewTopic(name, partitions=count) for name, count in topics]
    asyncio.run(stage.controller.create_topics(wanted, validate_only=False))
    return stage


@pytest.fixture
def stage() -> Stage:
    return stage_with(("a", 4), ("b", 2), ("__consumer_offsets", 1))


# ── ApiVersions ───────────────────────────────────────────────────────────────────────────────


def versions(version: int, name: str = "a-client", software: str = "1.0") -> Message:
    fields = {"client_software_name": name, "client_software_version": software}
    return Stage().ask(api_versions, API_VERSIONS, version, fields)


@pytest.mark.parametrize("version", range(5))
def test_every_api_that_is_served_is_told_once_and_in_order(version: int) -> None:
    answer = versions(version)
    assert answer.error_code == 0
    told = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert list(told) == sorted(row.key for row in API_TABLE)
    for row in API_TABLE:
        low = row.low if row.advertised_low is None else row.advertised_low
        assert told[row.key] == (low, row.high)


@pytest.mark.parametrize("version", [3, 4])
def test_the_levels_of_kafka_and_our_own_are_told(version: int) -> None:
    answer = versions(version)
    supported = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    ours = "ottla.feature.level"
    # Clients of version 3 break on a level of 0.
    kafkas = [("metadata.version", 7, 30), ("transaction.version", 0, 2)]
    assert supported == [*kafkas[: version - 2], (ours, 1, FEATURE_LEVEL)]
    finalized = [(one.name, one.max_version_level) for one in answer.finalized_features]
    kafkas_finalized = [("metadata.version", 30), ("transaction.version", 2)]
    assert finalized == [*kafkas_finalized, (ours, FEATURE_LEVEL)]
    assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("name", ["", "-a", "a-", "a b", "a.", "é", "a/b", "a\n", "\0"])
def test_a_program_without_a_proper_name_is_refused(version: int, name: str) -> None:
    for answer in (versions(version, name=name), versions(version, software=name)):
        assert answer.error_code == 42
        assert answer.api_keys == []
        assert answer.finalized_features_epoch == -1


@pytest.mark.parametrize("name", ["a", "A.b-9", "librdkafka"])
def test_a_program_with_a_proper_name_is_remembered(name: str) -> None:
    assert versions(3, name=name).error_code == 0
    body = Message({"client_software_name": name, "client_software_version": "2.6"})
    assert software_of(body) == f"{name}/2.6"
    assert software_of(Message({})) == ""


def test_an_unsupported_version_is_answered_in_version_0_with_the_versions_that_are() -> None:
    encoded = encode_response(API_VERSIONS, 0, unsupported_api_versions())
    answer = decode_response(API_VERSIONS, 0, encoded)
    assert answer.error_code == 35
    told = [(one.api_key, one.min_version, one.max_version) for one in answer.api_keys]
    assert told == [(18, 0, 4)]


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────


def ask(
    stage: Stage, version: int, topics: list[Any] | None, *, auto: bool = False, **more: Any
) -> Message:
    fields = {
        "topics": topics,
        "allow_auto_topic_creation": auto,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
        **more,
    }
    return stage.ask(metadata, METADATA, version, fields)


def by_name(*names: str | None) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": ZERO_UUID} for name in names]


def by_id(*ids: UUID) -> list[dict[str, Any]]:
    return [{"name": None, "topic_id": topic_id} for topic_id in ids]


@pytest.mark.parametrize("version", range(14))
def test_every_version_tells_topics_by_name(stage: Stage, version: int) -> None:
    answer = ask(stage, version, by_name("a"))
    (broker,) = answer.brokers
    assert (broker.node_id, broker.host, broker.port) == (NODE_ID, HERE.host, HERE.port)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (0, "a")
    assert [one.partition_index for one in topic.partitions] == [0, 1, 2, 3]
    for partition in topic.partitions:
        assert (partition.error_code, partition.leader_id) == (0, NODE_ID)
        assert partition.replica_nodes == partition.isr_nodes == [NODE_ID]
        assert partition.get("leader_epoch", 0) == 0
        assert partition.get("offline_replicas", []) == []
    if version >= 1:
        assert (answer.controller_id, broker.rack, topic.is_internal) == (NODE_ID, None, False)
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 10:
        assert topic.topic_id == stage.image.topics["a"].topic_id
    if version >= 13:
        assert answer.error_code == 0


def test_all_topics_are_told_for_null_and_in_version_0_for_an_empty_list(stage: Stage) -> None:
    every = {"a", "b", "__consumer_offsets"}
    assert {one.name for one in ask(stage, 0, []).topics} == every
    assert {one.name for one in ask(stage, 1, None).topics} == every
    assert {one.name for one in ask(stage, 13, None).topics} == every
    assert ask(stage, 1, []).topics == []
    assert ask(stage, 13, []).topics == []


def test_topics_that_brokers_keep_for_themselves_are_marked(stage: Stage) -> None:
    topics = ask(stage, 13, by_name("__consumer_offsets", "__transaction_state", "a")).topics
    assert [one.is_internal for one in topics] == [True, True, False]


@pytest.mark.parametrize("version", [0, 3, 4, 9, 13])
def test_names_without_a_topic_are_told_so(stage: Stage, version: int) -> None:
    names = ["nope", "", ".", "..", "a/b", "a" * 250, "é", "a"]
    topics = ask(stage, version, by_name(*names)).topics
    assert [one.name for one in topics] == names
    assert [one.error_code for one in topics] == [3, 17, 17, 17, 17, 17, 17, 0]
    assert all(one.partitions == [] for one in topics[:-1])


def test_a_name_that_is_given_twice_is_answered_once(stage: Stage) -> None:
    assert [one.name for one in ask(stage, 13, by_name("a", "b", "a")).topics] == ["a", "b"]


@pytest.mark.parametrize("version", [12, 13])
def test_topics_are_found_by_id(stage: Stage, version: int) -> None:
    known = stage.image.topics["a"].topic_id
    topics = ask(stage, version, by_id(known, STRANGER, known)).topics
    found = [(one.error_code, one.name, one.topic_id) for one in topics]
    assert found == [(0, "a", known), (100, None, STRANGER)]


def test_beside_an_id_names_are_not_read(stage: Stage) -> None:
    topics = ask(stage, 12, by_id(STRANGER) + by_name("a")).topics
    assert [(one.error_code, one.topic_id) for one in topics] == [(100, STRANGER)]
    both = [{"name": "a", "topic_id": STRANGER}]
    assert [one.error_code for one in ask(stage, 13, both).topics] == [100]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("topics", [by_name(None), [{"name": "a", "topic_id": STRANGER}]])
def test_ids_before_their_time_refuse_the_request(
    stage: Stage, version: int, topics: list[Any]
) -> None:
    answer = ask(stage, version, topics)
    assert [one.error_code for one in answer.topics] == [42]
    assert (answer.brokers, answer.cluster_id, answer.controller_id) == ([], None, -1)


def test_a_topic_without_name_and_id_refuses_the_request(stage: Stage) -> None:
    # Kafka meets a null pointer here, and answers -1 in both places.
    answer = ask(stage, 13, by_name(None))
    assert answer.error_code == 42
    assert [one.error_code for one in answer.topics] == [42]


def test_operations_are_told_to_those_who_ask(stage: Stage) -> None:
    plain = ask(stage, 9, by_name("a"))
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    assert plain.cluster_authorized_operations == NOT_ASKED_FOR
    told = ask(
        stage,
        9,
        by_name("a", "nope"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert [one.topic_authorized_operations for one in told.topics] == [ALL_TOPIC_OPERATIONS] * 2
    assert told.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS
    unknown = ask(stage, 13, by_id(STRANGER), include_topic_authorized_operations=True)
    assert unknown.topics[0].topic_authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize("version", [0, 3, 4, 13])
def test_asking_makes_topics_where_that_is_switched_on(version: int) -> None:
    # Kafka answers 3 and makes them in the background; a client has to ask again.
    stage = stage_with(options={**AUTO, "num.partitions": "3"})
    (topic,) = ask(stage, version, by_name("new"), auto=True).topics
    assert topic.error_code == 0
    assert len(topic.partitions) == 3
    assert "new" in stage.image.topics


def test_asking_makes_nothing_unless_both_sides_want_it() -> None:
    assert ask(stage_with(), 13, by_name("new"), auto=True).topics[0].error_code == 3
    stage = stage_with(options=AUTO)
    assert ask(stage, 13, by_name("new"), auto=False).topics[0].error_code == 3
    assert ask(stage, 13, by_id(STRANGER), auto=True).topics[0].error_code == 100
    assert ask(stage, 13, None, auto=True).topics == []
    assert not stage.image.topics


def test_asking_makes_no_topic_that_could_not_be_made_otherwise() -> None:
    stage = stage_with(("a.b", 1), options=AUTO)
    names = ["", "..", "a/b", "a_b", "__consumer_offsets", "__cluster_metadata", "good"]
    topics = ask(stage, 13, by_name(*names), auto=True).topics
    assert [one.error_code for one in topics] == [17, 17, 17, 17, 3, 3, 0]
    assert stage.image.topics.keys() == {"a.b", "good"}


def test_asking_for_more_topics_than_can_be_made_at_once_makes_none() -> None:
    stage = stage_with(options=AUTO)
    topics = ask(stage, 13, by_name(*(f"t{number}" for number in range(10_001))), auto=True).topics
    assert {one.error_code for one in topics} == {44}
    assert not stage.image.topics


@pytest.mark.parametrize(("is_deposed", "code"), [(True, 41), (False, 7)])
def test_without_a_controller_no_topic_is_made(is_deposed: bool, code: int) -> None:
    stage = Stage(AUTO, timeout_ms=30)
    stage.door.is_deposed, stage.door.is_closed = is_deposed, not is_deposed
    assert ask(stage, 13, by_name("new"), auto=True).topics[0].error_code == code


# ── DescribeTopicPartitions ───────────────────────────────────────────────────────────────────

Page = tuple[list[tuple[str, int, list[int]]], tuple[str, int] | None]


def pages(
    stage: Stage, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> Page:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    fields = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": limit,
        "cursor": at,
    }
    answer = stage.ask(describe_topic_partitions, DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    topics = [
        (one.name, one.error_code, [part.partition_index for part in one.partitions])
        for one in answer.topics
    ]
    after = answer.next_cursor
    return topics, None if after is None else (after.topic_name, after.partition_index)


def test_partitions_are_told_in_the_order_of_topics(stage: Stage) -> None:
    assert pages(stage, "b", "a", "b") == ([("a", 0, [0, 1, 2, 3]), ("b", 0, [0, 1])], None)
    assert [name for name, _, _ in pages(stage)[0]] == ["__consumer_offsets", "a", "b"]


def test_everybody_may_do_everything_and_is_told_so(stage: Stage) -> None:
    fields = {"topics": [{"name": "a"}, {"name": "nope"}], "response_partition_limit": 9}
    answer = stage.ask(describe_topic_partitions, DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    operations = [one.topic_authorized_operations for one in answer.topics]
    assert operations == [ALL_TOPIC_OPERATIONS] * 2
    partition = answer.topics[0].partitions[0]
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7])
def test_following_the_cursor_tells_every_partition_once(stage: Stage, limit: int) -> None:
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        topics, cursor = pages(stage, limit=limit, cursor=cursor)
        page = [(name, index) for name, _, indexes in topics for index in indexes]
        assert len(page) <= limit
        seen += page
        if cursor is None:
            break
    expected = [("__consumer_offsets", 0), *(("a", at) for at in range(4)), ("b", 0), ("b", 1)]
    assert seen == expected


@pytest.mark.parametrize("limit", [0, -1, -(2**31)])
def test_a_page_has_at_least_one_partition(stage: Stage, limit: int) -> None:
    assert pages(stage, "a", limit=limit) == ([("a", 0, [0])], ("a", 1))


def test_a_page_is_no_longer_than_the_node_allows() -> None:
    stage = stage_with(("a", 4), options={"max.request.partition.size.limit": "3"})
    assert pages(stage, "a", limit=2**31 - 1) == ([("a", 0, [0, 1, 2])], ("a", 3))


def test_a_full_page_points_at_the_next_topic_even_if_nobody_knows_it(stage: Stage) -> None:
    assert pages(stage, "b", "c", limit=2) == ([("b", 0, [0, 1])], ("c", 0))
    assert pages(stage, "b", "c", limit=3) == ([("b", 0, [0, 1]), ("c", 3, [])], None)


def test_a_cursor_behind_the_last_partition_finds_nothing_more(stage: Stage) -> None:
    assert pages(stage, "a", cursor=("a", 9)) == ([("a", 0, [])], None)


@pytest.mark.parametrize("cursor", [("nope", 0), ("A", 0), ("zzz", 3), ("a", -1), ("b", 0)])
def test_a_cursor_that_was_not_given_out_is_refused(stage: Stage, cursor: tuple[str, int]) -> None:
    assert pages(stage, "a", cursor=cursor) == ([("a", 42, [])], None)


def test_names_without_a_topic_are_described_as_such(stage: Stage) -> None:
    # For the empty name Kafka answers -1.
    topics, _ = pages(stage, "nope", "a/b", "")
    assert topics == [("", 17, []), ("a/b", 17, []), ("nope", 3, [])]


# ── A cluster of several ──────────────────────────────────────────────────────────────────────


@pytest.fixture
def three() -> Stage:
    """A topic "t" on three brokers, of which the third is down, and one on that alone."""
    cluster = Cluster(size=3)
    cluster.create((1, 2, 3), name="t")
    cluster.create((3,), name="alone")
    cluster.fence(3)
    return Stage(cluster=cluster)


def test_only_brokers_that_can_be_reached_are_told(three: Stage) -> None:
    answer = ask(three, 13, [])
    assert [one.node_id for one in answer.brokers] == [1, 2]
    assert [one.host for one in answer.brokers] == ["127.0.0.1", "host-2"]


@pytest.mark.parametrize("version", [5, 13])
def test_replicas_on_brokers_that_are_down_are_offline(three: Stage, version: int) -> None:
    (first,), (second,) = (
        topic.partitions for topic in ask(three, version, by_name("t", "alone")).topics
    )
    assert (first.error_code, first.leader_id) == (0, 2)
    assert (first.replica_nodes, first.offline_replicas) == ([1, 2, 3], [3])
    assert first.isr_nodes == [2]
    assert (second.error_code, second.leader_id) == (5, -1)
    assert (second.replica_nodes, second.offline_replicas) == ([3], [3])


def lost_since(stage: Stage, **seconds: float) -> None:
    """Let streams to brokers be broken for so long: `b2=0.1` for broker 2."""
    stage.broker.lost_for_s = lambda one: seconds.get(f"b{one}")


@pytest.mark.parametrize("version", range(METADATA.low, METADATA.high + 1))
def test_a_leader_that_was_just_lost_is_not_told_as_the_leader(three: Stage, version: int) -> None:
    """V2. Kafka tells it until its session is over."""
    lost_since(three, b2=0.1)
    answer = ask(three, version, by_name("t"))
    ((first,),) = (topic.partitions for topic in answer.topics)
    assert (first.error_code, first.leader_id) == (5, -1)
    # Where it is stays known: nobody has said that it is dead.
    assert first.get("offline_replicas", [3]) == [3]
    assert {one.node_id for one in answer.brokers} == {1, 2}


def test_a_leader_that_stays_away_and_is_not_replaced_is_told_again(three: Stage) -> None:
    """V2. Others may reach it."""
    lost_since(three, b2=1.0)
    ((first,),) = (topic.partitions for topic in ask(three, 12, by_name("t")).topics)
    assert (first.error_code, first.leader_id) == (0, 2)


def just_fenced(stage: Stage, *numbers: int) -> None:
    stage.broker.just_fenced = lambda: [stage.image.brokers[BrokerId(one)] for one in numbers]


def told_brokers(answer: Message) -> list[int]:
    return [int(one.node_id) for one in answer.brokers]


@pytest.mark.parametrize("version", range(METADATA.low, METADATA.high + 1))
def test_who_names_a_topic_is_told_of_its_broker_that_was_just_fenced(
    three: Stage, version: int
) -> None:
    """V3. But not that it could be reached, or leads, or is the controller."""
    just_fenced(three, 3)
    answer = ask(three, version, by_name("t"))
    assert told_brokers(answer) == [1, 2, 3]
    assert answer.get("controller_id", 1) != 3
    ((first,),) = (topic.partitions for topic in answer.topics)
    assert (first.leader_id, first.get("offline_replicas", [3])) == (2, [3])


def test_who_names_a_topic_by_its_id_is_told_of_it_too(three: Stage) -> None:
    """V3."""
    just_fenced(three, 3)
    topic_id = three.image.topics["t"].topic_id
    assert told_brokers(ask(three, 13, by_id(topic_id))) == [1, 2, 3]


@pytest.mark.parametrize(("version", "topics"), [(0, []), (1, None), (13, None), (1, []), (13, [])])
def test_who_names_no_topic_is_not_told_of_it(
    three: Stage, version: int, topics: list[dict[str, object]] | None
) -> None:
    """V3. All topics, or none: so ask tools that then ask every broker, and wait."""
    just_fenced(three, 3)
    assert told_brokers(ask(three, version, topics)) == [1, 2]


def test_who_names_only_topics_of_others_is_not_told_of_it(three: Stage) -> None:
    """V3."""
    three.cluster.create((1, 2), name="elsewhere")
    three.tell()
    just_fenced(three, 3)
    assert told_brokers(ask(three, 13, by_name("elsewhere", "nope"))) == [1, 2]
    assert told_brokers(ask(three, 13, by_name("elsewhere", "t"))) == [1, 2, 3]


def test_the_cluster_is_described_without_it(three: Stage) -> None:
    """V3."""
    just_fenced(three, 3)
    fields = {"include_cluster_authorized_operations": False}
    answer = three.ask(describe_cluster, DESCRIBE_CLUSTER, 1, fields)
    assert [one.broker_id for one in answer.brokers] == [1, 2]


def test_who_may_lead_though_it_is_not_in_sync_is_told(three: Stage) -> None:
    fields = {"topics": [], "response_partition_limit": 10, "cursor": None}
    answer = three.ask(describe_topic_partitions, DESCRIBE_TOPIC_PARTITIONS, 0, fields)
    (second,), (first,) = (topic.partitions for topic in answer.topics)
    # When 3 left, two stayed; when 1 was started anew, too few did.
    assert (first.isr_nodes, first.eligible_leader_replicas) == ([2], [1])
    assert first.offline_replicas == [3]
    assert (second.error_code, second.isr_nodes, second.eligible_leader_replicas) == (5, [], [3])
