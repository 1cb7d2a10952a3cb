"""Everything that removes bytes from a log: truncate, reset, delete records, drop, swap, destroy.

A surgeon counts the instruments before closing. Each operation here first commits what it is
about to do, then touches files, and can be finished from that record after a crash at any point.

X1  the state is committed before the first byte goes                          (rules 49a, 49c)
X2  bytes that were cut off are durably gone before anything is appended       (rule 49a)
X3  nothing is cut below the high watermark unless the caller says it may be   (rule 44)

Not here: deciding what to remove (`retention.py`, `compaction/`, the replica).
"""

from __future__ import annotations

from dataclasses import replace

from ottla.proto.errors import CorruptionError, ErrorCode, RequestError, ensure
from ottla.proto.ids import Offset
from ottla.replication.log.files import DELETED_SUFFIX
from ottla.replication.log.log import Log
from ottla.replication.log.rebuild import rebuild_producers
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import (
    NOTHING_PENDING,
    NOTHING_TRUSTED,
    Intent,
    PartitionState,
    Pending,
    Trusted,
    producers_key,
)
from ottla.replication.producers import ProducerStates
from ottla.replication.storage.failpoints import hit


def truncate(log: Log, offset: Offset, *, below_high_watermark: bool = False) -> Offset:
    """Cut the log so that it ends at `offset` or, inside a batch, before that batch.

    Returns where it ends now. The order of rule 49a:
      1. one transaction: recovery point, epochs and snapshots are cut
      2. segments go, newest first; the last one is shortened, and synced; then the directory
      3. only then may anything be appended
    With 2 before 1 a power cut could leave old bytes below new ones, all checksums right, and a
    recovery point above them: a silent fork.
    """
    log.require_online()
    log.require_no_jobs()
    ensure(offset >= log.start_offset, "a cut below the start is a reset", offset=offset)
    ensure(
        below_high_watermark or offset >= log.high_watermark,
        "committed records are not cut off",
        offset=offset,
        high_watermark=log.high_watermark,
    )
    if offset >= log.end_offset:
        log.epochs.truncate_end(offset)
        if log.epochs.entries != log.state.epochs:
            # Durable too: else a restart would hold what is written next against an epoch that
            # never wrote anything, and cut it.
            log.commit_state(replace(log.state, epochs=log.epochs.entries))
        return log.end_offset
    hit("log.truncate.begin")
    number = log.segment_number(offset)
    segment = log.segments[number]
    try:
        position, end_offset = segment.cut_before(offset)
        if end_offset < log.start_offset:
            # The start lies inside the batch that has to go: nothing readable is left.
            reset(log, log.start_offset)
            return log.end_offset
        _commit_cut(log, segment, position, end_offset)
        hit("log.truncate.state")
        _cut_files(log, number, position, end_offset)
        # Who was seen before the cut was seen, whatever of his batches is left.
        seen_ms = max((producer.last_seen_ms for producer in log.producers), default=0)
        log.aborted.truncate(log.active, end_offset)
        log.producers = rebuild_producers(log, end_offset, seen_ms)
    except (OSError, CorruptionError) as error:
        raise log.fail("truncate", error) from error
    log.end_offset = end_offset
    log.high_watermark = Offset(min(log.high_watermark, end_offset))
    log.unsynced.clear(log.segments)
    log.synced_offset = end_offset
    hit("log.truncate.end")
    return end_offset


def _commit_cut(log: Log, segment: Segment, position: int, end_offset: Offset) -> None:
    log.epochs.truncate_end(end_offset)
    state = replace(
        log.state,
        epochs=log.epochs.entries,
        high_watermark=Offset(min(log.high_watermark, end_offset)),
        cleaned_to=Offset(min(log.state.cleaned_to, end_offset)),
    )
    if state.recovery_point > end_offset:
        # A segment that lies wholly below the recovery point is synced with all its entries (I3).
        is_last = segment.base_offset == state.recovery_base
        synced = state.trusted if is_last else None
        trusted = segment.trusted_below(position, end_offset, synced)
        state = _recover_from(state, end_offset, segment.base_offset, position, trusted)
    log.commit_state(state, _drop_snapshots(log, end_offset))


def _recover_from(
    state: PartitionState, offset: Offset, base: Offset, position: int, trusted: Trusted
) -> PartitionState:
    return replace(
        state,
        recovery_point=offset,
        recovery_base=base,
        recovery_position=position,
        trusted=trusted,
    )


def _drop_snapshots(log: Log, end_offset: Offset) -> dict[bytes, bytes | None]:
    dropped = [offset for offset in log.snapshots if offset > end_offset]
    log.snapshots = [offset for offset in log.snapshots if offset <= end_offset]
    return {producers_key(log.name, offset): None for offset in dropped}


def _cut_files(log: Log, number: int, position: int, end_offset: Offset) -> None:
    # Newest first: a crash in between leaves a log that merely ends later, never one with a hole.
    while len(log.segments) > number + 1:
        _remove(log, log.segments.pop())
    hit("log.truncate.files")
    segment = log.segments[number]
    for unsynced in log.unsynced.segments.values():
        if unsynced in log.segments and unsynced is not segment:
            unsynced.writer().sync()
    segment.truncate(position, end_offset)
    segment.writer().sync()
    log.files.sync_dir(log.directory)


def reset(log: Log, offset: Offset) -> None:
    """Throw all batches away and start anew where the leader's log starts (rule 46)."""
    log.require_online()
    log.require_no_jobs()
    hit("log.truncate.begin")
    log.epochs.clear()
    state = replace(
        _recover_from(log.state, offset, offset, 0, NOTHING_TRUSTED),
        start_offset=offset,
        high_watermark=offset,
        cleaned_to=offset,
        gaps_below=offset,
        horizon_ms=-1,
        epochs=(),
        pending=Pending(intent=Intent.RESET, offset=offset),
    )
    changes = {producers_key(log.name, old): None for old in log.snapshots}
    log.snapshots = []
    log.commit_state(state, changes)
    hit("log.truncate.state")
    try:
        while log.segments:
            _remove(log, log.segments.pop())
        hit("log.truncate.files")
        log.segments.append(begin_segment(log, offset))
        log.files.sync_dir(log.directory)
    except OSError as error:
        raise log.fail("reset", error) from error
    log.commit_state(replace(state, pending=NOTHING_PENDING))
    log.start_offset = log.high_watermark = log.end_offset = log.gaps_below = offset
    log.unsynced.clear(log.segments)
    log.synced_offset = offset
    log.producers = ProducerStates()
    log.aborted.clear()
    hit("log.truncate.end")


def begin_segment(log: Log, offset: Offset) -> Segment:
    segment = log.new_segment(offset)
    segment.create()
    return segment


def delete_records(log: Log, before: Offset, *, now_ms: int) -> Offset:
    """Let the log start at `before`; return where it starts. Durable when it returns (rule 49c)."""
    log.require_online()
    if before > log.high_watermark or before < 0:
        raise RequestError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{log.name} can be deleted up to its high watermark {log.high_watermark}; "
            f"{before} was asked for.",
        )
    if before > log.start_offset:
        hit("log.delete.before")
        log.epochs.truncate_start(before)
        log.commit_state(
            replace(
                log.state,
                start_offset=before,
                high_watermark=log.high_watermark,
                epochs=log.epochs.entries,
            )
        )
        log.start_offset = before
        drop_segments_below_start(log, now_ms=now_ms)
        hit("log.delete.after")
    return log.start_offset


def drop_segments_below_start(log: Log, *, now_ms: int) -> int:
    """Take segments that lie wholly below the start out of the log; return how many.

    They are renamed now and removed later (`purge`), so that a reader that is sending one of them
    is not disturbed. The newest segment always stays.
    """
    dropped = 0
    try:
        while len(log.segments) > 1 and log.segments[1].base_offset <= log.start_offset:
            segment = log.segments.pop(0)
            log.unsynced.segments.pop(segment.base_offset, None)
            log.unsynced.indexes.pop(segment.base_offset, None)
            log.aborted.forget((segment,))
            doom(log, segment, now_ms=now_ms)
            dropped += 1
    except OSError as error:
        raise log.fail("delete", error) from error
    return dropped


def doom(log: Log, segment: Segment, *, now_ms: int) -> None:
    """Rename a segment that is no longer part of the log; `purge` removes it when it is due."""
    log.handles.forget(segment.path)
    segment.rename(DELETED_SUFFIX)
    segment.release()
    log.doomed.append((now_ms + log.settings.file_delete_delay_ms, segment))


def purge(log: Log, *, now_ms: int) -> int:
    """Remove the segments whose delay is over; return how many."""
    due = [segment for at_ms, segment in log.doomed if at_ms <= now_ms]
    log.doomed = [(at_ms, segment) for at_ms, segment in log.doomed if at_ms > now_ms]
    try:
        for segment in due:
            segment.remove()
    except OSError as error:
        raise log.fail("delete", error) from error
    return len(due)


def swap(log: Log, sources: list[Segment], cleaned: Segment, *, crc: int, now_ms: int) -> None:
    """Put a cleaned segment, already synced, in the place of its sources.

    The commit of the intent is the moment at which it happened: before it a crash leaves the
    sources, after it `intents.finish_pending` goes on when the log is opened.
    """
    log.require_online()
    first = log.segments.index(sources[0])
    ensure(log.segments[first : first + len(sources)] == sources, "sources are neighbours")
    ensure(sources[-1] is not log.active, "the newest segment is never cleaned", log=log.name)
    bases = tuple(source.base_offset for source in sources)
    pending = Pending(
        intent=Intent.SWAP, offset=cleaned.base_offset, sources=bases, size=cleaned.size, crc=crc
    )
    end_offset = log.end_of_segment(first + len(sources) - 1)
    log.gaps_below = Offset(max(log.gaps_below, end_offset))
    log.commit_state(replace(log.state, pending=pending, gaps_below=log.gaps_below))
    hit("log.clean.intent")
    try:
        log.segments[first : first + len(sources)] = [cleaned]
        for source in sources:
            log.unsynced.indexes.pop(source.base_offset, None)
            doom(log, source, now_ms=now_ms)
        hit("log.clean.swap")
        cleaned.rename("")
        log.aborted.forget(sources)
        log.handles.forget(cleaned.path)
        log.files.sync_dir(log.directory)
    except OSError as error:
        raise log.fail("swap", error) from error
    log.commit_state(replace(log.state, pending=NOTHING_PENDING))


def _remove(log: Log, segment: Segment) -> None:
    log.handles.forget(segment.path)
    log.aborted.forget((segment,))
    segment.remove()
