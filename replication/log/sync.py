"""The work of making a log durable, apart from the log, so that another thread can do it.

    owner's thread      any thread            owner's thread
    begin_sync      →   SyncJob.run       →   finish_sync
    begin_checkpoint →  CheckpointJob.run →   commit the changes, finish_checkpoint

Y1  a segment counts as synced only if it has not grown since the job was made
Y2  a directory counts as synced only if no segment was begun since the job was made

Not here: threads, waiting, and which logs share a sync (`group_commit.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.proto.ids import Offset
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import Trusted
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import File


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Makes everything below `target` durable. `run` may be called on any thread, once."""

    target: Offset
    files: tuple[File, ...]
    # None if the directory has nothing new.
    sync_directory: Callable[[], None] | None
    # The segments the job covers, and their sizes when it was made (Y1).
    sizes: dict[Offset, int]

    def run(self) -> None:
        hit("log.sync.before")
        for file in self.files:
            file.sync()
        if self.sync_directory is not None:
            self.sync_directory()
        hit("log.sync.after")


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """Syncs batches, then indexes; only then may the recovery point be committed (rule 49)."""

    sync: SyncJob
    index_files: tuple[File, ...]
    # The end of the log when the job was made: the next recovery point, and where it lies.
    recovery_point: Offset
    recovery_base: Offset
    recovery_position: int
    trusted: Trusted
    # The producers at that offset, as bytes.
    producers: bytes

    def run(self) -> None:
        self.sync.run()
        for file in self.index_files:
            file.sync()
            file.close()


class Unsynced:
    """What a log has written and not made durable yet."""

    def __init__(self) -> None:
        self.segments: dict[Offset, Segment] = {}
        # Segments whose indexes may hold entries that are not synced.
        self.indexes: dict[Offset, Segment] = {}
        self.directory = False
        self.jobs_running = 0

    def wrote(self, segment: Segment) -> None:
        self.segments[segment.base_offset] = segment
        self.indexes[segment.base_offset] = segment

    def sealed(self, segment: Segment) -> None:
        """Its indexes get their last entries, also if no batch was written since it was opened."""
        self.indexes[segment.base_offset] = segment
        if segment.base_offset not in self.segments:
            segment.release()

    def began(self, segment: Segment) -> None:
        self.wrote(segment)
        self.directory = True

    def job(self, target: Offset, sync_directory: Callable[[], None]) -> SyncJob:
        self.jobs_running += 1
        return SyncJob(
            target,
            tuple(segment.writer() for segment in self.segments.values()),
            sync_directory if self.directory else None,
            {base: segment.size for base, segment in self.segments.items()},
        )

    def open_indexes(self, active: Segment) -> tuple[File, ...]:
        """Return the index files to sync; from now on only the newest segment's will change."""
        files = tuple(
            index.open_for_sync()
            for segment in self.indexes.values()
            for index in (segment.indexes.offsets, segment.indexes.times)
        )
        self.indexes = {active.base_offset: active}
        return files

    def done(self, job: SyncJob, active: Segment) -> None:
        self.jobs_running -= 1
        if job.sync_directory is not None and active.base_offset in job.sizes:
            self.directory = False
        for base, size in job.sizes.items():
            segment = self.segments.get(base)
            if segment is None or segment.size != size:
                continue
            del self.segments[base]
            if segment is not active:
                segment.release()

    def clear(self, segments: Sequence[Segment]) -> None:
        """All the batches in the log are durable now. Its indexes may still not be."""
        self.segments.clear()
        left = {segment.base_offset: segment for segment in segments}
        self.indexes = {
            base: segment for base, segment in self.indexes.items() if left.get(base) is segment
        }
        self.indexes[segments[-1].base_offset] = segments[-1]
        self.directory = False
