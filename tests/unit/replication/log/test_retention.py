"""Which segments go by age and by size (N1, N2, N3), as a decision and through a manager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.ids import NO_TIMESTAMP, LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.retention import SegmentFacts, start_after_retention
from ottla.replication.settings import LogSettings
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, append, records_of, small_settings

HOUR_MS = 3_600_000


def segments_of(*ages_ms: int | None, size: int = 100) -> list[SegmentFacts]:
    """Return segments of ten offsets each, whose newest records have these ages."""
    return [
        SegmentFacts(
            Offset(number * 10),
            Offset(number * 10 + 10),
            size,
            NO_TIMESTAMP if age is None else NOW_MS - age,
        )
        for number, age in enumerate(ages_ms)
    ]


def start_of(
    segments: list[SegmentFacts], *, start: int = 0, high_watermark: int = 10**6, **how: object
) -> int:
    settings = LogSettings(**{"retention_ms": -1, **how})  # type: ignore[arg-type]  # field names
    return start_after_retention(
        segments,
        settings,
        start_offset=Offset(start),
        high_watermark=Offset(high_watermark),
        now_ms=NOW_MS,
    )


@pytest.mark.parametrize(
    ("ages", "start"),
    [
        ((HOUR_MS + 1, HOUR_MS + 1, 0), 20),
        ((HOUR_MS + 1, HOUR_MS, 0), 10),  # exactly as old as allowed: it stays
        ((0, HOUR_MS + 1, 0), 0),  # n1: oldest first, and no holes
        ((HOUR_MS + 1, HOUR_MS + 1), 10),  # n1: never the newest
        ((None, HOUR_MS + 1, 0), 0),  # its age is unknown
        ((-HOUR_MS, HOUR_MS + 1, 0), 0),  # from the future: the clock was set back
    ],
)
def test_n3_by_time(ages: tuple[int | None, ...], start: int) -> None:
    assert start_of(segments_of(*ages), retention_ms=HOUR_MS) == start


@pytest.mark.parametrize(
    ("limit", "start"),
    [(400, 0), (301, 0), (300, 10), (299, 10), (200, 20), (100, 30), (0, 30)],
)
def test_n3_by_size_what_is_left_is_never_less_than_the_limit(limit: int, start: int) -> None:
    assert start_of(segments_of(0, 0, 0, 0), retention_bytes=limit) == start


@pytest.mark.parametrize(
    ("retention_ms", "retention_bytes", "start"),
    [(HOUR_MS, 300, 20), (HOUR_MS, 100, 30), (2 * HOUR_MS, 300, 10), (-1, -1, 0)],
)
def test_n3_by_both_a_segment_goes_for_either_reason(
    retention_ms: int, retention_bytes: int, start: int
) -> None:
    segments = segments_of(HOUR_MS + 1, HOUR_MS + 1, 0, 0)
    assert start_of(segments, retention_ms=retention_ms, retention_bytes=retention_bytes) == start


@pytest.mark.parametrize(("high_watermark", "start"), [(9, 0), (10, 10), (19, 10), (20, 20)])
def test_n2_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, start: int) -> None:
    segments = segments_of(HOUR_MS, HOUR_MS, HOUR_MS)
    assert start_of(segments, retention_ms=0, high_watermark=high_watermark) == start


@pytest.mark.parametrize(
    ("sizes", "high_watermark", "start"),
    [
        ((0, 0, 100, 100), 40, 30),
        ((0, 0, 100, 100), 29, 0),
        ((100, 0, 0, 100), 40, 10),  # nothing behind them goes
        ((0, 0), 40, 0),
        ((100, 0, 100, 100), 40, 30),
    ],
)
def test_n4_segments_that_compaction_has_emptied_keep_nothing(
    sizes: tuple[int, ...], high_watermark: int, start: int
) -> None:
    segments = [
        SegmentFacts(
            Offset(number * 10),
            Offset(number * 10 + 10),
            size,
            NO_TIMESTAMP if size == 0 else NOW_MS - HOUR_MS,
        )
        for number, size in enumerate(sizes)
    ]
    assert start_of(segments, retention_ms=0, high_watermark=high_watermark) == start


def test_n4_by_size_too_they_go_with_the_first_that_goes() -> None:
    sizes = (0, 100, 0, 100, 100)
    segments = [
        SegmentFacts(Offset(n * 10), Offset(n * 10 + 10), size, NOW_MS if size else NO_TIMESTAMP)
        for n, size in enumerate(sizes)
    ]
    assert start_of(segments, retention_bytes=200) == 20
    assert start_of(segments, retention_bytes=201) == 0


def test_a_log_without_the_delete_policy_is_kept_for_ever() -> None:
    assert start_of(segments_of(HOUR_MS, 0), delete=False, retention_ms=0, retention_bytes=0) == 0


def test_the_start_never_moves_back() -> None:
    assert start_of(segments_of(HOUR_MS, 0, 0), start=15, retention_ms=0) == 15


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 50)), min_size=1, max_size=8),
    st.integers(-1, 60),
    st.integers(-1, 200),
    st.integers(0, 100),
)
def test_retention_agrees_with_dropping_one_segment_at_a_time(
    shapes: list[tuple[int, int]], retention_ms: int, retention_bytes: int, high_watermark: int
) -> None:
    segments = [
        SegmentFacts(Offset(n * 10), Offset(n * 10 + 10), size, NOW_MS - age)
        for n, (size, age) in enumerate(shapes)
    ]
    left = list(segments)
    while len(left) > 1 and left[0].end_offset <= high_watermark:
        is_old = retention_ms >= 0 and NOW_MS - left[0].max_timestamp > retention_ms
        rest = sum(segment.size_bytes for segment in left[1:])
        if not is_old and not (retention_bytes >= 0 and rest >= retention_bytes):
            break
        left.pop(0)
    assert left[0].base_offset == start_of(
        segments,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
    )


# -- through a manager -------------------------------------------------------------------------


def managed(**changes: object) -> tuple[LogManager, Log]:
    files = MemoryFiles()
    files.make_dir("/data")
    settings = small_settings(**changes)
    manager = LogManager(files, MemoryStateStore(), "/data", lambda topic: settings)
    manager.open(now_ms=NOW_MS)
    log = manager.create(TopicPartition("t", 0))
    log.assign_epoch(LeaderEpoch(0))
    for hour in range(6):
        now_ms = NOW_MS + hour * HOUR_MS
        append(log, b"x" * 300, timestamps=[now_ms], now_ms=now_ms)
    log.advance_high_watermark(log.end_offset)
    assert len(log.segments) == 6
    return manager, log


def test_by_time_the_hours_that_are_too_old_go() -> None:
    manager, log = managed(retention_ms=2 * HOUR_MS)
    assert manager.retain(now_ms=NOW_MS + 5 * HOUR_MS) == 3
    assert [record.offset for record in records_of(log)] == [3, 4, 5]


def test_by_size_the_oldest_segments_go() -> None:
    manager, log = managed(retention_bytes=1000)
    manager.retain(now_ms=NOW_MS)
    assert 1000 <= log.size_bytes < 1000 + log.segments[0].size


def test_an_old_active_segment_is_rolled_first_and_goes_when_it_is_too_old() -> None:
    manager, log = managed(retention_ms=HOUR_MS, segment_ms=HOUR_MS)
    assert manager.retain(now_ms=NOW_MS + 100 * HOUR_MS) == 6
    assert (log.start_offset, log.end_offset, log.size_bytes) == (6, 6, 0)


def test_retention_twice_is_no_different_from_once() -> None:
    manager, _ = managed(retention_ms=2 * HOUR_MS)
    assert manager.retain(now_ms=NOW_MS + 5 * HOUR_MS) == 3
    assert manager.retain(now_ms=NOW_MS + 5 * HOUR_MS) == 0


def test_files_of_retained_segments_go_after_their_delay() -> None:
    manager, log = managed(retention_ms=2 * HOUR_MS, file_delete_delay_ms=1000)
    manager.retain(now_ms=NOW_MS + 5 * HOUR_MS - 1000)
    assert len(log.doomed) == 3
    manager.retain(now_ms=NOW_MS + 5 * HOUR_MS)
    assert len(log.doomed) == 0
    assert not any("deleted" in name for name in log.files.list_dir("/data/t-0"))


def test_retention_looks_at_old_segments_without_loading_them_after_a_restart() -> None:
    manager, log = managed(retention_ms=2 * HOUR_MS)
    manager.checkpoint()
    log.close()
    again = LogManager(manager._files, manager._store, "/data", lambda topic: log.settings)
    again.open(now_ms=NOW_MS)
    assert again.retain(now_ms=NOW_MS + 5 * HOUR_MS) == 3


def test_silent_producers_are_forgotten_with_retention() -> None:
    manager, log = managed(producer_expiry_ms=HOUR_MS)
    append(log, b"x", producer_id=5)
    manager.retain(now_ms=NOW_MS + HOUR_MS)
    assert log.producers.get(5) is not None
    manager.retain(now_ms=NOW_MS + HOUR_MS + 1)
    assert log.producers.get(5) is None


@pytest.mark.parametrize(("delete", "left"), [(True, [5]), (False, [3, 4, 5])])
def test_a_log_of_both_policies_loses_what_is_too_old_even_the_last_of_its_key(
    delete: bool, left: list[int]
) -> None:
    files = MemoryFiles()
    files.make_dir("/data")
    settings = small_settings(
        compact=True, delete=delete, retention_ms=2 * HOUR_MS, min_cleanable_dirty_ratio=0.0
    )
    manager = LogManager(files, MemoryStateStore(), "/data", lambda topic: settings)
    manager.open(now_ms=NOW_MS)
    log = manager.create(TopicPartition("t", 0))
    log.assign_epoch(LeaderEpoch(0))
    for hour in range(6):
        now_ms = NOW_MS + hour * HOUR_MS
        append(log, (b"%d" % (hour % 2), b"x" * 300), timestamps=[now_ms], now_ms=now_ms)
    log.advance_high_watermark(log.end_offset)
    # What is behind the recovery point is not cleaned.
    manager.checkpoint()
    now_ms = NOW_MS + 6 * HOUR_MS + HOUR_MS // 2
    manager.clean(now_ms=now_ms)
    # Of each key the last one that is no longer in the newest segment, and that segment.
    assert [record.offset for record in records_of(log)] == [3, 4, 5]
    manager.retain(now_ms=now_ms)
    assert [record.offset for record in records_of(log)] == left
