"""The first record at or after a time (T1, T2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import StorageError
from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.proto.records.compression import Codec
from ottla.proto.records.header import TimestampType, seal
from ottla.replication.log.log import Log
from ottla.replication.log.lookup import first_at_or_after, latest_timestamp
from ottla.replication.log.surgery import delete_records
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultRule
from tests.builders import EPOCH, NOW_MS, OneLog, append, faulty_files, produced, small_settings

# Eight bytes of time, four of offset.
TIME_ENTRY_SIZE = 12


def timed(*batches: list[int], one: OneLog | None = None, codec: Codec = Codec.NONE) -> Log:
    """Return a log whose records have these times, counted from NOW_MS."""
    log = (one or OneLog(small_settings(index_interval_bytes=0))).create()
    for times in batches:
        append(log, *[b"x"] * len(times), timestamps=[NOW_MS + at for at in times], codec=codec)
    return log


def found(log: Log, at: int, *, before: int | None = None) -> tuple[int, int] | None:
    bound = None if before is None else Offset(before)
    answer = first_at_or_after(log, NOW_MS + at, before=bound)
    return None if answer is None else (answer.timestamp - NOW_MS, answer.offset)


@pytest.mark.parametrize(
    ("at", "answer"),
    [
        (-5, (0, 0)),  # before the first
        (0, (0, 0)),
        (5, (10, 1)),  # inside the first batch
        (10, (10, 1)),
        (15, (20, 2)),
        (20, (20, 2)),
        (21, (30, 3)),
        (30, (30, 3)),
        (31, None),  # after the last
    ],
)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_t1_the_first_record_at_or_after_a_time(
    at: int, answer: tuple[int, int] | None, codec: Codec
) -> None:
    assert found(timed([0, 10, 20], [30], codec=codec), at) == answer


def test_t1_times_out_of_order_inside_a_batch() -> None:
    log = timed([50, 10, 90, 20])
    assert [found(log, at) for at in (5, 20, 51)] == [(50, 0), (50, 0), (90, 2)]


def test_t1_times_out_of_order_across_batches_and_segments() -> None:
    log = timed(*([100 - number, 5] for number in range(20)), [200], [1])
    assert len(log.segments) > 2
    assert found(log, 1) == (100, 0)
    assert found(log, 100) == (100, 0)
    assert found(log, 101) == (200, 40)


def test_t1_of_equal_times_the_lowest_offset_answers() -> None:
    log = timed(*([7, 7] for _ in range(20)), [8])
    assert len(log.segments) > 2
    assert found(log, 7) == (7, 0)
    assert found(log, 8) == (8, 40)


def test_an_empty_log_has_no_times() -> None:
    assert found(timed(), 0) is None
    assert latest_timestamp(timed()) is None


def test_records_without_a_time_are_never_found() -> None:
    log = OneLog().create()
    append(log, b"x", timestamps=[NO_TIMESTAMP])
    assert first_at_or_after(log, 0) is None


def test_log_append_time_answers_with_the_leaders_time() -> None:
    log = OneLog(LogSettings(timestamp_type=TimestampType.LOG_APPEND_TIME)).create()
    append(log, b"a", b"b", timestamps=[1, 2], now_ms=NOW_MS)
    append(log, b"c", timestamps=[1], now_ms=NOW_MS + 9)
    assert found(log, 0) == (0, 0)
    assert found(log, 1) == (9, 2)


def test_nothing_below_the_start_is_found() -> None:
    log = timed([0, 10, 20], [30])
    log.advance_high_watermark(Offset(4))
    delete_records(log, Offset(2), now_ms=NOW_MS)
    assert found(log, 0) == (20, 2)


def test_rule_57_nothing_at_or_above_the_bound_is_found() -> None:
    log = timed([0], [10], [20])
    assert found(log, 5, before=1) is None
    assert found(log, 5, before=2) == (10, 1)


def test_t2_for_a_batch_that_cannot_be_decoded_its_header_answers() -> None:
    log = timed([0])
    raw = bytearray(produced(b"x" * 20, timestamps=[NOW_MS + 10], codec=Codec.GZIP))
    raw[61:] = b"\xff" * (len(raw) - 61)
    seal(raw)
    log.append_as_leader(bytes(raw), epoch=EPOCH, now_ms=NOW_MS)
    assert found(log, 5) == (10, 1)


def test_t2_for_such_a_batch_nothing_below_the_start_answers() -> None:
    log = OneLog().create()
    raw = bytearray(produced(b"a", b"b", codec=Codec.GZIP))
    raw[61:] = b"\xff" * (len(raw) - 61)
    seal(raw)
    log.append_as_leader(bytes(raw), epoch=EPOCH, now_ms=NOW_MS)
    log.advance_high_watermark(Offset(2))
    delete_records(log, Offset(1), now_ms=NOW_MS)
    assert found(log, 0) == (0, 1)


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize(
    ("times", "answer"), [((0, 1, 2, 3, 4, 5), (4, 4)), ((9, 0, 0, 0, 0, 0), (9, 0))]
)
def test_t1_a_time_index_that_lost_entries_never_changes_the_answer(
    times: tuple[int, ...], answer: tuple[int, int], left: int
) -> None:
    one = OneLog(small_settings(index_interval_bytes=0))
    log = timed(*([at] for at in times), one=one)
    log.roll()
    append(log, b"x", timestamps=[NOW_MS - 100])
    log.checkpoint()
    log.close()
    one.files.open(f"/data/t-0/{0:020d}.timeindex").truncate(left * TIME_ENTRY_SIZE)
    log, _ = one.open()
    assert found(log, 4) == answer


def test_the_latest_timestamp_is_the_first_of_the_largest() -> None:
    assert latest_timestamp(timed([1, 30, 2], [30], [7])) == (NOW_MS + 30, 1)


@pytest.mark.parametrize("batches", [([50], [0], [7, 3]), ([50, 0, 7, 3],)])
def test_the_latest_timestamp_is_not_that_of_a_deleted_record(
    batches: tuple[list[int], ...],
) -> None:
    log = timed(*batches)
    log.advance_high_watermark(log.end_offset)
    delete_records(log, Offset(1), now_ms=NOW_MS)
    assert latest_timestamp(log) == (NOW_MS + 7, 2)


def test_when_all_records_are_deleted_there_is_no_latest_timestamp() -> None:
    log = timed([50], [0])
    log.advance_high_watermark(Offset(2))
    delete_records(log, Offset(2), now_ms=NOW_MS)
    assert latest_timestamp(log) is None


def test_rule_48_an_index_that_cannot_be_opened_takes_the_log_offline() -> None:
    files, plan, _ = faulty_files()
    one = OneLog(files=files)
    log = timed(*([at] for at in range(20)), one=one)
    assert len(log.segments) > 2
    log.checkpoint()
    log.close()
    log, _ = one.open()
    plan.rules.append(FaultRule("open", "*.timeindex"))
    with pytest.raises(StorageError):
        latest_timestamp(log)
    assert log.offline is not None


def test_rule_48_a_disk_that_cannot_be_read_takes_the_log_offline() -> None:
    files, plan, _ = faulty_files()
    log = timed([0], [10], one=OneLog(files=files))
    plan.rules.append(FaultRule("read", "*.log"))
    with pytest.raises(StorageError):
        found(log, 5)
    assert log.offline is not None


BATCHES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=25)


@given(
    BATCHES,
    st.integers(-2, 33),
    st.sampled_from([0, 64, 200, 10**6]),
    st.sampled_from([300, 600, 10**6]),
    st.booleans(),
)
def test_t1_the_index_never_changes_the_answer(
    batches: list[list[int]], at: int, interval: int, segment_bytes: int, is_reopened: bool
) -> None:
    one = OneLog(small_settings(index_interval_bytes=interval, segment_bytes=segment_bytes))
    log = timed(*batches, one=one)
    if is_reopened:
        log.checkpoint()
        log.close()
        log, _ = one.open()
    flat = [time for times in batches for time in times]
    expected = next(((time, offset) for offset, time in enumerate(flat) if time >= at), None)
    assert found(log, at) == expected
    latest = latest_timestamp(log)
    assert latest is not None
    assert (latest.timestamp - NOW_MS, latest.offset) == (max(flat), flat.index(max(flat)))
