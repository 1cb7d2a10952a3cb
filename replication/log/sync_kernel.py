"""Syncs that the kernel does by itself, without a thread of ours.

A letter box beside the counter: what is one plain letter goes in there, and the counter stays open
for everything else. A job that is one fdatasync of one file is handed to the kernel; a new segment,
a checkpoint, a disk with faults on purpose, or a job beside another one go to the threads.

K1  a job that was taken is told of exactly once, on the event loop
K2  a job holds the gate of its log until the kernel is done with it, as on a thread (Y3)
K3  who must pass the gate and runs on the event loop reaps the job himself: he would wait for ever

Not here: the calls (`storage/kernel_aio.py`), and what is synced when (`group_commit.py`).
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final, Protocol

from ottla.replication.log.sync import SyncJob, final_error
from ottla.replication.storage.ports import KernelSync

# More than these go to the threads: on one disk they wait for one another anyway.
_RUNNING_MAX: Final = 256
OnEnd = Callable[[SyncJob, Exception | None], None]


class Door(Protocol):
    """The way to the kernel: `KernelAio`."""

    def fileno(self) -> int: ...

    def begin(self, fd: int, number: int) -> bool: ...

    def clear(self) -> None: ...

    def reap(self, *, waits: bool = False) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


class KernelSyncs:
    """The jobs that the kernel has. `begin` belongs to one event loop; ends with `close`."""

    def __init__(self, door: Door) -> None:
        self._door: Final = door
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._number = 0
        self._running: Final[dict[int, tuple[SyncJob, KernelSync, OnEnd]]] = {}
        # The kernel is done, and nobody was told yet.
        self._ended: Final[deque[tuple[SyncJob, OnEnd, OSError | None]]] = deque()

    def begin(self, job: SyncJob, on_end: OnEnd) -> bool:
        """Return whether the kernel does this job; if so, `on_end` is told (K1)."""
        if not self._watch() or not job.gate.enter(self._finish_some):
            return False
        is_taken = False
        try:
            is_taken = self._hand_over(job, on_end)
        finally:
            if not is_taken:
                job.gate.leave(None)
        return is_taken

    def _hand_over(self, job: SyncJob, on_end: OnEnd) -> bool:
        if len(self._running) >= _RUNNING_MAX or (sync := job.begin_in_kernel()) is None:
            return False
        self._number += 1
        # First: it may have ended before `begin` returns, and be reaped on another thread.
        self._running[self._number] = (job, sync, on_end)
        # Whatever is wrong, the file was not synced: a thread will see what it is.
        with suppress(OSError):
            if self._door.begin(sync.fd, self._number):
                return True
        del self._running[self._number]
        return False

    def close(self) -> None:
        """Wait for what the kernel has; nobody is told of it any more."""
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._door.fileno())
        self._door.close()

    def _watch(self) -> bool:
        """Return whether the event loop hears of what has ended."""
        if self._loop is None and not self._is_closed:
            loop = asyncio.get_running_loop()
            try:
                loop.add_reader(self._door.fileno(), self._on_ended)
            except OSError:
                return False
            self._loop = loop
        return not self._is_closed

    def _on_ended(self) -> None:
        # First: what ends from here on makes the descriptor readable again.
        self._door.clear()
        try:
            # One call tells of some; of those that are left nobody would be told again.
            while self._reap(waits=False):
                pass
        finally:
            self._tell()

    def _finish_some(self) -> None:
        """Wait until a job has ended, or for a moment, on any thread (K3)."""
        try:
            self._reap(waits=True)
        finally:
            if self._ended and self._loop is not None:
                # The loop may have looked before they were there, and looks no more.
                self._loop.call_soon_threadsafe(self._tell)

    def _reap(self, *, waits: bool) -> int:
        """Take what has ended; return how many that were. There may be more."""
        ended = self._door.reap(waits=waits)
        with ExitStack() as stack:
            for number, code in reversed(ended):
                # However one of them ends, so do the others, and what it raises is raised then.
                stack.callback(self._end, number, code)
        return len(ended)

    def _end(self, number: int, code: int) -> None:
        job, sync, on_end = self._running.pop(number)
        error = None if code == 0 else final_error(OSError(code, os.strerror(code)))
        try:
            sync.ended(error)
        except BaseException as raised:
            error = error or OSError(errno.EIO, f"a sync was lost: {raised!r}")
            raise
        finally:
            self._ended.append((job, on_end, error))
            # Last: who waits at the gate goes on now.
            job.gate.leave(error)

    def _tell(self) -> None:
        try:
            while self._ended:
                job, on_end, error = self._ended.popleft()
                on_end(job, error)
        finally:
            # A bug of one who is told is not one of the others.
            if self._ended and self._loop is not None:
                self._loop.call_soon(self._tell)
