"""What the answers of a cluster hold."""

from __future__ import annotations

from ottla.chaos.history import Place
from ottla.chaos.runner.requests import (
    Seen,
    end_of_batches,
    leaders_in,
    produce_fields,
    records_in,
    without_aborted,
)
from ottla.proto.kafka.message import Message
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record


def _batch(*offsets: int, epoch: int = 4, last: int | None = None, control: bool = False) -> bytes:
    records = [Record(at, 0, None, b"%d" % at) for at in offsets]
    base = offsets[0] if offsets else 0
    return build_batch(
        records, base_offset=base, last_offset=last, leader_epoch=epoch, control=control
    )


def test_records_come_with_the_epoch_of_their_batch() -> None:
    data = _batch(3, 4, epoch=1) + _batch(5, epoch=2)
    assert [(one.offset, one.payload, one.leader_epoch) for one in records_in(data)] == [
        (3, b"3", 1),
        (4, b"4", 1),
        (5, b"5", 2),
    ]


def test_a_batch_that_is_cut_short_is_left_for_the_next_time() -> None:
    data = _batch(3, 4) + _batch(5)[:-1]
    assert [one.offset for one in records_in(data)] == [3, 4]
    assert end_of_batches(data) == 5


def test_a_tombstone_says_in_a_header_what_it_is() -> None:
    fields = produce_fields(
        Place("a", 0), b"me", key=b"k1", acks=-1, timeout_ms=1, now_ms=0, is_tombstone=True
    )
    (one,) = records_in(fields["topic_data"][0]["partition_data"][0]["records"])
    assert one.payload == b"me"


def test_control_records_are_marked() -> None:
    assert [one.is_control for one in records_in(_batch(7, control=True))] == [True]


def test_behind_what_a_cleaner_left_one_reads_on_where_the_batch_ended() -> None:
    assert end_of_batches(_batch(3, last=9)) == 10
    assert end_of_batches(_batch(last=9)) == 10
    assert end_of_batches(b"") is None


def test_leaders_of_topics_that_are_not_there_are_not_named() -> None:
    part = Message({"partition_index": 1, "leader_id": 2, "leader_epoch": 7})
    good = Message({"error_code": 0, "name": "a", "partitions": [part]})
    bad = Message({"error_code": 3, "name": "b", "partitions": []})
    assert leaders_in(Message({"topics": [good, bad]})) == {Place("a", 1): Seen(2, 7)}


def _of(producer: int, *offsets: int, control: bool = False, transactional: bool = True) -> bytes:
    records = [Record(at, 0, None, b"%d" % at) for at in offsets]
    return build_batch(
        records,
        base_offset=offsets[0],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1 if control else 0,
        control=control,
        transactional=transactional,
    )


def test_what_was_aborted_is_left_out_up_to_its_marker_and_nothing_else() -> None:
    data = (
        _of(7, 0, 1)
        + _of(8, 2)
        + _of(-1, 3, transactional=False)
        + _of(7, 4, control=True)
        + _of(7, 5)
        + _of(8, 6, control=True)
    )
    left = without_aborted(records_in(data), [(7, 0)])
    assert [one.offset for one in left] == [2, 3, 5]


def test_a_transaction_that_was_aborted_begins_where_the_answer_says() -> None:
    data = _of(7, 0) + _of(7, 1, control=True) + _of(7, 2) + _of(7, 3, control=True)
    assert [one.offset for one in without_aborted(records_in(data), [(7, 2)])] == [0]
    assert [one.offset for one in without_aborted(records_in(data), [])] == [0, 2]
