"""Batches written by hand from the format, read and built; and what else is in no sound batch."""

from __future__ import annotations

from typing import Final

import pytest
from kio.records.readers import read_batch

from ottla.proto.errors import InvariantError, RecordsError
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records, iterate_records
from ottla.proto.records.header import TimestampType, crc_of, read_header
from ottla.proto.records.record import Record
from ottla.proto.records.validate import validate_stored
from tests.unit.proto.records.bad_batches import (
    CASES,
    NOW_MS,
    STRICT,
    BadBatch,
    body,
    changed,
    enclosed,
    framed,
    good,
    records,
    varint,
)

# One record, as a producer without an id sends it.
PLAIN: Final = bytes.fromhex(
    "0000000000000000 0000003a ffffffff 02 716a6189 0000 00000000"
    "00000000000003e8 00000000000003e8 ffffffffffffffff ffff ffffffff 00000001"
    "10 00 00 00 02 6b 02 76 00"
)
# After compaction: offsets 102 and 109 of [100, 109], a delete horizon, no key, no value, a header.
CLEANED: Final = bytes.fromhex(
    "0000000000000064 00000046 00000004 02 d7fc70df 0040 00000009"
    "00000000000003e8 00000000000007d0 0000000000000007 0003 00000005 00000002"
    "0e 00 01 04 01 02 76 00"
    "18 00 d00f 12 04 6b32 01 02 02 68 01"
)
# Nothing left but the memory of a producer's last sequence.
EMPTY: Final = bytes.fromhex(
    "0000000000000064 00000031 00000004 02 260fc4c9 0000 00000004"
    "ffffffffffffffff ffffffffffffffff 0000000000000007 0003 00000005 00000000"
)


def slow_crc32c(data: bytes) -> int:
    """Return the checksum as its definition says it, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


GOLDEN: Final = [
    pytest.param(
        PLAIN,
        [Record(0, 1000, b"k", b"v")],
        {},
        id="plain",
    ),
    pytest.param(
        CLEANED,
        [Record(102, 999, None, b"v"), Record(109, 2000, b"k2", None, (("h", None),))],
        {
            "base_offset": 100, "leader_epoch": 4, "delete_horizon_ms": 1000,
            "producer_id": 7, "producer_epoch": 3, "base_sequence": 5,
        },
        id="cleaned",
    ),
    pytest.param(
        EMPTY,
        [],
        {
            "base_offset": 100, "last_offset": 104, "leader_epoch": 4,
            "producer_id": 7, "producer_epoch": 3, "base_sequence": 5,
        },
        id="empty",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("batch", "records", "fields"), GOLDEN)
def test_a_batch_written_by_hand_is_read_and_built(
    batch: bytes, records: list[Record], fields: dict[str, int]
) -> None:
    assert slow_crc32c(batch[21:]) == crc_of(batch) == read_header(batch).crc
    validate_stored(batch)
    assert decode_records(batch) == records
    assert build_batch(records, **fields) == batch  # type: ignore[arg-type]


def test_another_implementation_reads_what_we_build() -> None:
    records = [
        Record(7, NOW_MS, b"k", b"v", (("h", b"1"), ("h", None))),
        Record(9, NOW_MS + 5000, None, None),
    ]
    batch = build_batch(
        records, base_offset=5, producer_id=3, producer_epoch=1, base_sequence=8, leader_epoch=2
    )
    theirs, size = read_batch(batch, 0)
    assert size == len(batch)
    assert (theirs.base_offset, theirs.last_offset_delta) == (5, 4)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (3, 1, 8)
    assert [
        Record(
            record.offset,
            round(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            tuple(((header.key or b"").decode(), header.value) for header in record.headers),
        )
        for record in theirs.records
    ] == records


def test_with_log_append_time_every_record_has_the_time_of_the_batch() -> None:
    batch = build_batch(
        records(), timestamp_type=TimestampType.LOG_APPEND_TIME, max_timestamp=NOW_MS + 77
    )
    assert [record.timestamp for record in decode_records(batch)] == [NOW_MS + 77] * 3


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.limits is STRICT and "max timestamp" not in case.name],
    ids=lambda case: case.name,
)
def test_what_is_refused_on_the_way_in_is_refused_by_every_later_reader(case: BadBatch) -> None:
    if case.expected is None:
        assert decode_records(case.build())
        return
    with pytest.raises(RecordsError) as caught:
        decode_records(case.build())
    assert caught.value.code is case.expected


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        pytest.param(b"", "header of 61 bytes", id="nothing"),
        pytest.param(good()[:-1], "not exactly one batch", id="cut off"),
        pytest.param(good() + b"\x00", "not exactly one batch", id="a byte more"),
        pytest.param(changed(magic=1), "not exactly one batch", id="magic 1"),
        pytest.param(changed(attributes=6), "No codec has the number 6", id="codec 6"),
        pytest.param(changed(count=-1), "-1 records", id="count -1"),
        pytest.param(changed(count=0), "bytes are left after 0 records", id="count 0"),
        pytest.param(
            changed(enclosed(framed(b"\x00\x02\x00\x01\x01\x00")), base_timestamp=2**63 - 1),
            "more than 64 bits",
            id="timestamp overflow",
        ),
        pytest.param(
            enclosed(framed(body(key=b"")[:3]) + bytes(20)), "ends at byte 4", id="no key at all"
        ),
        pytest.param(
            enclosed(framed(body(value=varint(5) + b"v"))), "claims 5 bytes", id="value too long"
        ),
    ],
)
def test_the_sentence_says_what_is_wrong(batch: bytes, sentence: str) -> None:
    with pytest.raises(RecordsError, match=sentence):
        decode_records(batch)


def test_a_reader_may_stop_before_what_is_broken() -> None:
    batch = enclosed(framed(body()) + b"\xff" * 12, count=2)
    iterator = iterate_records(batch)
    assert next(iterator).value == b"v"
    with pytest.raises(RecordsError):
        next(iterator)


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_on_unpacked_bytes_is_obeyed(codec: Codec) -> None:
    batch = build_batch([Record(0, NOW_MS, None, bytes(100_000))], codec=codec)
    assert len(decode_records(batch, max_bytes=100_020)) == 1
    with pytest.raises(RecordsError):
        decode_records(batch, max_bytes=100_000)


def test_an_empty_batch_may_still_name_a_codec() -> None:
    assert decode_records(changed(EMPTY, attributes=4)) == []


@pytest.mark.parametrize(
    ("records", "offsets"),
    [
        pytest.param([], (0, None), id="empty without last offset"),
        pytest.param([Record(4, 0, None, None)], (5, None), id="before the base offset"),
        pytest.param([Record(4, 0, None, None)], (0, 3), id="behind the last offset"),
        pytest.param([Record(1, 0, None, None)] * 2, (0, 5), id="the same offset twice"),
        pytest.param([Record(2**31, 0, None, None)], (0, None), id="delta of 32 bits"),
    ],
)
def test_building_from_contradictions_is_a_bug(
    records: list[Record], offsets: tuple[int, int | None]
) -> None:
    with pytest.raises(InvariantError):
        build_batch(records, base_offset=offsets[0], last_offset=offsets[1])
