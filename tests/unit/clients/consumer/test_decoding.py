"""The quick decoder reads what the careful one reads, and refuses what that one refuses."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.clients.consumer.columns import RUN_MIN, read_run
from ottla.clients.consumer.decoding import AbortedFilter, decode_fetched, scan
from ottla.clients.consumer.heads import read_heads
from ottla.proto.errors import CorruptionError, OttlaError, RecordsError
from ottla.proto.ids import INT64_MAX
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import TimestampType, seal
from ottla.proto.records.record import Record
from ottla.proto.records.varint import write_varint

_bytes = st.one_of(st.none(), st.binary(max_size=300))
_headers = st.lists(st.tuples(st.text(max_size=8), _bytes), max_size=3).map(tuple)


@st.composite
def _records(draw: st.DrawFn, base: int = 0) -> list[Record]:
    deltas = draw(st.lists(st.integers(1, 200), min_size=1, max_size=20))
    offset, found = base - 1, []
    for delta in deltas:
        offset += delta
        time_ms = draw(st.integers(0, 1 << 45))
        found.append(Record(offset, time_ms, draw(_bytes), draw(_bytes), draw(_headers)))
    return found


@st.composite
def _rows(draw: st.DrawFn) -> list[Record]:
    """Records mostly of one shape, or of sizes that differ, with others between now and then."""
    key = draw(st.one_of(st.none(), st.binary(max_size=70)))
    value = draw(st.one_of(st.none(), st.binary(max_size=70), st.just(b"v" * 8200)))
    step_ms = draw(st.sampled_from([0, 1, 7, -3, 200, 9000]))
    count = draw(st.integers(RUN_MIN, 200))
    odd = draw(st.sets(st.integers(0, count - 1), max_size=3))
    gaps = draw(st.sets(st.integers(0, count - 1), max_size=1))
    sizes = draw(st.one_of(st.none(), st.randoms(use_true_random=False)))
    offset, found = -1, []
    for number in range(count):
        offset += 2 if number in gaps else 1
        time_ms = (1 << 41) + number * step_ms
        if sizes is not None and value is not None:
            # Most lengths of one byte or two, and some of more.
            value = b"v" * sizes.choice([sizes.randrange(150), sizes.randrange(150), 9000])
            key = None if key is None else b"k" * sizes.randrange(70)
        row = Record(offset, time_ms, key, value, ())
        if number in odd:
            row = Record(offset, time_ms, draw(_bytes), draw(_bytes), draw(_headers))
        found.append(row)
    return found


def _decoded(data: bytes, position: int = 0) -> list[Record]:
    got = decode_fetched(memoryview(data), "t", 3, position).records
    assert all((one.topic, one.partition) == ("t", 3) for one in got)
    return [Record(one.offset, one.timestamp_ms, one.key, one.value, one.headers) for one in got]


@settings(max_examples=50)
@given(_records(), st.sampled_from(Codec), st.booleans())
def test_it_reads_what_the_careful_decoder_reads(
    records: list[Record], codec: Codec, append_time: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    batch = build_batch(
        records, codec=codec, timestamp_type=kind, max_timestamp=77 if append_time else None
    )
    assert _decoded(batch) == decode_records(batch)


@settings(max_examples=120)
@given(_records(), st.data())
def test_it_refuses_what_the_careful_decoder_refuses(
    records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(61, len(batch) - 1))
        batch[place] = data.draw(st.integers(0, 255))
    seal(batch)
    try:
        expected = decode_records(bytes(batch))
    except RecordsError:
        with pytest.raises(RecordsError):
            _decoded(bytes(batch))
    else:
        assert _decoded(bytes(batch)) == expected


@settings(max_examples=80)
@given(_rows(), st.booleans())
def test_runs_of_one_shape_are_read_as_the_careful_decoder_reads_them(
    records: list[Record], append_time: bool
) -> None:
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    batch = build_batch(records, timestamp_type=kind, max_timestamp=77 if append_time else None)
    assert _decoded(batch) == decode_records(batch)


@settings(max_examples=150)
@given(_rows(), st.data())
def test_runs_are_refused_as_the_careful_decoder_refuses_them(
    records: list[Record], data: st.DataObject
) -> None:
    batch = bytearray(build_batch(records))
    for _ in range(data.draw(st.integers(1, 2))):
        batch[data.draw(st.integers(61, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    seal(batch)
    try:
        expected = decode_records(bytes(batch))
    except RecordsError:
        with pytest.raises(RecordsError):
            _decoded(bytes(batch))
    else:
        assert _decoded(bytes(batch)) == expected


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8193, 33_000])
def test_a_long_run_is_read_across_the_widths_of_its_deltas(count: int) -> None:
    records = [Record(number, 5, b"k", b"%06d" % number, ()) for number in range(count)]
    assert _decoded(build_batch(records)) == records


def test_a_batch_of_one_shape_is_read_by_columns() -> None:
    payload = build_batch([Record(number, 5, None, b"v" * 90, ()) for number in range(100)])[61:]
    run = read_run(payload, 0, 0, 100)
    assert run is not None
    assert (run.height, list(run.time_deltas)) == (64, [0] * 64)
    rest = read_run(payload, run.end, 64, 36)
    assert rest is not None
    assert (rest.height, rest.end) == (36, len(payload))


def test_a_batch_of_sizes_that_differ_is_read_with_one_step_for_its_numbers() -> None:
    records = [
        Record(number, 5 + number, b"k" * (number % 60), b"v" * (number * 7 % 250), ())
        for number in range(300)
    ]
    payload = build_batch(records)[61:]
    at, height = 0, 0
    # By the widths of deltas and of times: both take two bytes from 64 on.
    while (run := read_heads(payload, at, height, len(records) - height)) is not None:
        part = records[height : height + run.height]
        assert list(run.time_deltas) == [one.timestamp - 5 for one in part]
        assert list(run.keys) == [one.key for one in part]
        assert list(run.values) == [one.value for one in part]
        at, height = run.end, height + run.height
        if height == len(records):
            break
    assert (height, at) == (300, len(payload))


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (b"k", None, ()),
        (b"k" * 64, b"v", ()),
        (None, b"v" * 8192, ()),
        (None, b"v", (("h", b""),)),
    ],
)
def test_what_is_not_plain_ends_the_run_and_is_read_all_the_same(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes], ...]
) -> None:
    records = [Record(number, 5, None, b"v" * (number % 7), ()) for number in range(40)]
    records[20] = Record(20, 5, key, value, headers)
    batch = build_batch(records)
    run = read_heads(batch[61:], 0, 0, 40)
    assert run is not None
    assert run.height == 20
    assert read_heads(batch[61:], run.end, 20, 20) is None
    assert _decoded(batch) == records


def _raw(payload: bytes, *, base_ms: int = 0, count: int = 1, append_time: bool = False) -> bytes:
    """Return a sealed batch around these bytes, whatever they are."""
    kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
    head = build_batch(
        [Record(one, 5, None, None) for one in range(count)],
        timestamp_type=kind,
        max_timestamp=77 if append_time else None,
    )[:61]
    batch = bytearray(head + payload)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">q", batch, 27, base_ms)
    seal(batch)
    return bytes(batch)


def _timed(delta_ms: int) -> bytes:
    """Return the bytes of a record with this timestamp delta."""
    body, record = bytearray(1), bytearray()
    write_varint(body, delta_ms)
    body += bytes.fromhex("00010100")
    write_varint(record, len(body))
    return bytes(record + body)


@settings(max_examples=200)
@given(st.binary(max_size=20), st.integers(-(1 << 63), INT64_MAX), st.booleans())
@example(bytes.fromhex("100003000202050209"), 0, False)
@example(bytes.fromhex("0e000000030100"), 0, False)
@example(bytes.fromhex("0e000001030000"), 0, False)
@example(_timed(INT64_MAX), 1 << 61, False)
@example(_timed(INT64_MAX), 1 << 61, True)
@example(_timed(INT64_MAX), 0, False)
@example(_timed(-64), -(1 << 63) + 1, False)
@example(_timed(-64), -(1 << 63) + 1, True)
@example(_timed(-1), -(1 << 63) + 1, False)
@example(_timed(63), INT64_MAX - 62, False)
@example(_timed(9000), INT64_MAX - 9001, True)
def test_any_bytes_in_a_sealed_batch_are_read_or_refused_as_by_the_careful_decoder(
    payload: bytes, base_ms: int, append_time: bool
) -> None:
    batch = _raw(payload, base_ms=base_ms, append_time=append_time)
    try:
        expected = decode_records(batch)
    except RecordsError:
        with pytest.raises(RecordsError):
            _decoded(batch)
    else:
        assert _decoded(batch) == expected


def test_more_records_in_a_run_than_the_batch_has_offsets_are_refused() -> None:
    batch = bytearray(build_batch([Record(number, 5, None, b"v", ()) for number in range(20)]))
    struct.pack_into(">i", batch, 23, 18)
    seal(batch)
    with pytest.raises(RecordsError, match="offset delta"):
        _decoded(bytes(batch))


@given(st.binary(max_size=400))
def test_any_bytes_are_records_or_an_error_of_ours(data: bytes) -> None:
    with suppress(OttlaError):
        decode_fetched(memoryview(data), "t", 0, 0)


def test_records_below_the_position_are_passed_over() -> None:
    batch = build_batch([Record(offset, 1, None, b"v") for offset in range(10)])
    assert [one.offset for one in _decoded(batch, 7)] == [7, 8, 9]


def test_a_batch_that_is_cut_off_at_the_end_comes_next_time() -> None:
    first = build_batch([Record(0, 1, None, b"v")])
    second = build_batch([Record(1, 1, None, b"v")], base_offset=1)
    got = decode_fetched(memoryview(first + second[:-1]), "t", 0, 0)
    assert [one.offset for one in got.records] == [0]
    assert got.next_offset == 1
    assert scan(memoryview(first + second[:-1]), 0) == (1, -1)


def test_a_batch_that_never_fits_says_what_to_raise() -> None:
    batch = build_batch([Record(0, 1, None, b"v" * 500)])
    with pytest.raises(CorruptionError, match=r"max\.partition\.fetch\.bytes"):
        decode_fetched(memoryview(batch)[:200], "t", 0, 0)


def test_a_wrong_checksum_is_told_with_topic_partition_and_offset() -> None:
    batch = bytearray(build_batch([Record(5, 1, None, b"v")], base_offset=5))
    batch[-2] ^= 1
    with pytest.raises(CorruptionError, match="orders-2 at offset 5"):
        decode_fetched(memoryview(batch), "orders", 2, 5)
    assert decode_fetched(memoryview(batch), "orders", 2, 5, check_crcs=False).next_offset == 6


def test_control_batches_move_the_position_and_give_nothing() -> None:
    mark = struct.pack(">hh", 0, 1)
    control = build_batch(
        [Record(0, 1, mark, b"\0\0\0\0\0\0")], control=True, transactional=True, producer_id=9
    )
    got = decode_fetched(memoryview(control), "t", 0, 0)
    assert got.records == []
    assert got.next_offset == 1


def test_records_of_an_aborted_transaction_are_left_out() -> None:
    def batch(offset: int, producer: int, *, control: bool = False) -> bytes:
        key = struct.pack(">hh", 0, 0) if control else None
        record = Record(offset, 1, key, b"%d" % producer)
        return build_batch(
            [record], base_offset=offset, transactional=True, producer_id=producer, control=control
        )

    data = batch(0, 7) + batch(1, 8) + batch(2, 7, control=True) + batch(3, 7)
    got = decode_fetched(memoryview(data), "t", 0, 0, aborted=AbortedFilter([(7, 0)]))
    assert [one.offset for one in got.records] == [1, 3]
    assert got.next_offset == 4


def test_a_gap_at_the_end_of_a_batch_belongs_to_it() -> None:
    batch = build_batch([Record(0, 1, None, b"v")], last_offset=9)
    assert decode_fetched(memoryview(batch), "t", 0, 0).next_offset == 10
