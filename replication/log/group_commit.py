"""One fdatasync for everybody who is waiting: group commit, off the event loop.

A ferry: it leaves at once if it is at the pier; who arrives while it is crossing takes the next
one, all together.

C1  at most one sync of a log is in flight
C2  who waits for an offset is released only when the synced offset has reached it, or with the
    error that took the log offline or stopped the syncs, or kept this one from beginning: never
    with a guess

Not here: threads for anything else, and what a waiting request does next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.log import Log
from ottla.replication.log.sync import SyncJob
from ottla.replication.log.sync_kernel import KernelSyncs


class Threads(Protocol):
    """Where syncs run: `SyncThreads`, or any executor."""

    def submit(self, work: Callable[[], None], /) -> object: ...


class GroupCommit:
    """The syncs of one log. Belongs to one event loop; ends with `close`."""

    def __init__(
        self,
        log: Log,
        threads: Threads,
        on_synced: Callable[[Offset], None] = lambda offset: None,
        *,
        on_failed: Callable[[StorageError], None] = lambda error: None,
        observe: Callable[[float], None] = lambda seconds: None,
        kernel: KernelSyncs | None = None,
    ) -> None:
        self._log: Final = log
        self._threads: Final = threads
        # Asked before the threads are.
        self._kernel: Final = kernel
        self._on_synced: Final = on_synced
        self._on_failed: Final = on_failed
        # Told how long each sync took, the way there and back included.
        self._observe: Final = observe
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._is_sailing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began_s = 0.0
        # Who waits for the end of the sync in flight.
        self._closing: list[asyncio.Future[None]] = []
        # How far who listens knows that it is synced.
        self._told: Offset | None = None

    def request(self) -> None:
        """Let everything appended so far become durable soon."""
        if not self._is_sailing and self._log.offline is None:
            self._is_sailing = True
            self._loop = asyncio.get_running_loop()
            # In the next turn: whatever else is appended in this one goes with it.
            self._loop.call_soon(self._sail)

    async def synced(self, offset: Offset) -> None:
        """Return when all below `offset` is durable; raise `StorageError` if it cannot be."""
        self._log.require_online()
        if self._log.synced_offset >= offset:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, waiter))
        self.request()
        await waiter

    async def close(self) -> None:
        """Wait for the sync in flight; afterwards the log may be cut or closed."""
        while self._is_sailing:
            ended = asyncio.get_running_loop().create_future()
            self._closing.append(ended)
            await ended

    def _sail(self) -> None:
        """Begin a sync if there is anything to be synced, and else end."""
        loop = self._loop
        assert loop is not None
        try:
            job = self._next_job()
            if job is not None:
                self._began_s = loop.time()
                if self._kernel is None or not self._kernel.begin(job, self._on_end):
                    self._threads.submit(lambda: _run(loop, job, self._on_end))
                return
            # A checkpoint may have synced what somebody waits for: then there was no job.
            if self._log.offline is None and self._told != self._log.synced_offset:
                self._tell()
            self._release(None)
            if self._log.offline is not None:
                self._release(StorageError(f"{self._log.name} is offline: {self._log.offline}"))
            self._end()
        except StorageError as error:
            # No job could be made. What waits for it is told; whoever asks next tries again.
            self._release(error)
            self._end()
        except Exception as error:
            self._lose(error)
            raise

    def _on_end(self, job: SyncJob, error: Exception | None) -> None:
        """Take note of a sync that has ended, and begin the next."""
        if error is not None and not isinstance(error, OSError):
            self._lose(error)
            raise error
        try:
            if error is not None:
                self._release(self._log.abandon(error))
                self._end()
                return
            assert self._loop is not None
            self._observe(self._loop.time() - self._began_s)
            self._log.finish_sync(job)
            self._tell()
            self._release(None)
        except Exception as bug:
            self._lose(bug)
            raise
        self._sail()

    def _lose(self, error: Exception) -> None:
        # A bug, here or in who listens. Nobody waits for ever because of it.
        self._release(StorageError(f"{self._log.name}: the sync was lost: {error!r}"))
        self._end()

    def _end(self) -> None:
        self._is_sailing = False
        closing, self._closing = self._closing, []
        for ended in closing:
            if not ended.done():
                ended.set_result(None)

    def _tell(self) -> None:
        self._told = self._log.synced_offset
        self._on_synced(self._told)

    def _next_job(self) -> SyncJob | None:
        return None if self._log.offline is not None else self._log.begin_sync()

    def _release(self, error: StorageError | None) -> None:
        held = self._log.synced_offset
        if error is not None:
            self._on_failed(error)
        if not self._waiting:
            return
        still_waiting = []
        for offset, waiter in self._waiting:
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            elif offset <= held:
                waiter.set_result(None)
            else:
                still_waiting.append((offset, waiter))
        self._waiting = still_waiting


def _run(
    loop: asyncio.AbstractEventLoop,
    job: SyncJob,
    on_end: Callable[[SyncJob, Exception | None], None],
) -> None:
    """Do a job on a thread, and tell the loop."""
    try:
        job.run()
    except Exception as error:  # noqa: BLE001  # whatever it is, the loop must hear of it
        loop.call_soon_threadsafe(on_end, job, error)
    else:
        loop.call_soon_threadsafe(on_end, job, None)
