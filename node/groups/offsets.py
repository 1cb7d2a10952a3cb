"""How far one group has come in each partition: offsets that are committed, and that soon will be.

A commit is taken in twice: when it is written (`begin`), and when it is committed in the log
(`settle`). In between nobody is shown it, since another coordinator might not know it; and nobody
lets it expire, since it is newer than whatever would.

What is committed in a transaction waits for longer: until its marker is committed too (`end`). Then
it counts from where it was written, not from where the marker is: so does compaction.

O1  what is shown was committed in the log, and is the last such in the order of the log; what was
    committed in a topic that is gone is not shown
O2  an offset expires only if nothing newer is under way, and only by the rules of retention
O3  of a transaction, all is shown when it was committed, and nothing before or otherwise; who wants
    to read what is stable is told to wait until it is decided

Not here: writing (`ledger.py`), and whether somebody may commit (`group.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.node.groups.records import OffsetValue
from ottla.proto.ids import INT64_MAX

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
        # Where in the log what is committed ends.
        self._ends: Final[dict[Place, int]] = {}
        # By producer: what its transaction says, and where that is.
        self._pending: Final[dict[int, dict[Place, tuple[int, OffsetValue]]]] = {}

    def __len__(self) -> int:
        return len(self._committed)

    def __iter__(self) -> Iterator[Place]:
        return iter(tuple(self._committed))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing here, and nothing on its way."""
        return not self._committed and not self._begun and not self._pending

    def everything(self) -> tuple[Place, ...]:
        """Return all places, also those of which only something under way is known."""
        undecided = {place: None for one in self._pending.values() for place in one}
        return tuple({**self._committed, **self._begun, **undecided})

    @property
    def undecided(self) -> Iterator[int]:
        """Yield the producers whose transactions have offsets here (O3)."""
        return iter(tuple(self._pending))

    def is_unstable(self, place: Place) -> bool:
        """Whether a transaction that is not decided has an offset here (O3)."""
        return any(place in one for one in self._pending.values())

    def get(self, place: Place) -> OffsetValue | None:
        return self._committed.get(place)

    def items(self) -> Collection[tuple[Place, OffsetValue]]:
        return tuple(self._committed.items())

    def begin(self, places: Iterable[Place]) -> None:
        """Take note of what was written to the log, and is not committed yet."""
        # Not `update(places)`: of a mapping that would take the values for counts.
        self._begun.update(iter(places))

    def settle(self, changes: Changes, end: int = 0) -> None:
        """What was begun is committed, and ends there. Called in the order of the log (O1)."""
        self.give_up(changes)
        self.replay(changes, end)

    def give_up(self, places: Iterable[Place]) -> None:
        """What was begun was refused, and is not in the log."""
        for place in places:
            self._begun[place] -= 1
            if self._begun[place] <= 0:
                del self._begun[place]

    def replay(self, changes: Changes, end: int = 0) -> None:
        """Take in what the log says."""
        for place, value in changes.items():
            if value is None:
                self._take_away(place, end)
            else:
                self._committed[place] = value
                self._ends[place] = end

    def hide(self, places: Iterable[Place]) -> None:
        """Show these no more: their topic is gone, and the log will say so in a moment."""
        for place in places:
            self._take_away(place, INT64_MAX)

    def _take_away(self, place: Place, end: int) -> None:
        """Forget what was written here below `end`."""
        self._committed.pop(place, None)
        self._ends.pop(place, None)
        for producer_id, undecided in tuple(self._pending.items()):
            if place in undecided and undecided[place][0] <= end:
                del undecided[place]
            if not undecided:
                del self._pending[producer_id]

    # ── Transactions ──────────────────────────────────────────────────────────────────────────

    def pend(self, producer_id: int, changes: Changes, end: int) -> None:
        """Take note of what a transaction has written, up to there."""
        undecided = self._pending.setdefault(producer_id, {})
        for place, value in changes.items():
            if value is not None:
                undecided[place] = (end, value)

    def end(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a transaction is committed (O3)."""
        for place, (end, value) in self._pending.pop(producer_id, {}).items():
            if is_commit and self._ends.get(place, -1) < end:
                self._committed[place] = value
                self._ends[place] = end

    def expired(self, by: Retention) -> list[Place]:
        """Return what may go now (O2)."""
        return [
            place
            for place, value in self._committed.items()
            if place not in self._begun
            and not self.is_unstable(place)
            and _is_expired(place, value, by)
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
