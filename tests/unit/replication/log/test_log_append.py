"""What an append does to a batch, and where it goes (L4, rule 45)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import CorruptionError, ErrorCode, InvariantError, RequestError
from ottla.proto.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from ottla.proto.records.compression import Codec
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import TimestampType, crc_of, read_header, seal
from ottla.replication.log.log import Log
from ottla.replication.settings import LogSettings
from tests.builders import (
    EPOCH,
    NOW_MS,
    OneLog,
    append,
    batches_of,
    headers_of,
    produced,
    values_of,
)
from tests.sim.material import stamped

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
LARGE = LogSettings()


def refused(log: Log, raw: bytes) -> ErrorCode:
    """Return why the log refuses a batch, having checked that nothing changed."""
    before = (log.end_offset, log.size_bytes, len(log.segments))
    with pytest.raises(RequestError) as error:
        log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS)
    assert (log.end_offset, log.size_bytes, len(log.segments)) == before
    return error.value.code


# -- as leader ---------------------------------------------------------------------------------


def test_batches_follow_one_another() -> None:
    log = OneLog().create()
    assert [append(log, b"a", b"b"), append(log, b"c"), append(log, b"d", b"e")] == [0, 2, 3]
    assert log.end_offset == 5


def test_only_offset_and_epoch_are_stamped_into_what_the_producer_sent() -> None:
    log = OneLog().create()
    log.assign_epoch(LeaderEpoch(6))
    append(log, b"first")
    raw = produced(b"second", codec=Codec.LZ4)
    log.append_as_leader(raw, epoch=LeaderEpoch(6), now_ms=NOW_MS)
    stored = batches_of(log)[1]
    assert stored[0:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (6).to_bytes(4, "big")
    assert stored[8:12] == raw[8:12]
    assert stored[16:] == raw[16:]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_may_come_in_any_buffer(kind: type) -> None:
    log = OneLog().create()
    log.append_as_leader(kind(produced(b"x")), epoch=EPOCH, now_ms=NOW_MS)
    assert values_of(log) == [b"x"]


def test_l4_rule_21_an_epoch_that_was_not_assigned_is_a_bug() -> None:
    log = OneLog().create()
    with pytest.raises(InvariantError):
        log.append_as_leader(produced(b"x"), epoch=LeaderEpoch(1), now_ms=NOW_MS)


def test_rule_21_an_assigned_epoch_survives_although_nothing_was_written_under_it() -> None:
    one = OneLog()
    log = one.create()
    append(log, b"x")
    log.assign_epoch(LeaderEpoch(9))
    log.close()
    assert one.open()[0].epochs.entries == ((0, 0), (9, 1))


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    assert refused(OneLog().create(), produced(b"x" * 700)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_batch_larger_than_max_message_bytes_is_refused() -> None:
    log = OneLog(LogSettings(max_message_bytes=200)).create()
    assert refused(log, produced(b"x" * 300)) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_with_a_wrong_checksum_is_refused() -> None:
    raw = bytearray(produced(b"x"))
    raw[-1] ^= 1
    assert refused(OneLog().create(), bytes(raw)) is ErrorCode.CORRUPT_MESSAGE


# -- LogAppendTime -----------------------------------------------------------------------------


def test_log_append_time_gives_every_record_the_leaders_time() -> None:
    log = OneLog(LogSettings(timestamp_type=TimestampType.LOG_APPEND_TIME)).create()
    raw = produced(b"a", b"b", timestamps=[5, 9], codec=Codec.GZIP)
    placed = log.append_as_leader(raw, epoch=EPOCH, now_ms=NOW_MS + 3)
    assert placed.append_time_ms == NOW_MS + 3
    (stored,) = batches_of(log)
    assert [record.timestamp for record in decode_records(stored)] == [NOW_MS + 3] * 2
    header = read_header(stored)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert header.crc == crc_of(stored)


def test_create_time_answers_with_no_time() -> None:
    log = OneLog().create()
    placed = log.append_as_leader(produced(b"a"), epoch=EPOCH, now_ms=NOW_MS)
    assert placed.append_time_ms == NO_TIMESTAMP


def test_a_retry_under_log_append_time_gets_the_time_of_the_first_try() -> None:
    log = OneLog(LogSettings(timestamp_type=TimestampType.LOG_APPEND_TIME)).create()
    raw = produced(b"a", producer_id=4)
    first = log.append_as_leader(raw, epoch=EPOCH, now_ms=NOW_MS)
    again = log.append_as_leader(raw, epoch=EPOCH, now_ms=NOW_MS + 500)
    assert again.is_duplicate
    assert again.append_time_ms == first.append_time_ms == NOW_MS


# -- compression.type --------------------------------------------------------------------------


@pytest.mark.parametrize("sent", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("kept", CODECS)
def test_compression_type_packs_every_batch_with_the_topics_codec(sent: Codec, kept: str) -> None:
    log = OneLog(LogSettings(compression_type=kept)).create()
    told = [b"a" * 200, b"b" * 200]
    raw = produced(*told, codec=sent)
    log.append_as_leader(raw, epoch=EPOCH, now_ms=NOW_MS)
    (stored,) = batches_of(log)
    header = read_header(stored)
    assert header.codec_bits == CODECS[kept]
    assert header.crc == crc_of(stored)
    assert values_of(log) == told
    if sent == CODECS[kept]:
        assert stored[16:] == raw[16:]


@pytest.mark.parametrize("sent", CODECS.values(), ids=CODECS)
def test_compression_type_producer_keeps_every_batch_as_it_came(sent: Codec) -> None:
    log = OneLog(LARGE).create()
    raw = produced(b"a" * 300, codec=sent)
    log.append_as_leader(raw, epoch=EPOCH, now_ms=NOW_MS)
    assert batches_of(log)[0][16:] == raw[16:]


def test_the_size_limit_is_asked_again_after_repacking() -> None:
    log = OneLog(LogSettings(compression_type="uncompressed", max_message_bytes=1000)).create()
    raw = produced(b"a" * 5000, codec=Codec.ZSTD)
    assert len(raw) < 1000
    assert refused(log, raw) is ErrorCode.MESSAGE_TOO_LARGE


def test_records_that_cannot_be_unpacked_cannot_be_repacked() -> None:
    log = OneLog(LogSettings(compression_type="zstd")).create()
    raw = bytearray(produced(b"a" * 300, codec=Codec.GZIP))
    raw[61:] = b"\xff" * (len(raw) - 61)
    seal(raw)
    assert refused(log, bytes(raw)) in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)


def test_log_append_time_and_repacking_go_together() -> None:
    log = OneLog(
        LogSettings(compression_type="lz4", timestamp_type=TimestampType.LOG_APPEND_TIME)
    ).create()
    append(log, b"a" * 100, timestamps=[1])
    (stored,) = batches_of(log)
    header = read_header(stored)
    assert (header.codec_bits, header.max_timestamp) == (Codec.LZ4, NOW_MS)
    assert header.crc == crc_of(stored)


def test_changed_settings_hold_from_the_next_append_on() -> None:
    log = OneLog(LARGE).create()
    append(log, b"a" * 300)
    log.adopt_settings(LogSettings(compression_type="gzip", segment_bytes=400))
    append(log, b"a" * 300)
    assert [header.codec_bits for header in headers_of(log)] == [Codec.NONE, Codec.GZIP]
    assert len(log.segments) == 2


# -- as follower -------------------------------------------------------------------------------


def batch(offset: int, *told: bytes, epoch: int = 0) -> bytes:
    return stamped(produced(*(told or (b"x",))), offset, epoch)


def test_a_follower_has_its_leaders_bytes() -> None:
    leader, follower = OneLog().create(), OneLog().create()
    for number in range(12):
        append(leader, b"%d" % number * 30, codec=Codec.LZ4)
    whole = b"".join(batches_of(leader))
    assert follower.append_as_follower(whole, now_ms=NOW_MS) == 12
    assert b"".join(batches_of(follower)) == whole
    assert follower.end_offset == leader.end_offset


def test_a_follower_learns_its_leaders_epochs_from_batches() -> None:
    log = OneLog().create()
    log.append_as_follower(batch(0) + batch(1, epoch=4) + batch(2, epoch=4), now_ms=NOW_MS)
    assert log.epochs.entries == ((0, 0), (4, 1))


def test_a_batch_that_is_cut_off_at_the_end_is_left_out() -> None:
    log = OneLog().create()
    for missing in (1, 40, 60):
        end = log.end_offset
        fetched = batch(end) + batch(end + 1)
        assert log.append_as_follower(fetched[:-missing], now_ms=NOW_MS) == 1
    assert log.end_offset == 3


def _bad_checksum() -> bytes:
    raw = bytearray(batch(1))
    raw[-1] ^= 1
    return bytes(raw)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(_bad_checksum(), id="bad checksum"),
        pytest.param(batch(2), id="gap"),
        pytest.param(batch(0), id="goes back"),
        pytest.param(batch(1, epoch=2), id="lower epoch"),
        pytest.param(batch(1)[:8] + bytes(4) + batch(1)[12:], id="length of zero"),
    ],
)
def test_o2_rule_45_with_one_bad_batch_nothing_is_appended(bad: bytes) -> None:
    log = OneLog().create()
    before = log.size_bytes
    with pytest.raises(CorruptionError):
        log.append_as_follower(batch(0, epoch=3) + bad, now_ms=NOW_MS)
    assert (log.end_offset, log.size_bytes, log.offline) == (0, before, None)
    assert log.epochs.latest == EPOCH


def test_a_gap_that_compaction_left_is_allowed_when_the_caller_says_so() -> None:
    log = OneLog().create()
    log.append_as_follower(batch(3) + batch(9), now_ms=NOW_MS, gaps_allowed=True)
    assert [header.base_offset for header in headers_of(log)] == [3, 9]
    found = log.read(Offset(5), bytes_max=1)
    assert found is not None
    assert found.first_offset == 9


def test_batches_of_one_fetch_may_lie_in_several_segments() -> None:
    log = OneLog().create()
    append(log, b"x" * 300)
    fetched = b"".join(batch(1 + number, b"y" * 200) for number in range(3))
    log.append_as_follower(fetched, now_ms=NOW_MS)
    assert len(log.segments) > 1
    assert b"".join(batches_of(log)[1:]) == fetched
