"""Which leader wrote which part of a log, and where two logs part.

Two hikers compare diaries: they need not read every page, only find the last day on which both
wrote the same. Leader epochs are the days.

E1  epochs strictly increase, and so do their start offsets
E2  no entry starts above the end of the log (repaired when a log is opened, rule 49b)

Not here: making the history durable (`log/state.py`), or asking a leader for its own (rule 42).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from ottla.proto.errors import ensure
from ottla.proto.ids import NO_EPOCH, LeaderEpoch, Offset


class EpochStart(NamedTuple):
    """The first offset that a leader epoch wrote, or would have written."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """The first offset that an epoch surely did not write."""

    epoch: LeaderEpoch
    end_offset: Offset


class EpochHistory:
    """The leader epochs of one log, oldest first."""

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._entries: list[EpochStart] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        return tuple(self._entries)

    @property
    def latest(self) -> LeaderEpoch:
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Begin an epoch at `start_offset`; return whether that changed anything.

        An older epoch that starts there or later wrote nothing that is still in the log, so its
        entry goes: it would break E1 and could only mislead a follower.
        """
        ensure(epoch >= 0, "a leader epoch is not negative", epoch=epoch)
        if self._entries and self._entries[-1].epoch == epoch:
            return False
        ensure(epoch > self.latest, "leader epochs only grow", epoch=epoch, latest=self.latest)
        while self._entries and self._entries[-1].start_offset >= start_offset:
            self._entries.pop()
        self._entries.append(EpochStart(epoch, start_offset))
        return True

    def end_of(self, epoch: LeaderEpoch, end_offset: Offset) -> EpochEnd | None:
        """Return where the largest known epoch ≤ `epoch` ends (rule 40), or None if unknowable.

        `end_offset` is the end of the log: where the latest epoch ends so far.
        """
        if not self._entries or epoch > self.latest or epoch < 0:
            return None
        if epoch == self.latest:
            return EpochEnd(epoch, end_offset)
        first = self._entries[0]
        if epoch < first.epoch:
            return EpochEnd(epoch, first.start_offset)
        above = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        return EpochEnd(self._entries[above - 1].epoch, self._entries[above].start_offset)

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """Return the epoch that wrote `offset`, or `NO_EPOCH` if that is not known."""
        above = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[above - 1].epoch if above else NO_EPOCH

    def truncate_end(self, end_offset: Offset) -> None:
        """Forget epochs that start at `end_offset` or later: the log was cut there."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()

    def drop_above(self, end_offset: Offset) -> bool:
        """Forget epochs that start beyond the end of the log (E2); return whether there were any.

        Unlike a truncation it keeps an epoch that starts exactly at the end: a leader that was
        elected and wrote nothing yet (rule 21).
        """
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset > end_offset:
            self._entries.pop()
        return len(self._entries) < before

    def truncate_start(self, start_offset: Offset) -> None:
        """Forget epochs that lie wholly below `start_offset`."""
        above = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if above == 0:
            return
        covering = self._entries[above - 1]
        self._entries[:above] = [EpochStart(covering.epoch, start_offset)]

    def clear(self) -> None:
        self._entries.clear()

    def describe(self) -> str:
        return " ".join(f"{epoch}@{start}" for epoch, start in self._entries) or "(no epochs)"
