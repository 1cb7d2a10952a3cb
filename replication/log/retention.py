"""Which segments may go because they are old, or because there is too much.

N1  only whole segments go, oldest first, and never the newest (the manager rolls one that is too
    old as a whole, so that it no longer is the newest)
N2  nothing at or above the high watermark goes, nor anything of a transaction that is not decided:
    the caller's limit is the last stable offset (rule 64b)
N3  by time: the segment's newest record is older than the limit; by size: without the segment
    there would still be at least as much as the limit
N4  a segment that compaction has emptied keeps nothing that is behind it: it goes with the first
    that goes

Not here: removing anything (`surgery.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.replication.settings import LogSettings


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention needs to know of a segment, oldest first in a list of them."""

    base_offset: Offset
    # Exclusive: where the next segment begins.
    end_offset: Offset
    size_bytes: int
    # NO_TIMESTAMP if no record in it has one: then its age is unknown, and time keeps it.
    max_timestamp: int
    # Of its first batch; how long its records have been waiting, as far as one can tell cheaply.
    first_timestamp: int = NO_TIMESTAMP


def start_after_retention(
    segments: Sequence[SegmentFacts],
    settings: LogSettings,
    *,
    start_offset: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> Offset:
    """Return where the log may start: `start_offset`, or the end of the last segment to go."""
    if not settings.delete:
        return start_offset
    start = start_offset
    spare = sum(segment.size_bytes for segment in segments) - settings.retention_bytes
    for segment in segments[:-1]:
        is_old = (
            settings.retention_ms >= 0
            and segment.max_timestamp != NO_TIMESTAMP
            and now_ms - segment.max_timestamp > settings.retention_ms
        )
        is_spare = settings.retention_bytes >= 0 and spare >= segment.size_bytes
        if segment.end_offset > high_watermark:
            break
        if segment.size_bytes == 0 and segment.max_timestamp == NO_TIMESTAMP:
            continue
        if not (is_old or is_spare):
            break
        spare -= segment.size_bytes
        start = max(start, segment.end_offset)
    return start
