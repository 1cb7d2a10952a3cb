"""What one log knows of transactions: which are open, which have just ended, which were admitted.

A café with open tabs. A tab is opened with the first order, and closed with "paid" or "never mind".
What may be entered in the books ends before the first order that is still on an open tab: that is
the last stable offset. A tab that was closed a moment ago counts as open until nobody can take the
closing back: until its marker is below the high watermark.

T1  the last stable offset is at most the high watermark, and at most the first offset of every
    transaction that is open, or whose marker is not committed
T2  a transaction begins only with a batch that was admitted: the coordinator has said that this
    partition belongs to it, and no marker was written since (rule 64b)
T3  everything but what was admitted is a function of the batches of the log

Not here: sequences (`producers.py`), which transactions were aborted (`log/aborted.py`), and when
one ends (its coordinator).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.proto.ids import Offset


class Ended(NamedTuple):
    """A transaction of a producer that has its marker in this log."""

    producer_id: int
    first_offset: int
    # Of the marker.
    last_offset: int


class Aborted(NamedTuple):
    """A transaction that was aborted, as Kafka's index of them has it."""

    producer_id: int
    first_offset: int
    # Of the marker.
    last_offset: int
    # Everything below was decided once the marker was there.
    last_stable_offset: int


class Guard:
    """Stands for one question to a coordinator. A marker that comes meanwhile makes it void."""

    __slots__ = ("producer_epoch", "producer_id")

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id: Final = producer_id
        self.producer_epoch: Final = producer_epoch


class Transactions:
    """The transactions of one log that somebody may still have to wait for."""

    def __init__(self) -> None:
        # By producer, in the order of their first offsets.
        self._open: dict[int, int] = {}
        # With markers that may not be committed yet, in the order of the markers.
        self._ended: deque[Ended] = deque()
        # By producer: questions under way. Each belongs to a request that waits for its answer, and
        # goes with it: there are no more than requests in flight, which connections bound.
        self._guards: dict[int, set[Guard]] = {}
        # Producer and epoch whose next batch may begin a transaction (T2).
        self._admitted: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._open or self._ended)

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def opened(self) -> Iterator[tuple[int, int]]:
        """Yield producer id and first offset of each that is open, lowest offset first."""
        return iter(self._open.items())

    @property
    def ended(self) -> tuple[Ended, ...]:
        return tuple(self._ended)

    def first_offset_of(self, producer_id: int) -> int | None:
        """Return where the open transaction of a producer began, or None if it has none."""
        return self._open.get(producer_id)

    def first_open(self) -> int | None:
        return next(iter(self._open.values()), None)

    def last_stable(self, high_watermark: Offset) -> Offset:
        """Return below which offset everything is committed and decided (T1)."""
        if not (self._open or self._ended):
            return high_watermark
        while self._ended and self._ended[0].last_offset < high_watermark:
            self._ended.popleft()
        first = min(high_watermark, next(iter(self._open.values()), high_watermark))
        return Offset(min(first, *(one.first_offset for one in self._ended), high_watermark))

    # ── Admission ─────────────────────────────────────────────────────────────────────────────

    def guard(self, producer_id: int, producer_epoch: int) -> Guard:
        """Begin to ask the coordinator whether this producer may write here."""
        guard = Guard(producer_id, producer_epoch)
        self._guards.setdefault(producer_id, set()).add(guard)
        return guard

    def admit(self, guard: Guard) -> bool:
        """Let the next batch begin a transaction; return False if the answer came too late."""
        if not self.drop(guard):
            return False
        self._admitted[guard.producer_id] = guard.producer_epoch
        return True

    def drop(self, guard: Guard) -> bool:
        """Nobody asks any more; return False if the question was void already."""
        guards = self._guards.get(guard.producer_id, set())
        if guard not in guards:
            return False
        guards.remove(guard)
        if not guards:
            del self._guards[guard.producer_id]
        return True

    def void(self, producer_id: int) -> None:
        """A marker came: what was asked or answered before it does not count any more (T2)."""
        self._guards.pop(producer_id, None)
        self._admitted.pop(producer_id, None)

    def may_write(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transactional batch may be appended now (T2)."""
        return producer_id in self._open or self._admitted.get(producer_id) == producer_epoch

    def forget_admissions(self) -> None:
        """Another one leads, or did: who was admitted asks again."""
        self._guards.clear()
        self._admitted.clear()

    # ── What the log says ─────────────────────────────────────────────────────────────────────

    def wrote(self, producer_id: int, base_offset: int) -> None:
        """A transactional batch is in the log."""
        self._admitted.pop(producer_id, None)
        self._open.setdefault(producer_id, base_offset)

    def ends(self, producer_id: int, marker_offset: int) -> Ended | None:
        """A marker is in the log; return the transaction that it ends, if there is one."""
        self.void(producer_id)
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = Ended(producer_id, first_offset, marker_offset)
        self._ended.append(ended)
        return ended

    def restore(self, opened: dict[int, int], ended: list[Ended]) -> None:
        """Put back what a snapshot remembers."""
        self._open = dict(sorted(opened.items(), key=lambda item: item[1]))
        self._ended = deque(sorted(ended, key=lambda one: one.last_offset))
