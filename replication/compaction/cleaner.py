"""Cleans a log: reads segments, writes what is left into new ones, and swaps them in.

    begin_cleaning (owner)  →  CleaningJob.run (any thread)  →  finish_cleaning (owner)

Z1  a cleaned segment and its name are durable before the intent to swap it in is committed
Z2  the sources stay untouched, and readable, until then
Z3  a damaged batch stops the cleaning and takes the log offline: nothing is cleaned away around it

Not here: whether it is due (`plan.py`), which records stay (`rewrite.py`), the swap (`surgery.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from crc32c import crc32c

from ottla.proto.errors import CorruptionError, RecordsError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import BatchHeader, read_header
from ottla.proto.records.record import Record
from ottla.replication.compaction.plan import CleaningPlan, plan_cleaning
from ottla.replication.compaction.rewrite import (
    KeyMap,
    Rewritten,
    rewrite_batch,
    rewrite_marker,
)
from ottla.replication.log.aborted import packed, path_of, write_entries
from ottla.replication.log.files import CLEANED_SUFFIX
from ottla.replication.log.log import Log
from ottla.replication.log.retention import SegmentFacts
from ottla.replication.log.scan import CheckedWalk, walk
from ottla.replication.log.segment import Segment, note_of
from ottla.replication.log.surgery import swap
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import File, Files
from ottla.replication.transactions import Aborted

# About 160 bytes of memory each.
KEYS_MAX: Final = 800_000
# Between two looks at what could go if no replica lacked it: each reads the whole log.
AGAIN_MS: Final = 3_600_000


@dataclass(slots=True)
class CleaningReport:
    """What a cleaning did."""

    removed_records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def facts_of(log: Log) -> list[SegmentFacts]:
    """Return what retention and compaction need to know of each segment."""
    try:
        return [
            SegmentFacts(
                segment.base_offset,
                log.end_of_segment(number),
                segment.size,
                segment.newest_timestamp(),
                segment.first_timestamp(),
            )
            for number, segment in enumerate(log.segments)
        ]
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look at segments", error) from error


def begin_cleaning(log: Log, *, now_ms: int, keys_max: int = KEYS_MAX) -> CleaningJob | None:
    """Return the work of cleaning the log, or None if it is not due."""
    log.require_online()
    plan = plan_cleaning(
        facts_of(log)[:-1],
        log.settings,
        cleaned_to=log.state.cleaned_to,
        limit=Offset(min(log.last_stable_offset, log.state.recovery_base)),
        horizon_ms=log.state.horizon_ms,
        now_ms=now_ms,
    )
    try:
        return None if plan is None else CleaningJob(log, plan, now_ms, keys_max)
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look at aborted transactions", error) from error


def clean(log: Log, *, now_ms: int, keys_max: int = KEYS_MAX) -> CleaningReport | None:
    """Clean the log here and now, if it is due."""
    job = begin_cleaning(log, now_ms=now_ms, keys_max=keys_max)
    if job is None:
        return None
    try:
        job.run()
    except (OSError, StorageError) as error:
        raise log.fail("cleaning", error) from error
    finish_cleaning(log, job)
    return job.report


class CleaningJob:
    """One cleaning of one log. `run` touches only `.cleaned` files, and may run on any thread."""

    def __init__(self, log: Log, plan: CleaningPlan, now_ms: int, keys_max: int) -> None:
        self._log: Final = log
        self.plan: Final = plan
        self.now_ms: Final = now_ms
        self._latest: Final = KeyMap(keys_max)
        self._held_by_all: Final = log.held_by_all
        # Taken now: the owner goes on appending while the job runs.
        self._segments: Final = {segment.base_offset: segment for segment in log.segments}
        self._live_producers: Final = {producer.producer_id for producer in log.producers}
        # The last batch of each live producer in what is cleaned (Q4). Not in the whole log: its
        # end may be truncated yet, and then these are the last.
        self._last_offsets: Final[dict[int, int]] = {}
        self._last_markers: Final[dict[int, int]] = {}
        self._last_offset = -1
        # What was aborted in what is cleaned: all of it is decided, wherever the marker is.
        self._aborted: Final = _aborted_in(log, plan)
        # Producers of whose transaction a batch was met, in what was rewritten so far (Q7).
        self._met: Final[set[int]] = set()
        self._entries: Final = {
            base: log.aborted.in_segment(self._segments[base])
            for bases in plan.groups
            for base in bases
        }
        # Abort markers that are left in the segment that is being written.
        self._kept_markers: Final[set[int]] = set()
        self.report: Final = CleaningReport()
        # Sources, the segment that replaces them, and its checksum.
        self.results: Final[list[tuple[list[Segment], Segment, int]]] = []
        # How far the keys are known: everything below is clean afterwards.
        self.cleaned_to = plan.dirty_from
        self.horizon_ms = -1
        # The segment that is being written.
        self._making: Segment | None = None
        # A source was deleted while the job ran: nothing of it counts.
        self.is_abandoned = False

    def run(self) -> None:
        hit("log.clean.before")
        try:
            self._find_last_batches()
            self._map_keys()
            for bases in self.plan.groups:
                sources = [self._segments[base] for base in bases]
                if sources[0].base_offset < max(self.cleaned_to, self.plan.dirty_from):
                    self._clean_group(sources)
        except FileNotFoundError:
            # Retention or a deletion took a source, and its delay was over before we came to it.
            self.is_abandoned = True
            if self._making is not None:
                self._making.remove()

    def _find_last_batches(self) -> None:
        for bases in self.plan.groups:
            for base in bases:
                segment = self._segments[base]
                for at in walk(_open(self._log.files, segment), 0, segment.size):
                    self._last_offset = at.header.last_offset
                    if at.header.producer_id in self._live_producers:
                        # Apart: a marker says how an epoch goes on, and no sequence.
                        last = self._last_markers if at.header.is_control else self._last_offsets
                        last[at.header.producer_id] = at.header.last_offset

    def _map_keys(self) -> None:
        for bases in self.plan.groups:
            for base in bases:
                for header, batch in _batches(self._log.files, self._segments[base]):
                    if header.base_offset < self.plan.dirty_from:
                        continue
                    records = [] if self._is_aborted(header) else _records_of(header, batch)
                    if not self._latest.add(records):
                        return
                    self.cleaned_to = header.next_offset
        self.cleaned_to = self.plan.end_offset

    def _clean_group(self, sources: list[Segment]) -> None:
        cleaned = self._log.new_segment(sources[0].base_offset, suffix=CLEANED_SUFFIX)
        cleaned.create()
        self._making = cleaned
        self._kept_markers.clear()
        is_changed = len(sources) > 1
        crc = 0
        for source in sources:
            for header, batch in _batches(self._log.files, source):
                rewritten = self._rewrite(header, batch)
                if rewritten.horizon_ms is not None and not self._is_everywhere(header):
                    # Looked at again, but not at once: a replica may be away for days.
                    later_ms = max(rewritten.horizon_ms, self.now_ms + AGAIN_MS)
                    rewritten = replace(rewritten, horizon_ms=later_ms)
                is_changed = is_changed or rewritten.is_changed
                crc = self._take(cleaned, rewritten, crc)
            hit("log.clean.write")
        cleaned.seal()
        self._making = None
        if not is_changed:
            cleaned.remove()
            return
        self._write_aborted(sources, cleaned)
        self._make_durable(cleaned)
        self.report.bytes_before += sum(source.size for source in sources)
        self.report.bytes_after += cleaned.size
        self.results.append((sources, cleaned, crc))

    def _rewrite(self, header: BatchHeader, batch: bytes) -> Rewritten:
        if header.base_offset >= self.cleaned_to:
            # Its keys are not known: a tombstone here still has older values to hide.
            horizon = header.base_timestamp if header.has_delete_horizon else None
            self._kept_markers.add(header.last_offset)
            return Rewritten(batch, horizon_ms=horizon)
        if header.is_control:
            return self._rewrite_marker(header, batch)
        if header.is_transactional:
            self._met.add(header.producer_id)
        return rewrite_batch(
            batch,
            header,
            self._latest,
            now_ms=self.now_ms,
            delete_retention_ms=self._log.settings.delete_retention_ms,
            stays_empty=header.last_offset
            in (self._last_offset, self._last_offsets.get(header.producer_id)),
            is_aborted=self._is_aborted(header),
            is_everywhere=self._is_everywhere(header),
        )

    def _rewrite_marker(self, header: BatchHeader, batch: bytes) -> Rewritten:
        is_last = header.last_offset in (
            self._last_offset,
            self._last_markers.get(header.producer_id),
        )
        rewritten = rewrite_marker(
            batch,
            header,
            now_ms=self.now_ms,
            delete_retention_ms=self._log.settings.delete_retention_ms,
            stays=is_last or header.producer_id in self._met or not self._is_everywhere(header),
        )
        self._met.discard(header.producer_id)
        if rewritten.batch is not None:
            self._kept_markers.add(header.last_offset)
        return rewritten

    def _is_everywhere(self, header: BatchHeader) -> bool:
        """Whether every replica has it (Q8)."""
        return header.last_offset < self._held_by_all

    def _is_aborted(self, header: BatchHeader) -> bool:
        aborted = self._aborted.get(header.producer_id) if header.is_transactional else None
        if not aborted:
            return False
        # A producer has one transaction at a time: the last that began before it, or none.
        count = bisect_right(aborted, header.base_offset, key=lambda one: one.first_offset)
        return count > 0 and header.base_offset < aborted[count - 1].last_offset

    def _write_aborted(self, sources: list[Segment], cleaned: Segment) -> None:
        """Give the cleaned segment the entries of the markers that are left in it.

        Also if none is: a crash must be able to tell the new file from that of a source.
        """
        files, paths = self._log.files, [path_of(source) for source in sources]
        if not any(files.exists(path) for path in paths):
            return
        bases = {source.base_offset for source in sources}
        known = [one for base in sorted(bases) for one in self._entries.get(base, ())]
        kept = [one for one in known if one.last_offset in self._kept_markers]
        file = write_entries(files, path_of(cleaned), packed(kept))
        try:
            file.sync()
        finally:
            file.close()

    def _take(self, cleaned: Segment, rewritten: Rewritten, crc: int) -> int:
        self.report.removed_records += rewritten.removed_count
        if rewritten.batch is not None:
            cleaned.write((rewritten.batch,), (note_of(read_header(rewritten.batch)),))
            crc = crc32c(rewritten.batch, crc)
        if rewritten.horizon_ms is not None:
            earlier = self.horizon_ms < 0 or rewritten.horizon_ms < self.horizon_ms
            self.horizon_ms = rewritten.horizon_ms if earlier else self.horizon_ms
        return crc

    def _make_durable(self, cleaned: Segment) -> None:
        cleaned.writer().sync()
        for index in (cleaned.indexes.offsets, cleaned.indexes.times):
            index.save(sync=True)
        self._log.files.sync_dir(self._log.directory)
        cleaned.release()


def finish_cleaning(log: Log, job: CleaningJob) -> None:
    """Swap in what the job made, and remember how far the log is clean."""
    log.require_online()
    if job.is_abandoned:
        for _, cleaned, _ in job.results:
            cleaned.remove()
        return
    cleaned_to = job.cleaned_to
    for sources, cleaned, crc in job.results:
        if all(source in log.segments for source in sources):
            swap(log, sources, cleaned, crc=crc, now_ms=job.now_ms)
        else:
            # Retention took the first sources meanwhile. The others are as dirty as they were.
            cleaned_to = min(cleaned_to, sources[0].base_offset)
            cleaned.remove()
    log.commit_state(replace(log.state, cleaned_to=cleaned_to, horizon_ms=job.horizon_ms))
    hit("log.clean.after")


def _open(files: Files, segment: Segment) -> File:
    """Open a source for the job alone: the handles of the log belong to its owner's thread."""
    try:
        return files.open(segment.path, writable=False)
    except FileNotFoundError:
        # It may have been given its other name between the two halves of the line above.
        return files.open(segment.path, writable=False)


def _batches(files: Files, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
    file = _open(files, segment)
    checked = CheckedWalk(file, 0, segment.size)
    for at in checked:
        yield at.header, file.read_at(at.position, at.header.size)
    if checked.problem is not None:
        raise CorruptionError(f"{segment.path} at {checked.position}: {checked.problem}")


def _aborted_in(log: Log, plan: CleaningPlan) -> dict[int, list[Aborted]]:
    """Return the aborted transactions with records in what is cleaned, by producer."""
    found: dict[int, list[Aborted]] = {}
    start = log.segments[0].base_offset
    for one in log.aborted.overlapping(log.segments, start, plan.end_offset):
        found.setdefault(one.producer_id, []).append(one)
    return found


def _records_of(header: BatchHeader, batch: bytes) -> list[Record]:
    if header.is_control or header.count == 0:
        return []
    try:
        return decode_records(batch)
    except RecordsError:
        return []
