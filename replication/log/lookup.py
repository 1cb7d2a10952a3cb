"""Finds the first record at or after a time.

Segments, then index, then batch headers, then the records of one batch: each step throws away
what cannot hold the answer, and only the last one opens a batch.

T1  the answer is the lowest offset whose record has a timestamp ≥ the one asked for, also when
    timestamps are out of order
T2  for a batch that cannot be decoded its header answers: its largest time, its first offset

Not here: special timestamps of ListOffsets (−1, −2, …), which are the request's business.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.proto.errors import CorruptionError, RecordsError
from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.proto.records.decode import iterate_records
from ottla.replication.log.log import Log
from ottla.replication.log.scan import At, walk
from ottla.replication.log.segment import Segment


class TimedOffset(NamedTuple):
    """A record's time and place."""

    timestamp: int
    offset: Offset


def first_at_or_after(
    log: Log, timestamp: int, *, before: Offset | None = None
) -> TimedOffset | None:
    """Return the first readable record with a timestamp of at least `timestamp` (T1)."""
    log.require_online()
    bound = log.end_offset if before is None else before
    try:
        for segment in log.segments:
            if segment.base_offset >= bound:
                return None
            if segment.newest_timestamp() < timestamp:
                continue
            found = _first_in_segment(log, segment, timestamp, bound)
            if found is not None:
                return found
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look-up by time", error) from error
    return None


def _first_in_segment(
    log: Log, segment: Segment, timestamp: int, bound: Offset
) -> TimedOffset | None:
    start = segment.first_possible(timestamp)
    at = segment.find(Offset(max(start, log.start_offset)))
    if at is None:
        return None
    for found in walk(segment.reader(), at.position, segment.size):
        if found.header.base_offset >= bound:
            return None
        if found.header.max_timestamp >= timestamp:
            answer = _first_in_batch(log, segment, found, timestamp)
            if answer is not None:
                return answer
    return None


def _first_in_batch(log: Log, segment: Segment, at: At, timestamp: int) -> TimedOffset | None:
    batch = segment.reader().read_at(at.position, at.header.size)
    try:
        for record in iterate_records(batch):
            if record.timestamp >= timestamp and record.offset >= log.start_offset:
                return TimedOffset(record.timestamp, Offset(record.offset))
    except RecordsError:
        offset = max(at.header.base_offset, log.start_offset)
        return TimedOffset(at.header.max_timestamp, Offset(offset))
    return None


def latest_timestamp(log: Log) -> TimedOffset | None:
    """Return the readable record with the largest timestamp; of several, the first."""
    log.require_online()
    try:
        largest = max(segment.newest_timestamp() for segment in log.segments)
        found = first_at_or_after(log, largest) if largest >= 0 else None
        if found is None and largest >= 0:
            # The largest time is below the start, or that of a batch which compaction has emptied.
            largest = max(_largest_readable(log, segment) for segment in log.segments)
            found = first_at_or_after(log, largest) if largest >= 0 else None
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look-up by time", error) from error
    return found


def _largest_readable(log: Log, segment: Segment) -> int:
    """Return the largest time of any record in a segment that may be read, header by header."""
    at = segment.find(log.start_offset)
    if at is None:
        return NO_TIMESTAMP
    times = [NO_TIMESTAMP]
    if at.header.base_offset < log.start_offset:
        batch = segment.reader().read_at(at.position, at.header.size)
        try:
            times += [r.timestamp for r in iterate_records(batch) if r.offset >= log.start_offset]
        except RecordsError:
            times.append(at.header.max_timestamp)
    elif at.header.count:
        times.append(at.header.max_timestamp)
    for later in walk(segment.reader(), at.end_position, segment.size):
        if later.header.count:
            times.append(later.header.max_timestamp)
    return max(times)
