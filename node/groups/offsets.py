"""How far one group has come in each partition: offsets that are committed, and that soon will be.

A commit is taken in twice: when it is written (`begin`), and when it is committed in the log
(`settle`). In between nobody is shown it, since another coordinator might not know it; and nobody
lets it expire, since it is newer than whatever would.

O1  what is shown was committed in the log, and is the last such in the order of the log; what was
    committed in a topic that is gone is not shown
O2  an offset expires only if nothing newer is under way, and only by the rules of retention

Not here: writing (`ledger.py`), and whether somebody may commit (`group.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.node.groups.records import OffsetValue

Place = tuple[str, int]
# None takes the offset away: a tombstone.
Changes = Mapping[Place, OffsetValue | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What decides whether an offset of a group has expired."""

    # Time of day.
    now_ms: int
    # offsets.retention.minutes
    keep_ms: int
    # Since when the group has had no members; None: it has some, or never had any.
    empty_since_ms: int | None
    has_members: bool
    # What its members subscribe to; None: nobody can tell.
    subscribed: frozenset[str] | None = None


class Offsets:
    """The offsets of one group."""

    def __init__(self) -> None:
        self._committed: Final[dict[Place, OffsetValue]] = {}
        # How many writes of each place are under way.
        self._begun: Final[Counter[Place]] = Counter()

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[Place]:
        return iter(tuple(self._committed))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing here, and nothing on its way."""
        return not self._committed and not self._begun

    def everything(self) -> tuple[Place, ...]:
        """Return all places, also those of which only something under way is known."""
        return tuple({**self._committed, **self._begun})

    def get(self, place: Place) -> OffsetValue | None:
        return self._committed.get(place)

    def items(self) -> Collection[tuple[Place, OffsetValue]]:
        return tuple(self._committed.items())

    def begin(self, places: Iterable[Place]) -> None:
        """Take note of what was written to the log, and is not committed yet."""
        # Not `update(places)`: of a mapping that would take the values for counts.
        self._begun.update(iter(places))

    def settle(self, changes: Changes) -> None:
        """What was begun is committed. Called in the order of the log (O1)."""
        self.give_up(changes)
        self.replay(changes)

    def give_up(self, places: Iterable[Place]) -> None:
        """What was begun was refused, and is not in the log."""
        for place in places:
            self._begun[place] -= 1
            if self._begun[place] <= 0:
                del self._begun[place]

    def replay(self, changes: Changes) -> None:
        """Take in what the log says."""
        for place, value in changes.items():
            if value is None:
                self._committed.pop(place, None)
            else:
                self._committed[place] = value

    def hide(self, places: Iterable[Place]) -> None:
        """Show these no more: their topic is gone, and the log will say so in a moment."""
        for place in places:
            self._committed.pop(place, None)

    def expired(self, by: Retention) -> list[Place]:
        """Return what may go now (O2)."""
        return [
            place
            for place, value in self._committed.items()
            if place not in self._begun and _is_expired(place, value, by)
        ]


def _is_expired(place: Place, value: OffsetValue, by: Retention) -> bool:
    if by.has_members and (by.subscribed is None or place[0] in by.subscribed):
        return False
    if value.expire_ms is not None:
        return value.expire_ms <= by.now_ms
    since_ms = value.commit_ms
    if by.empty_since_ms is not None:
        # A commit from outside, to a group without members, is newer than that.
        since_ms = max(since_ms, by.empty_since_ms)
    return since_ms + by.keep_ms <= by.now_ms
