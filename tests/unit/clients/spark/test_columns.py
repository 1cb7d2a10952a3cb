"""Columns hold what the careful decoder reads, and refuse what it refuses."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.clients.spark.columns import ROWS_MAX, Columns, read_columns
from ottla.proto.errors import CorruptionError, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import TimestampType, seal
from ottla.proto.records.record import Record

WHERE = TopicPartition("t", 3)
FAR = 1 << 60
_bytes = st.one_of(st.none(), st.binary(max_size=300))
_headers = st.lists(st.tuples(st.text(max_size=8), _bytes), max_size=3).map(tuple)


@st.composite
def _records(draw: st.DrawFn) -> list[Record]:
    offset, found = -1, []
    for delta in draw(st.lists(st.integers(1, 200), min_size=1, max_size=20)):
        offset += delta
        time_ms = draw(st.integers(0, 1 << 45))
        found.append(Record(offset, time_ms, draw(_bytes), draw(_bytes), draw(_headers)))
    return found


def _read(
    data: bytes, position: int = 0, stop: int = FAR, *, with_headers: bool = True
) -> list[Record]:
    view = memoryview(data)
    all_columns = list(read_columns(view, WHERE, position, stop, with_headers=with_headers))
    return [record for columns in all_columns for record in _rows(columns)]


def _rows(columns: Columns) -> list[Record]:
    headers = columns.headers or [()] * len(columns.offsets)
    return [
        Record(*row)
        for row in zip(
            columns.offsets,
            columns.times_ms,
            columns.keys,
            columns.values,
            headers,
            strict=True,
        )
    ]


@settings(max_examples=60)
@given(_records(), st.sampled_from(Codec), st.booleans(), st.booleans())
def test_columns_are_what_the_careful_decoder_reads(
    records: list[Record], codec: Codec, append_time: bool, with_headers: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    batch = build_batch(
        records, codec=codec, timestamp_type=kind, max_timestamp=77 if append_time else None
    )
    expected = decode_records(batch)
    if not with_headers:
        expected = [one._replace(headers=()) for one in expected]
    assert _read(batch, with_headers=with_headers) == expected


@settings(max_examples=150)
@given(_records(), st.data())
def test_damage_outside_of_headers_is_refused_or_read_alike(
    records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(build_batch([one._replace(headers=()) for one in records]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(61, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    seal(batch)
    try:
        expected = decode_records(batch)
    except OttlaError:
        # Damage that reads as headers is not looked at; nothing but an error of ours may come.
        with suppress(OttlaError):
            _read(bytes(batch), with_headers=False)
        return
    got = _read(bytes(batch), with_headers=False)
    assert got == [one._replace(headers=()) for one in expected]


def test_a_batch_with_a_wrong_checksum_is_refused_with_its_place() -> None:
    batch = bytearray(build_batch([Record(5, 1, b"k", b"v")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptionError, match=r"^t-3 at offset 0: the bytes of the batch"):
        _read(bytes(batch))


@given(_records(), st.integers(0, 500), st.integers(0, 800))
def test_only_records_of_the_range_are_given_out(
    records: list[Record], position: int, size: int
) -> None:
    stop = position + size
    expected = [one for one in records if position <= one.offset < stop]
    assert _read(build_batch(records), position, stop) == expected


def test_a_batch_that_is_cut_off_at_the_end_waits_for_the_next_fetch() -> None:
    first = build_batch([Record(0, 1, None, b"a")])
    second = build_batch([Record(1, 1, None, b"b" * 100)])
    assert [one.value for one in _read((first + second)[:-1])] == [b"a"]


def test_a_batch_that_is_cut_off_at_the_beginning_is_told() -> None:
    batch = build_batch([Record(0, 1, None, b"a" * 100)])
    with pytest.raises(CorruptionError, match=r"raise kafka\.max\.partition\.fetch\.bytes"):
        _read(batch[:-1])


def test_many_records_come_in_several_parts() -> None:
    batches = [
        build_batch([Record(base + n, 1, None, b"x") for n in range(1000)])
        for base in range(0, 3 * ROWS_MAX // 2, 1000)
    ]
    parts = list(read_columns(memoryview(b"".join(batches)), WHERE, 0, FAR))
    assert [len(part.offsets) for part in parts] == [ROWS_MAX, ROWS_MAX // 2]
