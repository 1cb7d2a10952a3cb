"""The work of making a log durable, apart from the log, so that another thread can do it.

    owner's thread      any thread            owner's thread
    begin_sync      →   SyncJob.run       →   finish_sync
    begin_checkpoint →  CheckpointJob.run →   commit the changes, finish_checkpoint

Y1  a segment counts as synced only if it has not grown since the job was made
Y2  a directory counts as synced only if no segment was begun since the job was made

Y3  jobs of one log run one after another, and after a failure none succeeds
Y4  a job that found no descriptor has proved nothing and lost nothing: another one may follow

Not here: threads, waiting, and which logs share a sync (`group_commit.py`).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from ottla.proto.ids import Offset
from ottla.replication.log.handles import is_shortage
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import Trusted
from ottla.replication.storage.failpoints import hit, is_any_armed
from ottla.replication.storage.ports import File, KernelSync


class Gate:
    """Lets one job of a log sync at a time, and none after a failure (rule 48).

    The kernel tells an error of a file once. A second job on the same file would hear "done", and
    call durable what the first could not write.

    Who does a job himself is `passing`. Who has it done takes the gate with `enter` and gives it
    back with `leave`, on any thread.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._failure: OSError | None = None
        # Ends the job of who has entered, sooner or later; None: nobody has.
        self._hurry: Callable[[], None] | None = None

    def enter(self, hurry: Callable[[], None]) -> bool:
        """Take the gate if nobody has it and none has failed; return whether it was taken.

        Whoever must pass calls `hurry`, again and again, until `leave` was called.
        """
        if not self._lock.acquire(blocking=False):
            return False
        if self._failure is not None:
            self._lock.release()
            return False
        self._hurry = hurry
        return True

    def leave(self, error: OSError | None) -> None:
        """Give the gate back after a job; an error lets nobody in any more."""
        self._hurry = None
        self._failure = error
        self._lock.release()

    @contextmanager
    def passing(self) -> Iterator[None]:
        # Who has entered may be this very thread, which cannot wait for itself.
        while (hurry := self._hurry) is not None:
            hurry()
        with self._lock:
            if self._failure is not None:
                raise OSError(errno.EIO, f"an earlier sync failed: {self._failure}")
            try:
                yield
            except OSError as error:
                # What a shortage kept from being opened was not asked to sync: nothing to hide.
                if not is_shortage(error):
                    self._failure = error
                raise


@dataclass(frozen=True, slots=True)
class SyncJob:
    """Makes everything below `target` durable. `run` may be called on any thread, once."""

    target: Offset
    files: tuple[File, ...]
    # None if the directory has nothing new.
    sync_directory: Callable[[], None] | None
    # The segments the job covers, and their sizes when it was made (Y1).
    sizes: dict[Offset, int]
    gate: Gate

    def begin_in_kernel(self) -> KernelSync | None:
        """Return what the kernel may do by itself in place of `run`, or None if it may not.

        With a named place armed it may not: it would pass by there.
        """
        if len(self.files) != 1 or self.sync_directory is not None or is_any_armed():
            return None
        return self.files[0].begin_kernel_sync()

    def run(self) -> None:
        with self.gate.passing():
            self.sync()

    def sync(self) -> None:
        hit("log.sync.before")
        for file in self.files:
            _sync(file)
        if self.sync_directory is not None:
            self.sync_directory()
        hit("log.sync.after")


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """Syncs batches, then indexes; only then may the recovery point be committed (rule 49)."""

    sync: SyncJob
    index_files: tuple[File, ...]
    # The segments whose indexes will not change any more once they are synced.
    sealed: tuple[Segment, ...]
    # The end of the log when the job was made: the next recovery point, and where it lies.
    recovery_point: Offset
    recovery_base: Offset
    recovery_position: int
    trusted: Trusted
    # The producers at that offset, as bytes.
    producers: bytes

    def run(self) -> None:
        with self.sync.gate.passing():
            self.sync.sync()
            for file in self.index_files:
                _sync(file)
                file.close()


def _sync(file: File) -> None:
    try:
        file.sync()
    except OSError as error:
        raise final_error(error) from error


def final_error(error: OSError) -> OSError:
    """Return what a sync of an open file has failed with.

    Whatever the number says, bytes were refused: that is final (Y3), and no shortage.
    """
    return OSError(errno.EIO, f"a sync failed: {error}") if is_shortage(error) else error


class Unsynced:
    """What a log has written and not made durable yet."""

    def __init__(self) -> None:
        self.segments: dict[Offset, Segment] = {}
        # Segments whose indexes may hold entries that are not synced.
        self.indexes: dict[Offset, Segment] = {}
        self.directory = False
        self.jobs_running = 0
        self._gate = Gate()

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
        files = tuple(segment.writer() for segment in self.segments.values())
        self.jobs_running += 1
        return SyncJob(
            target,
            files,
            sync_directory if self.directory else None,
            {base: segment.size for base, segment in self.segments.items()},
            self._gate,
        )

    def open_indexes(self) -> tuple[File, ...]:
        """Return the index files to sync."""
        return tuple(
            index.open_for_sync()
            for segment in self.indexes.values()
            for index in (segment.indexes.offsets, segment.indexes.times)
        )

    def sealed_indexes(self, active: Segment) -> tuple[Segment, ...]:
        return tuple(segment for segment in self.indexes.values() if segment is not active)

    def indexes_done(self, job: CheckpointJob) -> None:
        """The indexes of segments that were sealed when the job was made need no sync again."""
        for segment in job.sealed:
            if self.indexes.get(segment.base_offset) is segment:
                del self.indexes[segment.base_offset]

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
