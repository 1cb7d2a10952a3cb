"""Who waits for a replica to hold something, or for it to be committed.

W1  who waits is told exactly once: it was reached, or why it never will be
W2  who waits for both hears the better news: those who wait for more come first

Not here: what is held and committed (`replica.py`, `leader.py`), and what a request does then.
"""

from __future__ import annotations

from collections import deque

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.replication.leader import LeaderCore
from ottla.replication.listeners import HeldWaiter


class Waiters:
    """All that wait for one replica, in the order of their offsets."""

    __slots__ = ("_committing", "_holding")

    def __init__(self) -> None:
        # Offsets never fall from left to right, but for repeats, which then wait a little longer.
        self._holding: deque[tuple[Offset, HeldWaiter]] = deque()
        self._committing: deque[tuple[Offset, HeldWaiter]] = deque()

    @property
    def count(self) -> int:
        return len(self._holding) + len(self._committing)

    def hold(self, offset: Offset, waiter: HeldWaiter) -> None:
        """Let somebody wait until all below `offset` is held."""
        self._holding.append((offset, waiter))

    def commit(self, offset: Offset, waiter: HeldWaiter) -> None:
        """Let somebody wait until all below `offset` is committed."""
        self._committing.append((offset, waiter))

    def release(self, leader: LeaderCore | None, held_offset: Offset) -> None:
        """Tell those whose time has come (rule 27)."""
        if self._committing and leader is not None:
            self._release_committed(leader)
        holding = self._holding
        while holding and holding[0][0] <= held_offset:
            holding.popleft()[1].reached()

    def _release_committed(self, leader: LeaderCore) -> None:
        waiting = self._committing
        while waiting:
            outcome = leader.outcome_of_all(leader.leader_epoch, waiting[0][0])
            if outcome is None:
                return
            _, waiter = waiting.popleft()
            if outcome is ErrorCode.NONE:
                waiter.reached()
            else:
                waiter.failed(RequestError(outcome, "It is written here, on too few others."))

    def fail(self, error: StorageError | RequestError) -> None:
        """Tell everybody that it will not be."""
        waiting = (*self._holding, *self._committing)
        self._holding.clear()
        self._committing.clear()
        for _, waiter in waiting:
            waiter.failed(error)
