"""Who is let in: every bad batch gets its code, and every good one its header."""

from __future__ import annotations

import pytest

from ottla.proto.errors import CorruptionError, ErrorCode, RecordsError, RequestError
from ottla.proto.ids import NO_TIMESTAMP
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.header import LENGTH_END, crc_of, read_header, stamp
from ottla.proto.records.record import Record
from ottla.proto.records.validate import BatchLimits, validate_produced, validate_stored
from tests.unit.proto.records.bad_batches import CASES, NOW_MS, BadBatch, changed, good, records


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_bad_batch_gets_its_answer(case: BadBatch) -> None:
    batch = case.build()
    if case.expected is None:
        assert validate_produced(batch, case.limits, now_ms=NOW_MS) == read_header(batch)
        return
    with pytest.raises(RequestError) as caught:
        validate_produced(memoryview(batch), case.limits, now_ms=NOW_MS)
    assert caught.value.code is case.expected
    assert caught.value.sentence != case.expected.sentence, "the sentence is about this batch"
    assert caught.value.sentence.endswith(".")


def test_names_of_the_cases_are_unique() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_null_records_are_refused_like_no_records() -> None:
    with pytest.raises(RequestError) as caught:
        validate_produced(None, BatchLimits(), now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("validate_records", [False, True])
def test_a_good_batch_passes_and_its_header_is_returned(
    codec: Codec, validate_records: bool
) -> None:
    batch = build_batch(records(), codec=codec, producer_id=7, producer_epoch=0, base_sequence=41)
    limits = BatchLimits(validate_records=validate_records, compacted=validate_records)
    header = validate_produced(batch, limits, now_ms=NOW_MS)
    assert header.size == len(batch)
    assert header.crc == crc_of(batch)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (7, 41, 43)


@pytest.mark.parametrize(
    ("distance_ms", "accepted"),
    [(-1001, False), (-1000, True), (0, True), (500, True), (501, False)],
)
@pytest.mark.parametrize("validate_records", [False, True])
def test_the_time_limits_are_inclusive(
    distance_ms: int, accepted: bool, validate_records: bool
) -> None:
    limits = BatchLimits(
        timestamp_before_max_ms=1000,
        timestamp_after_max_ms=500,
        validate_records=validate_records,
    )
    batch = build_batch(records(timestamp=NOW_MS + distance_ms))
    if accepted:
        validate_produced(batch, limits, now_ms=NOW_MS)
    else:
        with pytest.raises(RequestError) as caught:
            validate_produced(batch, limits, now_ms=NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


DISTANCES_MS = (-1001, -1000, 0, 500, 501)


@pytest.mark.parametrize("last_ms", [NO_TIMESTAMP, *(NOW_MS + far for far in DISTANCES_MS)])
@pytest.mark.parametrize("first_ms", [NO_TIMESTAMP, *(NOW_MS + far for far in DISTANCES_MS)])
def test_both_times_of_a_header_are_held_against_both_limits(first_ms: int, last_ms: int) -> None:
    limits = BatchLimits(timestamp_before_max_ms=1000, timestamp_after_max_ms=500)
    batch = changed(base_timestamp=first_ms, max_timestamp=last_ms)
    allowed = {NO_TIMESTAMP, NOW_MS - 1000, NOW_MS, NOW_MS + 500}
    if {first_ms, last_ms} <= allowed:
        validate_produced(batch, limits, now_ms=NOW_MS)
    else:
        with pytest.raises(RequestError) as caught:
            validate_produced(batch, limits, now_ms=NOW_MS)
        assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_a_time_in_the_middle_of_a_batch_is_looked_at_when_records_are() -> None:
    times = (NOW_MS, NOW_MS - 5000, NOW_MS)
    batch = build_batch([Record(i, time, b"k", b"v") for i, time in enumerate(times)])
    closed = BatchLimits(timestamp_before_max_ms=1000)
    opened = BatchLimits(timestamp_before_max_ms=1000, compacted=True)
    validate_produced(batch, closed, now_ms=NOW_MS)
    with pytest.raises(RequestError) as caught:
        validate_produced(batch, opened, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_size_is_asked_before_the_checksum_as_kafka_does() -> None:
    batch = bytearray(good())
    batch[-1] ^= 1
    with pytest.raises(RequestError) as caught:
        validate_produced(batch, BatchLimits(max_message_bytes=80), now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_is_wrong_inside_is_an_error_of_its_own_kind() -> None:
    batch = build_batch([Record(0, NOW_MS, None, b"v")])
    with pytest.raises(RecordsError, match="Record 0 has no key"):
        validate_produced(batch, BatchLimits(compacted=True), now_ms=NOW_MS)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(good(), id="produced"),
        pytest.param(build_batch([], base_offset=40, last_offset=49), id="empty"),
        pytest.param(
            build_batch([Record(44, NOW_MS, b"k", b"v")], base_offset=40, last_offset=49),
            id="sparse",
        ),
        pytest.param(build_batch(records(1), control=True, transactional=True), id="control"),
        pytest.param(build_batch(records(), delete_horizon_ms=NOW_MS), id="cleaned"),
    ],
)
def test_whatever_a_log_may_hold_is_accepted_from_a_log(batch: bytes) -> None:
    assert validate_stored(memoryview(batch)) == read_header(batch)


def test_a_stamped_batch_is_still_sealed() -> None:
    batch = good()
    header = read_header(batch)
    stamped = stamp(123_456, header.batch_length, 9) + batch[16:]  # type: ignore[arg-type]
    stored = validate_stored(stamped)
    assert (stored.base_offset, stored.leader_epoch) == (123_456, 9)
    assert (stored.last_offset, stored.next_offset) == (123_458, 123_459)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(good()[:60], id="less than a header"),
        pytest.param(good()[:-1], id="cut off"),
        pytest.param(good() + b"\x00", id="a byte too many"),
        pytest.param(changed(magic=1), id="magic 1"),
        pytest.param(changed(magic=3), id="magic 3"),
        pytest.param(changed(count=-1), id="count -1"),
        pytest.param(changed(count=4), id="more records than offsets"),
        pytest.param(changed(last_offset_delta=-1, count=0), id="last offset delta -1"),
        pytest.param(changed(base_offset=-1), id="base offset -1"),
        pytest.param(changed(base_offset=2**63 - 2), id="last offset beyond 64 bits"),
        pytest.param(bytes(LENGTH_END) + bytes(61), id="zeros"),
    ],
)
def test_what_no_log_can_hold_is_corruption(batch: bytes) -> None:
    with pytest.raises(CorruptionError):
        validate_stored(batch)
