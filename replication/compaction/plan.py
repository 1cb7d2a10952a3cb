"""Whether a log is due for cleaning, and which segments.

K1  the newest segment is never cleaned, nor anything at or above the limit (high watermark and
    recovery point)
K2  a record younger than `min.compaction.lag.ms` is never cleaned
K3  cleaning is due when enough of the log is dirty, when a dirty record is older than
    `max.compaction.lag.ms`, or when a tombstone's time has come

Not here: reading or writing anything (`cleaner.py`), and which records go (`rewrite.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.proto.ids import INT32_MAX, NO_TIMESTAMP, Offset
from ottla.replication.log.retention import SegmentFacts
from ottla.replication.settings import LogSettings


@dataclass(frozen=True, slots=True)
class CleaningPlan:
    """What to clean: the records below `end_offset`; those from `dirty_from` on are new."""

    dirty_from: Offset
    end_offset: Offset
    # Base offsets of neighbouring segments that become one segment each.
    groups: tuple[tuple[Offset, ...], ...]


def plan_cleaning(
    sealed: Sequence[SegmentFacts],
    settings: LogSettings,
    *,
    cleaned_to: Offset,
    limit: Offset,
    horizon_ms: int,
    now_ms: int,
) -> CleaningPlan | None:
    """Return what to clean now, or None if it is not due (K3)."""
    if not settings.compact:
        return None
    cleanable = _cleanable(sealed, settings, cleaned_to=cleaned_to, limit=limit, now_ms=now_ms)
    dirty = [segment for segment in cleanable if segment.end_offset > cleaned_to]
    is_horizon_due = 0 <= horizon_ms <= now_ms and bool(cleanable)
    if not (is_horizon_due or _is_dirty_enough(cleanable, dirty, settings, now_ms)):
        return None
    end_offset = cleanable[-1].end_offset
    return CleaningPlan(min(cleaned_to, end_offset), end_offset, _groups(cleanable, settings))


def _cleanable(
    sealed: Sequence[SegmentFacts],
    settings: LogSettings,
    *,
    cleaned_to: Offset,
    limit: Offset,
    now_ms: int,
) -> list[SegmentFacts]:
    cleanable = list[SegmentFacts]()
    for segment in sealed:
        is_young = (
            segment.end_offset > cleaned_to
            and settings.min_compaction_lag_ms > 0
            and now_ms - segment.max_timestamp < settings.min_compaction_lag_ms
        )
        if segment.end_offset > limit or is_young:
            break
        cleanable.append(segment)
    return cleanable


def _is_dirty_enough(
    cleanable: Sequence[SegmentFacts],
    dirty: Sequence[SegmentFacts],
    settings: LogSettings,
    now_ms: int,
) -> bool:
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if dirty_bytes == 0:
        return False
    total_bytes = sum(segment.size_bytes for segment in cleanable)
    if dirty_bytes >= settings.min_cleanable_dirty_ratio * total_bytes:
        return True
    times = [facts.first_timestamp for facts in dirty if facts.first_timestamp != NO_TIMESTAMP]
    return bool(times) and now_ms - min(times) > settings.max_compaction_lag_ms


def _groups(
    segments: Sequence[SegmentFacts], settings: LogSettings
) -> tuple[tuple[Offset, ...], ...]:
    """Put small neighbours together, so that cleaned segments do not stay small for ever."""
    groups = list[list[SegmentFacts]]()
    for segment in segments:
        if groups and _fits(groups[-1], segment, settings):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return tuple(tuple(segment.base_offset for segment in group) for group in groups)


def _fits(group: Sequence[SegmentFacts], segment: SegmentFacts, settings: LogSettings) -> bool:
    size = sum(member.size_bytes for member in group) + segment.size_bytes
    return size <= settings.segment_bytes and segment.end_offset - group[0].base_offset <= INT32_MAX
