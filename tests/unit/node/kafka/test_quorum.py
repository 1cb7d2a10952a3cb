"""DescribeQuorum: a Raft quorum under the names of Kafka's."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.controller.door import QuorumView
from ottla.node.kafka.quorum import describe_quorum
from ottla.proto.kafka.apis import DESCRIBE_QUORUM
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from tests.unit.node.kafka.one_door import Cluster
from tests.unit.node.kafka.stage import Stage

METADATA = "__cluster_metadata"
DIRECTORY = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)
VOTERS = "1@127.0.0.1:9093,2@node-2:9093,3@node-3:9094"


Named = Sequence[tuple[str, Sequence[int]]]
THE_METADATA: Named = ((METADATA, (0,)),)


def ask(stage: Stage, version: int = 2, topics: Named = THE_METADATA) -> Message:
    told = [
        {"topic_name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in topics
    ]
    return stage.ask(describe_quorum, DESCRIBE_QUORUM, version, {"topics": told})


def partition_of(answer: Message) -> Message:
    assert (answer.error_code, answer.get("error_message")) == (0, None)
    (topic,) = answer.topics
    partition: Message
    (partition,) = topic.partitions
    assert (topic.topic_name, partition.partition_index) == (METADATA, 0)
    assert (partition.error_code, partition.get("error_message")) == (0, None)
    return partition


@pytest.fixture
def three() -> Stage:
    """Three voters, of which 2 lags and 3 was never heard; and broker 7, which is none."""
    stage = Stage({"controller.quorum.voters": VOTERS})
    status = replace(
        stage.door.view.status,
        term=9,
        voters=(1, 2, 3),
        last_index=50,
        commit_index=48,
        acknowledged={2: 47, 3: 0},
        admitted={1: urlsafe_b64encode(DIRECTORY.bytes).rstrip(b"=").decode(), 2: None},
    )
    stage.door.view = QuorumView(status, observers={7: 46})
    return stage


@pytest.mark.parametrize("version", range(3))
def test_the_leader_the_term_and_what_is_committed_are_told(three: Stage, version: int) -> None:
    partition = partition_of(ask(three, version))
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 9, 48)
    voters = [(one.replica_id, one.log_end_offset) for one in partition.current_voters]
    assert voters == [(1, 50), (2, 47), (3, -1)]


def test_an_observer_is_told_apart_from_the_voters(three: Stage) -> None:
    (observer,) = partition_of(ask(three)).observers
    assert (observer.replica_id, observer.log_end_offset) == (7, 46)


def test_only_of_who_has_caught_up_is_told_when(three: Stage) -> None:
    leader, behind, silent = partition_of(ask(three)).current_voters
    assert leader.last_fetch_timestamp == leader.last_caught_up_timestamp > 0
    for voter in (behind, silent):
        assert (voter.last_fetch_timestamp, voter.last_caught_up_timestamp) == (-1, -1)


def test_a_follower_that_has_everything_has_caught_up_now(three: Stage) -> None:
    status = replace(three.door.view.status, acknowledged={2: 50, 3: 50})
    three.door.view = QuorumView(status)
    leader, second, third = partition_of(ask(three)).current_voters
    assert second.last_caught_up_timestamp == leader.last_caught_up_timestamp
    assert third.last_caught_up_timestamp == leader.last_caught_up_timestamp


def test_the_data_directories_of_voters_are_told_as_far_as_they_are_known(three: Stage) -> None:
    voters = partition_of(ask(three)).current_voters
    assert [one.replica_directory_id for one in voters] == [DIRECTORY, ZERO_UUID, ZERO_UUID]


@pytest.mark.parametrize("text", ["", "d1", "no such id", "ä", "A" * 30])
def test_a_directory_that_was_named_by_hand_is_not_told(three: Stage, text: str) -> None:
    three.door.view = QuorumView(replace(three.door.view.status, admitted={1: text}))
    assert partition_of(ask(three)).current_voters[0].replica_directory_id == ZERO_UUID


def test_voters_are_told_with_the_addresses_of_the_options(three: Stage) -> None:
    told = [
        (one.node_id, [(each.name, each.host, each.port) for each in one.listeners])
        for one in ask(three).nodes
    ]
    assert told == [
        (1, [("CONTROLLER", "127.0.0.1", 9093)]),
        (2, [("CONTROLLER", "node-2", 9093)]),
        (3, [("CONTROLLER", "node-3", 9094)]),
    ]


def test_a_voter_that_is_alone_is_told_as_it_has_registered() -> None:
    (node,) = ask(Stage()).nodes
    (listener,) = node.listeners
    assert (node.node_id, listener.host, listener.port) == (1, "127.0.0.1", 9093)


def test_a_voter_of_which_no_address_is_known_is_told_without() -> None:
    stage = Stage(cluster=Cluster())
    status = replace(stage.door.view.status, voters=(1, 5))
    stage.door.view = QuorumView(status)
    answer = ask(stage)
    assert [one.node_id for one in answer.nodes] == [1]
    assert [one.replica_id for one in partition_of(answer).current_voters] == [1, 5]


# ── What Kafka refuses ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize(
    "topics",
    [
        [("t", (0,))],
        [(METADATA, (1,))],
        [(METADATA, (0, 1))],
        [(METADATA, (0, 0))],
        [(METADATA, (0,)), ("t", (0,))],
        [(METADATA, (0,)), (METADATA, (0,))],
        [(METADATA, ()), (METADATA, (0,))],
    ],
)
def test_only_the_metadata_alone_has_a_quorum(version: int, topics: Named) -> None:
    answer = ask(Stage(), version, topics)
    assert answer.error_code == 0
    told = [
        (topic.topic_name, tuple(one.partition_index for one in topic.partitions))
        for topic in answer.topics
    ]
    assert told == topics
    codes = [one.error_code for topic in answer.topics for one in topic.partitions]
    assert set(codes) == {3}


def test_who_names_nothing_is_told_nothing() -> None:
    answer = ask(Stage(), 2, [])
    assert (answer.error_code, answer.topics, answer.nodes) == (0, [], [])


@pytest.mark.parametrize("is_deposed", [True, False])
def test_without_an_active_controller_clients_try_again(is_deposed: bool) -> None:
    stage = Stage(timeout_ms=30)
    stage.door.is_deposed, stage.door.is_closed = is_deposed, not is_deposed
    answer = ask(stage)
    assert (answer.error_code, answer.topics) == (41, [])
    assert answer.error_message


def test_a_controller_that_has_just_lost_its_office_is_asked_again() -> None:
    stage = Stage()
    stage.door.view = QuorumView(replace(stage.door.view.status, leader=None))
    assert ask(stage).error_code == 6
