"""Whether a log is due for cleaning, and which segments (K1, K2, K3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.proto.ids import INT32_MAX, NO_TIMESTAMP, Offset
from ottla.replication.compaction.plan import CleaningPlan, plan_cleaning
from ottla.replication.log.retention import SegmentFacts
from ottla.replication.settings import LogSettings
from tests.builders import NOW_MS

HOUR_MS = 3_600_000


def segments_of(*ages_ms: int, size: int = 100) -> list[SegmentFacts]:
    """Return sealed segments of ten offsets each, whose records have these ages."""
    return [
        SegmentFacts(
            Offset(number * 10), Offset(number * 10 + 10), size, NOW_MS - age, NOW_MS - age
        )
        for number, age in enumerate(ages_ms)
    ]


def plan(
    sealed: list[SegmentFacts],
    *,
    cleaned_to: int = 0,
    limit: int = 10**6,
    horizon_ms: int = -1,
    **how: object,
) -> CleaningPlan | None:
    settings = LogSettings(compact=True, **how)  # type: ignore[arg-type]  # names are the fields'
    return plan_cleaning(
        sealed,
        settings,
        cleaned_to=Offset(cleaned_to),
        limit=Offset(limit),
        horizon_ms=horizon_ms,
        now_ms=NOW_MS,
    )


def end_of(planned: CleaningPlan | None) -> int:
    return -1 if planned is None else planned.end_offset


def test_a_log_that_is_not_compacted_is_never_due() -> None:
    assert (
        plan_cleaning(
            segments_of(0),
            LogSettings(),
            cleaned_to=Offset(0),
            limit=Offset(100),
            horizon_ms=0,
            now_ms=NOW_MS,
        )
        is None
    )


def test_a_log_with_nothing_sealed_is_not_due() -> None:
    assert plan([]) is None


@pytest.mark.parametrize(("limit", "end"), [(0, -1), (9, -1), (10, 10), (19, 10), (20, 20)])
def test_k1_nothing_at_or_above_the_limit_is_cleaned(limit: int, end: int) -> None:
    assert end_of(plan(segments_of(0, 0), limit=limit)) == end


@pytest.mark.parametrize(
    ("ages", "end"),
    [
        ((HOUR_MS, HOUR_MS), 20),
        ((HOUR_MS, HOUR_MS - 1), 10),
        ((0, HOUR_MS), -1),  # what lies above something young waits too
    ],
)
def test_k2_what_is_younger_than_min_compaction_lag_is_not_cleaned(
    ages: tuple[int, ...], end: int
) -> None:
    assert end_of(plan(segments_of(*ages), min_compaction_lag_ms=HOUR_MS)) == end


@pytest.mark.parametrize(
    ("cleaned_to", "ratio", "is_due"),
    [(0, 1.0, True), (20, 0.5, True), (20, 0.51, False), (30, 0.25, True), (40, 0.0, False)],
)
def test_k3_cleaning_is_due_when_enough_is_dirty(
    cleaned_to: int, ratio: float, is_due: bool
) -> None:
    planned = plan(segments_of(0, 0, 0, 0), cleaned_to=cleaned_to, min_cleanable_dirty_ratio=ratio)
    assert (planned is not None) is is_due


@pytest.mark.parametrize(("age_ms", "is_due"), [(HOUR_MS, False), (HOUR_MS + 1, True)])
def test_k3_cleaning_is_due_when_the_first_dirty_record_is_older_than_max_compaction_lag(
    age_ms: int, is_due: bool
) -> None:
    *clean, dirty = segments_of(0, 0, 0)
    planned = plan(
        [*clean, replace(dirty, first_timestamp=NOW_MS - age_ms)],
        cleaned_to=20,
        min_cleanable_dirty_ratio=1.0,
        max_compaction_lag_ms=HOUR_MS,
    )
    assert (planned is not None) is is_due


@pytest.mark.parametrize("first_timestamp", [NOW_MS, NO_TIMESTAMP], ids=["young", "no time"])
def test_k3_an_old_record_that_is_clean_makes_no_cleaning_due(first_timestamp: int) -> None:
    clean, dirty = segments_of(0, 0)
    planned = plan(
        [replace(clean, first_timestamp=0), replace(dirty, first_timestamp=first_timestamp)],
        cleaned_to=10,
        min_cleanable_dirty_ratio=1.0,
        max_compaction_lag_ms=HOUR_MS,
    )
    assert planned is None


@pytest.mark.parametrize(
    ("horizon_ms", "is_due"), [(-1, False), (NOW_MS + 1, False), (NOW_MS, True), (0, True)]
)
def test_k3_cleaning_is_due_when_a_tombstones_time_has_come(horizon_ms: int, is_due: bool) -> None:
    planned = plan(segments_of(0, 0), cleaned_to=20, horizon_ms=horizon_ms)
    assert (planned is not None) is is_due


def test_small_neighbours_become_one_group_as_large_as_a_segment() -> None:
    planned = plan(segments_of(0, 0, 0, 0, 0), segment_bytes=200)
    assert planned is not None
    assert planned.groups == ((0, 10), (20, 30), (40,))


def test_g2_a_group_spans_no_more_offsets_than_a_segment_can() -> None:
    far = Offset(INT32_MAX)
    sealed = [
        SegmentFacts(Offset(0), Offset(10), 1, NOW_MS),
        SegmentFacts(far, Offset(far + 10), 1, NOW_MS),
    ]
    planned = plan(sealed, limit=2**40)
    assert planned is not None
    assert planned.groups == ((0,), (far,))
