"""One partition on this broker: its log, its syncs, and who waits for them.

A post office counter: letters are taken in at once, stamped when the van has really left, and
whoever waits for news is called, not made to ask again.

V1  a record is visible to consumers only below the high watermark
V2  with fsync nothing counts as held before it is synced (rule 47)
V3  who waits is told exactly once: the offset was reached, or why it never will be
V4  who waits, waits for the leader in one epoch: another epoch ends the waiting (rule 28)

Where this is the only replica, what it holds is committed. Where there are others nothing is: the
core that counts followers comes between `_settle` and the high watermark.

Not here: what a request looks like, and which partitions this broker has (`replicas.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.append import Appended
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.log import Log


class HeldWaiter(Protocol):
    """Waits until this replica holds, or has committed, all below an offset."""

    def reached(self) -> None: ...

    def failed(self, error: StorageError | RequestError) -> None: ...


class ReadWaiter(Protocol):
    """Waits for something to read."""

    def woken(self) -> None: ...


class Replica:
    """One partition, led or followed here. Belongs to one event loop; ends with `close`."""

    __slots__ = (
        "_committing",
        "_holding",
        "cleaning",
        "commit",
        "is_leader",
        "is_sole",
        "leader_epoch",
        "log",
        "partition",
        "readers",
    )

    def __init__(
        self,
        partition: TopicPartition,
        log: Log,
        executor: Executor,
        *,
        leader_epoch: LeaderEpoch,
        is_leader: bool = True,
        is_sole: bool = True,
        observe_sync: Callable[[float], None],
    ) -> None:
        self.partition: Final = partition
        self.log: Final = log
        self.leader_epoch = leader_epoch
        self.is_leader = is_leader
        # There is no other replica.
        self.is_sole = is_sole
        self.commit: Final = GroupCommit(
            log, executor, self._on_synced, on_failed=self._on_failed, observe=observe_sync
        )
        # Held while the log is compacted: nothing is cut, and the log is not removed meanwhile.
        self.cleaning: Final = asyncio.Lock()
        # Fetches that wait for the high watermark to move.
        self.readers: Final[set[ReadWaiter]] = set()
        # Offsets never fall from left to right, but for repeats, which then wait a little longer.
        self._holding: deque[tuple[Offset, HeldWaiter]] = deque()
        self._committing: deque[tuple[Offset, HeldWaiter]] = deque()
        if log.offline is None and is_sole:
            log.advance_high_watermark(log.held_offset)

    def lead(self, epoch: LeaderEpoch, *, is_sole: bool) -> None:
        """Lead in this epoch, as the metadata says."""
        if self.is_leader and epoch != self.leader_epoch:
            self._resign()
        self.is_leader, self.leader_epoch, self.is_sole = True, epoch, is_sole

    def follow(self, epoch: LeaderEpoch, *, is_sole: bool) -> None:
        """Another one leads in this epoch, or nobody does."""
        if self.is_leader:
            self._resign()
        self.is_leader, self.leader_epoch, self.is_sole = False, epoch, is_sole

    def _resign(self) -> None:
        sentence = f"This node led {self.partition} in epoch {self.leader_epoch}, and that is over."
        self._on_failed(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, sentence))

    def append(
        self, batches: Sequence[bytes | bytearray | memoryview], *, now_ms: int
    ) -> list[Appended | RequestError]:
        """Return for each batch where it is, or why it was refused; raises `StorageError`."""
        log = self.log
        if log.epochs.latest != self.leader_epoch:
            # Only now: a start, or a failover, of thousands of idle partitions writes nothing.
            log.assign_epoch(self.leader_epoch)
        end_offset = log.end_offset
        answers = log.append_all_as_leader(batches, epoch=self.leader_epoch, now_ms=now_ms)
        if log.end_offset != end_offset:
            if log.settings.fsync:
                self.commit.request()
            else:
                self._settle()
        return answers

    def catch_up(self) -> None:
        """Let what is here and not committed become so, though nobody waits for it.

        After a start that could not sync what it found, or a sync that found no descriptor.
        """
        if self.log.offline is None and self.log.high_watermark < self.log.end_offset:
            self.commit.request()

    def when_held(self, offset: Offset, waiter: HeldWaiter) -> bool:
        """Return True if all below `offset` is held; else tell `waiter` when it is (acks=1)."""
        if self.log.held_offset >= offset:
            return True
        self._holding.append((offset, waiter))
        self.commit.request()
        return False

    def when_committed(self, offset: Offset, waiter: HeldWaiter) -> bool:
        """Return True if all below `offset` is committed; else tell `waiter` when (acks=all)."""
        if self.log.high_watermark >= offset:
            return True
        self._committing.append((offset, waiter))
        self.commit.request()
        return False

    @property
    def waiting_count(self) -> int:
        return len(self._holding) + len(self._committing)

    def _on_synced(self, _offset: Offset) -> None:
        self._settle()

    def _settle(self) -> None:
        """Move the high watermark to what is held, and tell those who waited for it."""
        log = self.log
        held = log.held_offset
        if self.is_sole and held > log.high_watermark:
            log.advance_high_watermark(held)
            self.wake_readers()
        # First those who wait for more: who waits for both hears the better news.
        _release(self._committing, log.high_watermark)
        _release(self._holding, held)

    def wake_readers(self) -> None:
        for reader in tuple(self.readers):
            reader.woken()

    def _on_failed(self, error: StorageError | RequestError) -> None:
        waiting = (*self._holding, *self._committing)
        self._holding.clear()
        self._committing.clear()
        for _, waiter in waiting:
            waiter.failed(error)
        self.wake_readers()

    async def close(self, reason: RequestError | None = None) -> None:
        """Wait for the sync in flight; who still waits then is told the reason."""
        await self.commit.close()
        if reason is not None:
            self._on_failed(reason)


def _release(waiting: deque[tuple[Offset, HeldWaiter]], offset: Offset) -> None:
    while waiting and waiting[0][0] <= offset:
        waiting.popleft()[1].reached()
