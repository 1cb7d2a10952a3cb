"""Which records of a batch stay, and the batch that is left (Q1 to Q7)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import TimestampType, crc_of, read_header, seal
from ottla.proto.records.record import Record
from ottla.replication.compaction.rewrite import (
    KeyMap,
    Rewritten,
    rewrite_batch,
    rewrite_marker,
)
from tests.builders import NOW_MS

RETENTION_MS = 1000


@dataclass
class Shelf:
    """What the cleaner knows when it comes to a batch: the keys that were written later."""

    later: tuple[bytes, ...] = ()
    now_ms: int = NOW_MS
    stays_empty: bool = False

    def clean(self, batch: bytes) -> Rewritten:
        latest = KeyMap(100)
        latest.add(decode_records(batch) if not read_header(batch).is_control else [])
        latest.add([Record(10**6, NOW_MS, key, b"", ()) for key in self.later])
        return rewrite_batch(
            batch,
            read_header(batch),
            latest,
            now_ms=self.now_ms,
            delete_retention_ms=RETENTION_MS,
            stays_empty=self.stays_empty,
        )


def batch_of(*pairs: tuple[bytes | None, bytes | None], **how: object) -> bytes:
    records = [
        Record(100 + number, NOW_MS + number, key, value, (("h", b"1"),))
        for number, (key, value) in enumerate(pairs)
    ]
    given = {"base_offset": 100, "leader_epoch": 3, **how}
    return build_batch(records, **given)  # type: ignore[arg-type]  # names are the fields'


def offsets_in(batch: bytes | None) -> list[int]:
    assert batch is not None
    return [record.offset for record in decode_records(batch)]


def test_q1_the_last_record_of_a_key_stays_at_its_offset() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    done = Shelf().clean(batch)
    assert offsets_in(done.batch) == [101, 102]
    assert done.removed_count == 1


def test_a_batch_of_which_everything_stays_is_the_same_bytes() -> None:
    batch = batch_of((b"a", b"1"), (b"b", b"1"), codec=Codec.GZIP)
    done = Shelf().clean(batch)
    assert done.batch == batch
    assert not done.is_changed


def test_a_batch_of_which_nothing_stays_goes() -> None:
    done = Shelf(later=(b"a",)).clean(batch_of((b"a", b"1")))
    assert done.batch is None
    assert done.is_changed


@pytest.mark.parametrize("codec", list(Codec))
def test_q3_everything_else_about_a_batch_stays_as_it_was(codec: Codec) -> None:
    batch = batch_of(
        (b"a", b"1"),
        (b"b", b"1"),
        (b"c", b"1"),
        codec=codec,
        producer_id=9,
        producer_epoch=2,
        base_sequence=40,
    )
    left = Shelf(later=(b"a", b"c")).clean(batch).batch
    assert left is not None
    before, after = read_header(batch), read_header(left)
    assert (after.base_offset, after.last_offset, after.leader_epoch) == (100, 102, 3)
    assert (after.producer_id, after.producer_epoch) == (9, 2)
    assert (after.base_sequence, after.last_sequence) == (40, before.last_sequence)
    assert (after.codec_bits, after.crc) == (codec, crc_of(left))
    assert decode_records(left) == [decode_records(batch)[1]]


def test_log_append_time_stays() -> None:
    batch = batch_of(
        (b"a", b"1"),
        (b"b", b"1"),
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=NOW_MS + 77,
    )
    left = Shelf(later=(b"b",)).clean(batch).batch
    assert left is not None
    assert [record.timestamp for record in decode_records(left)] == [NOW_MS + 77]


# -- Q2: tombstones ----------------------------------------------------------------------------


def test_q2_a_tombstone_gets_its_horizon_when_the_cleaner_first_meets_it() -> None:
    done = Shelf().clean(batch_of((b"a", None)))
    assert done.horizon_ms == NOW_MS + RETENTION_MS
    assert done.batch is not None
    header = read_header(done.batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert decode_records(done.batch) == decode_records(batch_of((b"a", None)))


def test_q2_a_later_cleaning_does_not_put_the_horizon_off() -> None:
    once = Shelf().clean(batch_of((b"a", None))).batch
    assert once is not None
    again = Shelf(now_ms=NOW_MS + 500).clean(once)
    assert again.batch == once
    assert again.horizon_ms == NOW_MS + RETENTION_MS


@pytest.mark.parametrize(("wait_ms", "is_there"), [(RETENTION_MS - 1, True), (RETENTION_MS, False)])
def test_q2_a_tombstone_goes_when_its_horizon_has_come(wait_ms: int, is_there: bool) -> None:
    once = Shelf().clean(batch_of((b"a", None), (b"b", b"1"))).batch
    assert once is not None
    later = Shelf(now_ms=NOW_MS + wait_ms).clean(once)
    assert offsets_in(later.batch) == ([100, 101] if is_there else [101])
    assert (later.horizon_ms is not None) is is_there


def test_q2_a_tombstone_that_was_replaced_goes_at_once() -> None:
    assert Shelf(later=(b"a",)).clean(batch_of((b"a", None))).batch is None


# -- Q4: producers -----------------------------------------------------------------------------


def test_q4_rule_62_a_producers_last_batch_stays_without_records() -> None:
    batch = batch_of((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=40)
    left = Shelf(later=(b"a",), stays_empty=True).clean(batch).batch
    assert left is not None
    header = read_header(left)
    assert (header.count, header.producer_id, header.last_sequence) == (0, 9, 40)
    assert header.max_timestamp == NOW_MS


def test_q4_an_empty_batch_goes_when_the_producer_has_written_another() -> None:
    batch = batch_of((b"a", b"1"), producer_id=9, producer_epoch=2, base_sequence=40)
    empty = Shelf(later=(b"a",), stays_empty=True).clean(batch).batch
    assert empty is not None
    assert not Shelf(stays_empty=True).clean(empty).is_changed
    assert Shelf().clean(empty).batch is None


# -- Q5: what nothing can replace --------------------------------------------------------------


def test_q5_records_without_a_key_stay() -> None:
    assert offsets_in(Shelf(later=(b"a",)).clean(batch_of((None, b"1"), (b"a", b"1"))).batch) == [
        100
    ]


def test_q5_a_keyless_record_without_a_value_is_no_tombstone() -> None:
    done = Shelf().clean(batch_of((None, None)))
    assert done.horizon_ms is None
    assert not done.is_changed


def test_q5_a_batch_that_cannot_be_decoded_stays_as_it_is() -> None:
    batch = bytearray(batch_of((b"a", b"1"), codec=Codec.GZIP))
    batch[61:] = b"\xff" * (len(batch) - 61)
    seal(batch)
    done = rewrite_batch(
        bytes(batch),
        read_header(batch),
        KeyMap(9),
        now_ms=NOW_MS,
        delete_retention_ms=0,
        stays_empty=False,
    )
    assert done.batch == bytes(batch)
    assert not done.is_changed


def marker_left(batch: bytes, *, now_ms: int, stays: bool = False) -> Rewritten:
    header = read_header(batch)
    return rewrite_marker(
        batch, header, now_ms=now_ms, delete_retention_ms=RETENTION_MS, stays=stays
    )


def test_q7_a_marker_stays_as_it_is_while_it_is_needed() -> None:
    batch = batch_of((b"\0\0\0\1", b"\0\0\0\0\0\0"), control=True, transactional=True)
    done = marker_left(batch, now_ms=NOW_MS, stays=True)
    assert done.batch == batch
    assert not done.is_changed


def test_q7_a_marker_that_nothing_needs_gets_a_horizon_and_goes_behind_it() -> None:
    batch = batch_of((b"\0\0\0\1", b"\0\0\0\0\0\0"), control=True, transactional=True)
    first = marker_left(batch, now_ms=NOW_MS)
    assert first.batch is not None
    assert first.horizon_ms == NOW_MS + RETENTION_MS
    assert read_header(first.batch).is_control
    before = marker_left(first.batch, now_ms=NOW_MS + RETENTION_MS - 1)
    assert before.batch == first.batch
    assert marker_left(first.batch, now_ms=NOW_MS + RETENTION_MS).batch is None


# -- the key map -------------------------------------------------------------------------------


def records(*keys: bytes | None, first: int = 0) -> list[Record]:
    return [Record(first + number, NOW_MS, key, b"", ()) for number, key in enumerate(keys)]


def test_a_key_is_replaced_by_a_later_record_and_not_by_itself() -> None:
    latest = KeyMap(9)
    latest.add(records(b"a", b"b", b"a"))
    assert latest.is_replaced(b"a", 0)
    assert not latest.is_replaced(b"a", 2)
    assert not latest.is_replaced(b"unknown", 0)


def test_a_full_map_takes_no_part_of_a_batch() -> None:
    latest = KeyMap(3)
    assert latest.add(records(b"a", b"b"))
    assert not latest.add(records(b"c", b"d", first=2))
    assert len(latest) == 2
    assert latest.add(records(b"c", first=2))


def test_a_batch_with_more_keys_than_the_map_has_room_for_is_taken_when_it_is_alone() -> None:
    assert KeyMap(1).add(records(b"a", b"b", b"c"))
