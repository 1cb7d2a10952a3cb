"""Any records in any packing come back; any damage is found, or harms nobody."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto.errors import CorruptionError, RecordsError, RequestError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.convert import recompress, with_log_append_time
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import STAMP_END, TimestampType, read_header, seal, stamp
from ottla.proto.records.record import Record
from ottla.proto.records.validate import BatchLimits, validate_produced, validate_stored
from tests.unit.proto.records.bad_batches import NOW_MS

contents = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)
times = st.integers(0, 2**62) | st.integers(NOW_MS - 100, NOW_MS + 100) | st.just(-1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """Draw what a log may hold: dense or sparse, full or empty, of any kind."""
    base_offset = draw(st.integers(0, 2**62))
    gaps = draw(st.lists(st.just(0) | st.integers(0, 10_000), max_size=12))
    offset = base_offset
    records = []
    for gap in gaps:
        offset += gap
        records.append(Record(offset, draw(times), draw(contents), draw(contents), draw(headers)))
        offset += 1
    batch = build_batch(
        records,
        base_offset=base_offset,
        last_offset=offset + draw(st.integers(0, 5)) if records else offset + 1,
        codec=draw(st.sampled_from(Codec)),
        producer_id=draw(st.integers(-1, 2**63 - 1)),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.integers(-1, 2**31 - 1)),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        transactional=draw(st.booleans()),
        control=draw(st.booleans()),
        delete_horizon_ms=draw(st.none() | st.integers(0, 2**62)),
    )
    return batch, records


def produced(codec: Codec = Codec.NONE) -> bytes:
    return build_batch(
        [Record(i, NOW_MS + i, b"k%d" % i, b"v" * 20, (("h", b"x"),)) for i in range(5)],
        codec=codec,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )


@given(batches())
def test_records_come_back_as_they_were(drawn: tuple[bytes, list[Record]]) -> None:
    batch, records = drawn
    header = validate_stored(batch)
    assert decode_records(memoryview(batch)) == records
    assert header.count == len(records)
    assert header.max_timestamp == max((record.timestamp for record in records), default=-1)


@given(batches(), st.sampled_from(Codec))
def test_recompression_changes_the_packing_and_nothing_else(
    drawn: tuple[bytes, list[Record]], codec: Codec
) -> None:
    batch, records = drawn
    changed = recompress(batch, codec)
    assert decode_records(changed) == records
    before, after = read_header(batch), validate_stored(changed)
    assert after.codec_bits == (codec if records else Codec.NONE)
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert before._replace(**same) == after._replace(**same)
    assert before.attributes & ~0x07 == after.attributes & ~0x07


@given(batches(), st.integers(0, 2**62))
def test_log_append_time_changes_the_time_and_nothing_else(
    drawn: tuple[bytes, list[Record]], now_ms: int
) -> None:
    batch, records = drawn
    original = bytes(batch)
    changed = with_log_append_time(memoryview(batch), now_ms)
    assert batch == original, "the batch given is left alone"
    header = validate_stored(changed)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert decode_records(changed) == [record._replace(timestamp=now_ms) for record in records]
    assert changed[61:] == batch[61:]


@given(batches(), st.integers(0, 2**31), st.integers(0, 2**31 - 1))
def test_stamping_moves_the_offsets_and_keeps_the_seal(
    drawn: tuple[bytes, list[Record]], base_offset: int, epoch: int
) -> None:
    batch, records = drawn
    header = read_header(batch)
    stamped = (
        stamp(Offset(base_offset), header.batch_length, LeaderEpoch(epoch)) + batch[STAMP_END:]
    )
    assert validate_stored(stamped).leader_epoch == epoch
    shift = base_offset - header.base_offset
    assert decode_records(stamped) == [
        record._replace(offset=record.offset + shift) for record in records
    ]


@pytest.mark.parametrize("codec", Codec)
def test_every_single_flipped_bit_is_found_or_lies_outside_the_seal(codec: Codec) -> None:
    good = produced(codec)
    survivors = set()
    for position in range(len(good)):
        for bit in range(8):
            damaged = bytearray(good)
            damaged[position] ^= 1 << bit
            with suppress(RequestError):
                validate_produced(damaged, BatchLimits(), now_ms=NOW_MS)
                survivors.add(position)
            with suppress(CorruptionError):
                validate_stored(damaged)
                assert position < 8 or 12 <= position < 16
    # Of a producer's batch only the leader epoch may change: the leader writes its own.
    assert survivors == {12, 13, 14, 15}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_every_truncation_is_found(codec: Codec) -> None:
    good = produced(codec)
    for size in range(len(good)):
        with pytest.raises(RequestError):
            validate_produced(good[:size], BatchLimits(), now_ms=NOW_MS)
        with pytest.raises(CorruptionError):
            validate_stored(good[:size])


@st.composite
def mutations(draw: st.DrawFn) -> bytearray:
    """Draw a batch with some bytes changed, cut out, doubled, or taken from another batch."""
    batch = bytearray(produced(draw(st.sampled_from(Codec))))
    other = produced(draw(st.sampled_from(Codec)))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(batch) - 1))
        stop = min(len(batch), start + draw(st.integers(0, 8)))
        match draw(st.integers(0, 4)):
            case 0:
                batch[start] ^= 1 << draw(st.integers(0, 7))
            case 1:
                batch[start] = draw(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
            case 2:
                del batch[start : min(stop, start + len(batch) - 1)]
            case 3:
                batch[start:start] = batch[start:stop]
            case _:
                batch[start:stop] = other[start:stop]
        if not batch:
            batch += b"\x00"
    return batch


@settings(max_examples=500, deadline=None)
@given(mutations())
def test_a_mutated_batch_is_refused_or_is_the_same(batch: bytearray) -> None:
    known = {produced(codec)[STAMP_END:] for codec in Codec}
    with suppress(RequestError):
        validate_produced(batch, BatchLimits(), now_ms=NOW_MS)
        assert bytes(batch[STAMP_END:]) in known
    with suppress(CorruptionError):
        validate_stored(batch)
        assert bytes(batch[STAMP_END:]) in known


@settings(max_examples=1000, deadline=None)
@given(mutations())
def test_a_mutated_batch_sealed_again_is_read_or_refused_with_a_sentence(batch: bytearray) -> None:
    if len(batch) < 61:
        batch += bytes(61 - len(batch))
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[16] = 2
    seal(batch)
    for limits in (BatchLimits(), BatchLimits(validate_records=True, compacted=True)):
        with suppress(RequestError):
            validate_produced(batch, limits, now_ms=NOW_MS)
    for codec in (Codec.NONE, Codec.LZ4):
        with suppress(RecordsError):
            assert read_header(recompress(batch, codec)).size >= 61
    with suppress(RecordsError):
        records = decode_records(batch, max_bytes=1 << 20)
        assert len(records) == read_header(batch).count
        # What was read can be built again: nothing strange gets through to compaction.
        header = read_header(batch)
        if records and header.base_offset >= 0:
            assert (
                decode_records(
                    build_batch(
                        records, base_offset=header.base_offset, last_offset=header.last_offset
                    )
                )
                == records
            )
