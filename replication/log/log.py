"""One partition's log: append, read, sync, roll, checkpoint.

A ship's log: entries are only added at the end, pages are numbered, and a finished book goes to
the shelf. The newest book (segment) lies open on the desk.

L1  start offset ≤ high watermark ≤ end offset                                      (rule 69)
L2  synced offset ≤ end offset; what is below it survives a power cut               (rule 47)
L3  recovery point ≤ synced offset, and is written last                             (rule 49)
L4  batches are appended at the end offset, under an epoch that was made durable    (rules 3, 21)
L5  after a disk error nothing is appended, synced or served: the log is offline    (rule 48)

One owner calls all methods, from one thread. What blocks for long is cut in three: `begin_…` and
`finish_…` belong to the owner, the job between them may run on any thread. While a job runs the
owner may append and read, and may not truncate or close.

Not here: opening after a crash (`recovery.py`), everything that removes bytes (`surgery.py`),
looking up a time (`lookup.py`), deciding what is committed (the replica).
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from ottla.proto.errors import CorruptionError, ErrorCode, RequestError, StorageError, ensure
from ottla.proto.ids import FIRST_OFFSET, INT32_MAX, INT64_MAX, LeaderEpoch, Offset
from ottla.proto.records.compression import CODEC_NAMES, Codec
from ottla.proto.records.header import TimestampType
from ottla.proto.records.validate import BatchLimits
from ottla.replication.epochs import EpochHistory
from ottla.replication.log.aborted import AbortedTransactions
from ottla.replication.log.append import Appended, Batch, append_as_follower, append_as_leader
from ottla.replication.log.handles import Handles, is_shortage
from ottla.replication.log.segment import Segment
from ottla.replication.log.slices import LogSlice, slice_from
from ottla.replication.log.state import (
    PartitionState,
    encode_producers,
    encode_state,
    partition_key,
    producers_key,
)
from ottla.replication.log.sync import CheckpointJob, SyncJob, Unsynced
from ottla.replication.log.tail import Tail
from ottla.replication.producers import ProducerStates
from ottla.replication.settings import LogSettings
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import File, Files, StateStore

# Producer snapshots kept: the newest for recovery, the others for truncation.
SNAPSHOTS_MAX: Final = 3
_CODECS: Final[dict[str, Codec]] = {name: codec for codec, name in CODEC_NAMES.items()}


class Log:
    """One partition's log. Opened by `recovery.open_log`, closed once."""

    def __init__(
        self,
        *,
        name: str,
        directory: str,
        files: Files,
        store: StateStore,
        handles: Handles,
        settings: LogSettings,
        segments: list[Segment],
        end_offset: Offset,
        epochs: EpochHistory,
        producers: ProducerStates,
        state: PartitionState,
        snapshots: list[Offset],
        on_failure: Callable[[Log, Exception], None] = lambda log, error: None,
    ) -> None:
        self.name: Final = name
        self.directory: Final = directory
        self.files: Final = files
        self.store: Final = store
        self.handles: Final = handles
        self.segments: Final = segments
        self.epochs: Final = epochs
        self.producers = producers
        self.aborted: Final = AbortedTransactions(files, trusted_below=state.recovery_point)
        self.state = state
        # Offsets of the producer snapshots in the store, oldest first.
        self.snapshots = snapshots
        # Of snapshots that recovery found and does not believe: the next checkpoint drops them.
        self.stale_snapshots: list[Offset] = []
        self.end_offset = end_offset
        # Recovery ends with a sync, so all that was found is durable.
        self.synced_offset = end_offset
        self.start_offset = state.start_offset
        self.high_watermark = Offset(max(state.start_offset, min(state.high_watermark, end_offset)))
        # Compaction, here or at the leader, may have left gaps in the offsets below this one.
        self.gaps_below = state.gaps_below
        # Every other replica has what is below; what one lacks is not cleaned away (Q8).
        self.held_by_all = Offset(INT64_MAX)
        # Why this log refuses everything, or None.
        self.offline: str | None = None
        # Segments that are out of the log and wait to be removed, with the time they may go.
        self.doomed: list[tuple[int, Segment]] = []
        self._on_failure: Final = on_failure
        self.unsynced: Final = Unsynced()
        self.adopt_settings(settings)

    def adopt_settings(self, settings: LogSettings) -> None:
        """Obey changed topic options from the next append on."""
        self.settings = settings
        self._segment_bytes = settings.segment_bytes
        self.limits = BatchLimits(
            max_message_bytes=settings.max_message_bytes,
            segment_bytes=settings.segment_bytes,
            timestamp_type=settings.timestamp_type,
            timestamp_before_max_ms=settings.timestamp_before_max_ms,
            timestamp_after_max_ms=settings.timestamp_after_max_ms,
            compacted=settings.compact,
            validate_records=settings.validate_records,
        )
        self.gives_time = settings.timestamp_type is TimestampType.LOG_APPEND_TIME
        # None: batches stay as the producer packed them.
        self.codec = _CODECS.get(settings.compression_type)
        self.converts = self.gives_time or self.codec is not None
        if self.active.first_append_ms is not None:
            self._begin_age(self.active, self.active.first_append_ms)

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def held_offset(self) -> Offset:
        """What this replica may claim to hold: with fsync only what is synced (rule 47)."""
        return self.synced_offset if self.settings.fsync else self.end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Below it everything is committed, and every transaction decided."""
        return max(self.start_offset, self.producers.transactions.last_stable(self.high_watermark))

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # -- append ------------------------------------------------------------------------------

    def append_as_leader(self, batch: Batch, *, epoch: LeaderEpoch, now_ms: int) -> Appended:
        """Check, place and write one batch of a producer, or raise; a refusal changes nothing."""
        (answer,) = append_as_leader(self, (batch,), epoch=epoch, now_ms=now_ms)
        if isinstance(answer, RequestError):
            raise answer
        return answer

    def append_all_as_leader(
        self,
        batches: Sequence[Batch],
        *,
        epoch: LeaderEpoch,
        now_ms: int,
        tail: Tail | None = None,
    ) -> list[Appended | RequestError]:
        """The same for all that has queued up, with one write; a refusal stops no other batch."""
        return append_as_leader(self, batches, epoch=epoch, now_ms=now_ms, tail=tail)

    def append_as_follower(
        self,
        batches: bytes | memoryview,
        *,
        now_ms: int,
        gaps_allowed: bool = False,
        leader_epoch: LeaderEpoch | None = None,
    ) -> int:
        """Append what a leader sent, all or nothing (rule 45); return how many batches."""
        return append_as_follower(
            self, batches, now_ms=now_ms, gaps_allowed=gaps_allowed, leader_epoch=leader_epoch
        )

    def take_gap(self, below: Offset) -> None:
        """Expect gaps in the offsets below `below`; the first time durably, before any is written.

        Else a restart would take the gap for lost bytes, and cut what follows.
        """
        self.gaps_below = Offset(max(self.gaps_below, below))
        if self.state.gaps_below == FIRST_OFFSET:
            self.commit_state(replace(self.state, gaps_below=self.gaps_below))

    def took_in(self, segment: Segment, end_offset: Offset, now_ms: int) -> None:
        """Take note of batches that were written to a segment."""
        self.end_offset = end_offset
        self.unsynced.wrote(segment)
        if segment.first_append_ms is None:
            self._begin_age(segment, now_ms)

    # -- roll --------------------------------------------------------------------------------

    def room(self, now_ms: int) -> tuple[int, int]:
        """Return how many bytes the newest segment may still take, and up to which offset.

        None at all, if it is too old or an index is full.
        """
        active = self.segments[-1]
        last_offset_max = active.base_offset + INT32_MAX
        if active.size == 0:
            return self._segment_bytes, last_offset_max
        if now_ms >= active.rolls_at_ms or active.is_index_full:
            return 0, -1
        return self._segment_bytes - active.size, last_offset_max

    def _begin_age(self, segment: Segment, first_append_ms: int) -> None:
        limit = self.settings.segment_ms
        if self.settings.compact:
            # The newest segment is never cleaned: it must not keep records from it for longer.
            limit = min(limit, self.settings.max_compaction_lag_ms)
        if self.settings.segment_jitter_ms:
            # By lot, but the same lot every time: dice would make runs differ.
            lot = zlib.crc32(segment.stem.encode()) % self.settings.segment_jitter_ms
            limit = max(1, limit - lot)
        segment.first_append_ms = first_append_ms
        segment.rolls_at_ms = first_append_ms + limit

    def maybe_roll(self, now_ms: int) -> bool:
        """Roll if the newest segment is old enough; return whether it was."""
        self.require_online()
        if is_due := self.active.size > 0 and now_ms >= self.active.rolls_at_ms:
            self.roll()
        return is_due

    def roll(self) -> None:
        """Begin a new segment at the end offset."""
        sealed, segment = self.active, self.new_segment(self.end_offset)
        try:
            hit("log.roll.before")
            self.handles.relieved(sealed.seal)
            self.handles.relieved(segment.create)
        except OSError as error:
            if is_shortage(error):
                # Files that are half made must not be passed by batches of the old segment.
                sealed.is_index_full = True
                with suppress(OSError):
                    segment.remove()
            raise self.fail_reading("roll", error) from error
        self.segments.append(segment)
        self.unsynced.sealed(sealed)
        self.unsynced.began(segment)
        hit("log.roll.after")

    def new_segment(self, base_offset: Offset, *, suffix: str = "") -> Segment:
        return Segment(
            self.files,
            self.directory,
            base_offset,
            self.settings,
            suffix=suffix,
            handles=self.handles,
        )

    # -- read --------------------------------------------------------------------------------

    def read(
        self, offset: Offset, *, bytes_max: int, before: Offset | None = None
    ) -> LogSlice | None:
        """Return batches from the one that holds `offset` on, or None if there is nothing yet.

        At most `bytes_max` bytes, but the first batch always whole; nothing at or above `before`.
        """
        self.require_online()
        if not self.start_offset <= offset <= self.end_offset:
            raise RequestError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name} has offsets {self.start_offset} to {self.end_offset}; "
                f"{offset} is not among them.",
            )
        bound = self.end_offset if before is None or before > self.end_offset else before
        if offset >= bound:
            return None
        try:
            return self._slice(offset, bytes_max, bound)
        except (OSError, CorruptionError) as error:
            raise self.fail_reading("read", error) from error

    def _slice(self, offset: Offset, bytes_max: int, bound: Offset) -> LogSlice | None:
        for number in range(self.segment_number(offset), len(self.segments)):
            segment = self.segments[number]
            at = segment.find(offset)
            if at is None:
                # Compaction may have emptied the end of a segment: the next one goes on.
                continue
            position, header = at
            end_offset = self.end_of_segment(number)
            if header.next_offset > end_offset:
                raise CorruptionError(
                    f"{segment.path} at {position}: a batch at offset {header.base_offset}, "
                    f"and the segment ends at {end_offset}"
                )
            if header.base_offset >= bound:
                return None
            limit = segment.size if end_offset <= bound else segment.cut_before(bound)[0]
            return slice_from(segment, at, limit=limit, bytes_max=bytes_max)
        return None

    def segment_number(self, offset: Offset) -> int:
        """Return which segment would hold `offset`."""
        if offset >= self.segments[-1].base_offset:
            # Most readers are near the end.
            return len(self.segments) - 1
        above = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return max(0, above - 1)

    def end_of_segment(self, number: int) -> Offset:
        if number + 1 < len(self.segments):
            return self.segments[number + 1].base_offset
        return self.end_offset

    # -- sync and checkpoint -------------------------------------------------------------------

    def begin_sync(self) -> SyncJob | None:
        """Return the work that makes all appended so far durable, or None if it is."""
        self.require_online()
        if self.synced_offset == self.end_offset and not self.unsynced.directory:
            return None
        return self._sync_job()

    def _sync_job(self) -> SyncJob:
        sync_dir = partial(self.files.sync_dir, self.directory)
        try:
            return self.handles.relieved(partial(self.unsynced.job, self.end_offset, sync_dir))
        except OSError as error:
            raise self.fail_reading("sync", error) from error

    def finish_sync(self, job: SyncJob) -> None:
        """Take note that the job is done. An offline log learns nothing any more (L5)."""
        self.unsynced.done(job, self.active)
        if self.offline is None and job.target > self.synced_offset:
            self.synced_offset = job.target

    def abandon(self, error: Exception) -> StorageError:
        """Take note that a job failed: nothing on this disk can be believed (rule 48).

        Unless it only lacked a descriptor (Y4): then the next job does it.
        """
        self.unsynced.jobs_running -= 1
        return self.fail_reading("sync", error)

    def sync(self) -> None:
        """Make all appended so far durable, here and now."""
        job = self.begin_sync()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            raise self.abandon(error) from error
        self.finish_sync(job)

    def begin_checkpoint(self, *, force: bool = False) -> CheckpointJob | None:
        """Return the work that moves the recovery point to the end, or None if it is there."""
        self.require_online()
        state = self.state
        known = state.recovery_point, state.recovery_base, state.high_watermark, state.epochs
        # Also after a roll that no batch has followed: the segment before may be cleaned then.
        here = self.end_offset, self.active.base_offset
        if not force and known == (*here, self.high_watermark, self.epochs.entries):
            return None
        try:
            index_files = self.handles.relieved(self.unsynced.open_indexes) + self._save_aborted()
            hit("log.snapshot.before")
        except OSError as error:
            raise self.fail_reading("checkpoint", error) from error
        return CheckpointJob(
            self._sync_job(),
            index_files,
            self.unsynced.sealed_indexes(self.active),
            self.end_offset,
            self.active.base_offset,
            self.active.size,
            self.active.trusted(),
            encode_producers(self.producers),
        )

    def _save_aborted(self) -> tuple[File, ...]:
        files = self.handles.relieved(partial(self.aborted.save, self.segments))
        # Some of them may be new.
        self.unsynced.directory |= bool(files)
        return files

    def checkpoint_changes(self, job: CheckpointJob) -> dict[bytes, bytes | None]:
        """Return what to commit once the job ran. Other changes made meanwhile are kept."""
        changes: dict[bytes, bytes | None] = {
            partition_key(self.name): encode_state(self._state_after(job)),
            producers_key(self.name, job.recovery_point): job.producers,
        }
        for old in (*self._snapshots_after(job)[1], *self.stale_snapshots):
            changes[producers_key(self.name, old)] = None
        return changes

    def finish_checkpoint(self, job: CheckpointJob) -> None:
        """Take note that the job ran and its changes are committed."""
        self.state = self._state_after(job)
        self.snapshots = self._snapshots_after(job)[0]
        self.stale_snapshots = []
        self.unsynced.indexes_done(job)
        self.aborted.trust(job.recovery_point)
        self.finish_sync(job.sync)
        hit("log.snapshot.after")

    def _state_after(self, job: CheckpointJob) -> PartitionState:
        return replace(
            self.state,
            recovery_point=job.recovery_point,
            recovery_base=job.recovery_base,
            recovery_position=job.recovery_position,
            trusted=job.trusted,
            high_watermark=self.high_watermark,
            epochs=self.epochs.entries,
            gaps_below=self.gaps_below,
        )

    def _snapshots_after(self, job: CheckpointJob) -> tuple[list[Offset], list[Offset]]:
        """Return the offsets of the producer snapshots to keep, and of those to drop."""
        offsets = sorted({*self.snapshots, job.recovery_point})
        return offsets[-SNAPSHOTS_MAX:], offsets[:-SNAPSHOTS_MAX]

    def checkpoint(self) -> None:
        """Move the recovery point to the end, here and now."""
        job = self.begin_checkpoint()
        if job is None:
            return
        hit("log.checkpoint.before")
        try:
            job.run()
            self.store.commit(self.checkpoint_changes(job))
        except (OSError, StorageError) as error:
            raise self.abandon(error) from error
        self.finish_checkpoint(job)
        hit("log.checkpoint.after")

    # -- epochs, watermark, failure --------------------------------------------------------------

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """Begin to lead in `epoch`: durable before the first append under it (rule 21)."""
        self.require_online()
        if not self.epochs.assign(epoch, self.end_offset):
            return
        hit("log.epoch.before")
        self.commit_state(replace(self.state, epochs=self.epochs.entries))
        hit("log.epoch.after")

    def advance_high_watermark(self, offset: Offset) -> None:
        """Everything below `offset` is committed. It never moves back (rule 30)."""
        ensure(offset <= self.end_offset, "only what is here is committed", offset=offset)
        if offset > self.high_watermark:
            self.high_watermark = offset

    def commit_state(
        self, state: PartitionState, more: Mapping[bytes, bytes | None] | None = None
    ) -> None:
        """Make a changed record durable, with other keys in the same transaction."""
        changes: dict[bytes, bytes | None] = {partition_key(self.name): encode_state(state)}
        changes.update(more or {})
        try:
            self.store.commit(changes)
        except (OSError, StorageError) as error:
            raise self.fail("commit", error) from error
        self.state = state

    def require_online(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self.name} is offline: {self.offline}")

    def require_no_jobs(self) -> None:
        running = self.unsynced.jobs_running
        ensure(running == 0, "no sync runs while bytes are removed", log=self.name)

    def fail_reading(self, what: str, error: Exception) -> StorageError:
        """Like `fail`, except that running out of descriptors is no fault of the disk."""
        if is_shortage(error):
            return StorageError(f"{self.name}: {what}: too many open files (see `ulimit -n`)")
        return self.fail(what, error)

    def fail(self, what: str, error: Exception) -> StorageError:
        """Go offline (L5), and return the error to raise."""
        reason = f"{what} failed: {error}"
        if self.offline is None:
            self.offline = reason
            self._on_failure(self, error)
        return StorageError(f"{self.name} is offline: {reason}")

    def close(self) -> None:
        """Give all files back. Without a checkpoint before it, the next start recovers."""
        self.require_no_jobs()
        for segment in self.segments:
            segment.release()
            self.handles.forget(segment.path)
