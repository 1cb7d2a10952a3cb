"""Finds the first record at or after a time.

Segments, then index, then batch headers, then the records of one batch: each step throws away
what cannot hold the answer, and only the last one opens a batch.

T1  the answer is the lowest offset whose record has a timestamp ≥ the one asked for, also when
    timestamps are out of order
T2  for a batch that cannot be decoded its header answers: its largest time, its first offset
T3  a step of a search reads a bounded number of headers, or opens one batch

A search takes long where the largest time of a segment was deleted, and every header after it must
be looked at. So there is each search in steps, between which its owner may do other work. If
segments have gone meanwhile (the end may grow), the owner begins anew.

Not here: special timestamps of ListOffsets (−1, −2, …), which are the request's business.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, TypeVar

from ottla.proto.errors import CorruptionError, RecordsError
from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.proto.records.decode import iterate_records
from ottla.replication.log.log import Log
from ottla.replication.log.scan import At, walk
from ottla.replication.log.segment import Segment
from ottla.replication.storage.ports import File

# What one step of a search looks at (T3).
HEADERS_AT_ONCE: Final = 1000

T = TypeVar("T")


class TimedOffset(NamedTuple):
    """A record's time and place."""

    timestamp: int
    offset: Offset


# Yields after each step, and returns what it found.
Search = Generator[None, None, TimedOffset | None]


def first_at_or_after(
    log: Log, timestamp: int, *, before: Offset | None = None
) -> TimedOffset | None:
    """Return the first readable record with a timestamp of at least `timestamp` (T1)."""
    return _at_once(search_first(log, timestamp, before=before))


def latest_timestamp(log: Log) -> TimedOffset | None:
    """Return the readable record with the largest timestamp; of several, the first."""
    return _at_once(search_latest(log))


def _at_once(search: Generator[None, None, T]) -> T:
    while True:
        try:
            next(search)
        except StopIteration as done:
            found: T = done.value
            return found


def search_first(log: Log, timestamp: int, *, before: Offset | None = None) -> Search:
    """Look for what `first_at_or_after` returns, step by step (T3)."""
    log.require_online()
    bound = log.end_offset if before is None else before
    try:
        for segment in tuple(log.segments):
            if segment.base_offset >= bound:
                return None
            if segment.newest_timestamp() < timestamp:
                continue
            found = yield from _first_in_segment(log, segment, timestamp, bound)
            if found is not None:
                return found
            yield
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look-up by time", error) from error
    return None


def _first_in_segment(log: Log, segment: Segment, timestamp: int, bound: Offset) -> Search:
    start = segment.first_possible(timestamp)
    at = segment.find(Offset(max(start, log.start_offset)))
    if at is None:
        return None
    # Held: it can be read although the segment may lose its name while others work.
    file = segment.reader()
    for number, found in enumerate(walk(file, at.position, segment.size), 1):
        if found.header.base_offset >= bound:
            return None
        if found.header.max_timestamp >= timestamp:
            answer = _first_in_batch(log, file, found, timestamp)
            if answer is not None:
                return answer
            yield
        elif number % HEADERS_AT_ONCE == 0:
            yield
    return None


def _first_in_batch(log: Log, file: File, at: At, timestamp: int) -> TimedOffset | None:
    batch = file.read_at(at.position, at.header.size)
    try:
        for record in iterate_records(batch):
            if record.timestamp >= timestamp and record.offset >= log.start_offset:
                return TimedOffset(record.timestamp, Offset(record.offset))
    except RecordsError:
        offset = max(at.header.base_offset, log.start_offset)
        return TimedOffset(at.header.max_timestamp, Offset(offset))
    return None


def search_latest(log: Log) -> Search:
    """Look for what `latest_timestamp` returns, step by step (T3)."""
    log.require_online()
    try:
        largest = max(segment.newest_timestamp() for segment in log.segments)
        if largest < 0:
            return None
        found = yield from search_first(log, largest)
        if found is None:
            # The largest time is below the start, or that of a batch which compaction has emptied.
            largest = NO_TIMESTAMP
            for segment in tuple(log.segments):
                largest = max(largest, (yield from _largest_readable(log, segment)))
            found = (yield from search_first(log, largest)) if largest >= 0 else None
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look-up by time", error) from error
    return found


def _largest_readable(log: Log, segment: Segment) -> Generator[None, None, int]:
    """Return the largest time of any record in a segment that may be read, header by header."""
    at = segment.find(log.start_offset)
    if at is None:
        return NO_TIMESTAMP
    file = segment.reader()
    times = [NO_TIMESTAMP]
    if at.header.base_offset < log.start_offset:
        batch = file.read_at(at.position, at.header.size)
        try:
            times += [r.timestamp for r in iterate_records(batch) if r.offset >= log.start_offset]
        except RecordsError:
            times.append(at.header.max_timestamp)
    elif at.header.count:
        times.append(at.header.max_timestamp)
    largest = max(times)
    for number, later in enumerate(walk(file, at.end_position, segment.size), 1):
        if later.header.count:
            largest = max(largest, later.header.max_timestamp)
        if number % HEADERS_AT_ONCE == 0:
            yield
    return largest
