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
from concurrent.futures import Executor
from typing import Final

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.log import Log
from ottla.replication.log.sync import SyncJob


class GroupCommit:
    """The syncs of one log. Belongs to one event loop; ends with `close`."""

    def __init__(
        self,
        log: Log,
        executor: Executor,
        on_synced: Callable[[Offset], None] = lambda offset: None,
        *,
        on_failed: Callable[[StorageError], None] = lambda error: None,
        observe: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self._log: Final = log
        self._executor: Final = executor
        self._on_synced: Final = on_synced
        self._on_failed: Final = on_failed
        # Told how long each sync took, the way to the thread and back included.
        self._observe: Final = observe
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._sailing: asyncio.Task[None] | None = None
        # How far who listens knows that it is synced.
        self._told: Offset | None = None

    def request(self) -> None:
        """Let everything appended so far become durable soon."""
        if self._sailing is None and self._log.offline is None:
            self._sailing = asyncio.get_running_loop().create_task(self._sail())

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
        while self._sailing is not None:
            await asyncio.shield(self._sailing)

    async def _sail(self) -> None:
        try:
            while (job := self._next_job()) is not None:
                loop = asyncio.get_running_loop()
                began = loop.time()
                try:
                    await loop.run_in_executor(self._executor, job.run)
                except OSError as error:
                    self._release(self._log.abandon(error))
                    return
                self._observe(loop.time() - began)
                self._log.finish_sync(job)
                self._tell()
                self._release(None)
            # A checkpoint may have synced what somebody waits for: then there was no job.
            if self._log.offline is None and self._told != self._log.synced_offset:
                self._tell()
            self._release(None)
            if self._log.offline is not None:
                self._release(StorageError(f"{self._log.name} is offline: {self._log.offline}"))
        except StorageError as error:
            # No job could be made. What waits for it is told; whoever asks next tries again.
            self._release(error)
        except Exception as error:
            # A bug, here or in who listens. Nobody waits for ever because of it.
            self._release(StorageError(f"{self._log.name}: the sync was lost: {error!r}"))
            raise
        finally:
            self._sailing = None

    def _tell(self) -> None:
        self._told = self._log.synced_offset
        self._on_synced(self._told)

    def _next_job(self) -> SyncJob | None:
        return None if self._log.offline is not None else self._log.begin_sync()

    def _release(self, error: StorageError | None) -> None:
        held = self._log.synced_offset
        if error is not None:
            self._on_failed(error)
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
