"""A batch of a transaction comes to a broker that has not obeyed the newest metadata yet.

Whoever begins to lead while the batch is written has asked no coordinator about it. So the broker
hurries to obey before it looks whether there is something to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, LeaderEpoch, TopicPartition
from ottla.proto.kafka import apis
from ottla.replication.leader import PartitionView
from ottla.replication.replica import Replica
from tests.builders import produced
from tests.unit.node.kafka.asking_for_records import ask, topic_id, wish, written
from tests.unit.node.kafka.asking_for_transactions import FLAGS, ID, find, producer, state
from tests.unit.node.kafka.desk import Desk, Place, open_desk

HERE = TopicPartition("t", 0)
# Since version 12 a partition is added to a transaction by writing to it.
BEFORE, SINCE = 11, 12


@pytest.fixture
def desk() -> Iterator[Desk]:
    with open_desk(Place(), **FLAGS) as opened:
        opened.create("t", 1)
        find(opened)
        yield opened


def lead(replica: Replica) -> None:
    me = BrokerId(1)
    view = PartitionView(
        leader_epoch=LeaderEpoch(replica.leader_epoch + 1),
        partition_epoch=100,
        replicas=(me,),
        isr=(me,),
        min_isr=1,
        broker_epochs={},
        active=(me,),
    )
    replica.lead(view)


def follow(replica: Replica) -> None:
    replica.follow(LeaderEpoch(replica.leader_epoch + 1), BrokerId(2))


def write(desk: Desk, by: dict[str, Any], version: int) -> int:
    """Ask for a batch to be written in a transaction, and return the code."""
    batch = produced(b"v", **by, sequence=0, transactional=True)
    asked = {**wish(-1, "t", topic_id(desk, "t"), batch=batch), "transactional_id": ID}
    code, _ = written(ask(desk, apis.PRODUCE, version, asked))
    return code


def test_who_hears_just_now_that_it_leads_asks_the_coordinator_first(desk: Desk) -> None:
    by, replica = producer(desk), desk.replica("t")
    follow(replica)
    heard = list[TopicPartition]()

    def hurry(partition: TopicPartition) -> None:
        heard.append(partition)
        if not replica.is_leader:
            lead(replica)

    desk.broker.hurry = hurry
    assert write(desk, by, SINCE) == ErrorCode.NONE
    assert set(heard) == {HERE}
    (topic,) = state(desk)["topics"]
    assert (topic["topic"], topic["partitions"]) == ("t", [0]), "the coordinator was asked"


def test_who_hears_just_now_that_it_leads_refuses_what_was_never_added(desk: Desk) -> None:
    by, replica = producer(desk), desk.replica("t")
    follow(replica)
    desk.broker.hurry = lambda partition: None if replica.is_leader else lead(replica)
    assert write(desk, by, BEFORE) == ErrorCode.TRANSACTION_ABORTABLE
    assert replica.log.end_offset == 0


def test_who_hears_just_now_that_another_leads_asks_nobody(desk: Desk) -> None:
    by, replica = producer(desk), desk.replica("t")
    desk.broker.hurry = lambda partition: follow(replica) if replica.is_leader else None
    assert write(desk, by, SINCE) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert state(desk)["topics"] == [], "nothing was added to the transaction"
    assert replica.log.end_offset == 0
