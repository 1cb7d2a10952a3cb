"""What Fetch and ListOffsets show to who reads committed, and DescribeProducers to anybody."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.proto.kafka import apis
from ottla.proto.kafka.message import Message
from tests.builders import produced
from tests.unit.node.kafka.asking_for_offsets import listed
from tests.unit.node.kafka.asking_for_records import ask, question
from tests.unit.node.kafka.desk import Desk, open_desk
from tests.unit.replication.log.transactions import COORDINATOR, end, write

ANN, BOB = 7, 8


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A broker with a topic of one plain record and one of a transaction that is open."""
    with open_desk() as opened:
        opened.create("t", 1)
        log = opened.write("t", produced(b"plain", timestamps=[1000])).log
        write(log, ANN, b"open")
        commit(opened)
        yield opened


def commit(desk: Desk) -> None:
    """Let all that is in the log be committed, with one plain record behind it."""
    desk.write("t", produced(b"behind", timestamps=[9000]))


def fetched(desk: Desk, *, isolation: int, offset: int = 0, version: int = 17) -> Message:
    asked = {**question(desk, "t", offset=offset), "isolation_level": isolation}
    answer = ask(desk, apis.FETCH, version, asked)
    assert isinstance(answer, Message)
    one: Message = answer.responses[0].partitions[0]
    assert one.error_code == 0
    return one


def test_f1_who_reads_committed_reads_up_to_the_last_stable_offset(desk: Desk) -> None:
    committed, everything = fetched(desk, isolation=1), fetched(desk, isolation=0)
    assert (committed.high_watermark, committed.last_stable_offset) == (3, 1)
    assert (everything.high_watermark, everything.last_stable_offset) == (3, 1)
    assert len(committed.records) < len(everything.records)
    assert not fetched(desk, isolation=1, offset=1).records


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_what_was_aborted_is_named_to_who_reads_committed_and_to_nobody_else(
    desk: Desk, version: int
) -> None:
    end(desk.replica("t").log, ANN, is_commit=False)
    commit(desk)
    committed = fetched(desk, isolation=1, version=version)
    named = [(one.producer_id, one.first_offset) for one in committed.aborted_transactions]
    assert named == [(ANN, 1)]
    assert committed.last_stable_offset == committed.high_watermark == 5
    assert not fetched(desk, isolation=0, version=version).aborted_transactions
    assert not fetched(desk, isolation=1, offset=4, version=version).aborted_transactions


def test_a_committed_transaction_is_shown_and_not_named(desk: Desk) -> None:
    end(desk.replica("t").log, ANN, is_commit=True)
    commit(desk)
    one = fetched(desk, isolation=1)
    assert not one.aborted_transactions
    assert one.last_stable_offset == 5


def test_a1_the_latest_offset_is_the_last_stable_one_for_who_reads_committed(desk: Desk) -> None:
    assert listed(desk, -1, isolation=1) == (0, -1, 1, 0)
    assert listed(desk, -1, isolation=0) == (0, -1, 3, 0)


def test_a1_a_time_is_not_found_behind_the_last_stable_offset(desk: Desk) -> None:
    assert listed(desk, 500, isolation=1)[:3] == (0, 1000, 0)
    assert listed(desk, 2000, isolation=1)[:3] == (0, -1, -1)
    assert listed(desk, 2000, isolation=0)[2] == 1


def test_describe_producers_tells_where_an_open_transaction_began(desk: Desk) -> None:
    log = desk.replica("t").log
    write(log, BOB)
    end(log, BOB, is_commit=True)
    answer = desk.ask(apis.DESCRIBE_PRODUCERS, 0, topics=[{"name": "t", "partition_indexes": [0]}])
    (topic,) = answer["topics"]
    told = {
        one["producer_id"]: (one["current_txn_start_offset"], one["coordinator_epoch"])
        for one in topic["partitions"][0]["active_producers"]
    }
    assert told == {ANN: (1, -1), BOB: (-1, COORDINATOR)}
