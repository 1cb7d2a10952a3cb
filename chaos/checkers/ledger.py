"""The transactions of a run: what each tried, what became of it, and who was shown any of it.

A transaction is *committed* if a client was told so. It is *surely not* if nobody ever asked for
that, or if the client was told that it is not. Everything else is unknown: then all of it may be
there, or nothing. It is *binding* if it is committed, or if it is unknown and a reader of committed
records was shown any of it: from then on all of it has to be there.

What is prepared is decided by others, who may have to ask more than once. All of them ask for the
same, so what any of them was told counts: committed rather than unknown, unknown rather than not.

Not here: verdicts (`transactions.py`, `prepared.py`), the records themselves (`case.py`).

L1  only what was shown to readers of committed records counts as shown here: in the log there is
    also what was aborted
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.chaos.checkers.sends import NEVER_NS, Send
from ottla.chaos.evidence import FinalRead
from ottla.chaos.history import Event, Kind, Operation, Place, Shown

COMMITTED: Final = "committed"
_BEGIN: Final = "begin-txn"
COMMIT: Final = "commit-txn"
_ABORT: Final = "abort-txn"
_PREPARE: Final = "prepare-txn"
_KEEP: Final = "keep-txn"
# Of what several were told about one thing, the first of these counts.
_SUREST: Final = (Kind.OK, Kind.UNKNOWN, Kind.FAIL)
# After these a reader is elsewhere.
_RESETS: Final = frozenset({"assign", "subscribe", "seek", "crash"})


@dataclass(slots=True)
class Transaction:
    """One transaction."""

    name: str
    # The event that began it.
    index: int
    group: str | None = None
    # OK: committed. FAIL: surely not.
    kind: Kind = Kind.FAIL
    # When it was first asked to be committed, and by which event; None: never.
    asked_ns: int | None = None
    asked: int = -1
    sends: list[Send] = field(default_factory=list)
    # What it was shown in it, by which event.
    reads: list[tuple[int, Shown]] = field(default_factory=list)
    # Where it began to read, and the offsets that are part of it.
    began: Mapping[Place, int] = field(default_factory=dict)
    ended: Mapping[Place, int] = field(default_factory=dict)
    # The operation by which it was prepared; None: it was not.
    prepared: Operation | None = None
    # All that asked for its end, in the order in which they began.
    ends: list[Operation] = field(default_factory=list)

    @property
    def name_given(self) -> str | None:
        """Return the name by which others can decide it."""
        end = None if self.prepared is None else self.prepared.end
        return None if end is None else end.value

    def take_end(self, one: Operation) -> None:
        """Take that somebody asked for its end."""
        self.ends.append(one)
        if one.begin.function != COMMIT:
            return
        if self.asked_ns is None:
            self.asked_ns, self.asked = one.begin.t_ns, one.index
        self.kind = min(self.kind, one.kind, key=_SUREST.index)
        self.ended = dict(one.begin.offsets) or self.ended

    @property
    def decided_ns(self) -> int:
        """Return from when on it may be decided: somebody asked, and did not surely fail."""
        may_have = (one.begin.t_ns for one in self.ends if one.kind is not Kind.FAIL)
        return min(may_have, default=NEVER_NS)

    @property
    def is_only_to_commit(self) -> bool:
        """Whether somebody asked for a commit, and nobody for anything else."""
        return {one.begin.function for one in self.ends} == {COMMIT}


class Passage(NamedTuple):
    """What one reader of committed records was shown of a partition, from where it began."""

    process: str
    place: Place
    start: int
    shown: dict[int, int]

    @property
    def end(self) -> int:
        return max(self.shown, default=-1) + 1


class CommittedSight(NamedTuple):
    """That a reader of committed records was shown a value."""

    place: Place
    offset: int
    value: str
    # None: by a final read.
    event: Event | None


class Ledger:
    """All transactions of a run."""

    def __init__(
        self,
        operations: Sequence[Operation],
        sends: Iterable[Send],
        events: Iterable[Event],
        finals: Iterable[FinalRead],
    ) -> None:
        self.transactions: Final = _transactions_in(operations, sends)
        self.writer: Final = {
            send.value: one for one in self.transactions.values() for send in one.sends
        }
        # Successors that were told what is open under their id.
        self.looks: Final = [
            one for one in operations if one.begin.function == _KEEP and one.kind is Kind.OK
        ]
        self.polls: Final = [one for one in events if one.is_committed or one.function in _RESETS]
        # By partition and turn.
        self.finals: Final = {
            (one.place, one.turn): one for one in finals if one.source == COMMITTED
        }
        self.shown: Final = {
            self.writer[one.value].name for one in self.sights() if one.value in self.writer
        }

    def __bool__(self) -> bool:
        return bool(self.transactions)

    def is_binding(self, transaction: Transaction) -> bool:
        is_shown = transaction.kind is Kind.UNKNOWN and transaction.name in self.shown
        return transaction.kind is Kind.OK or is_shown

    def must_be_shown(self, value: str) -> bool:
        """Whether readers of committed records may not pass over a record."""
        written = self.writer.get(value)
        return written is None or self.is_binding(written)

    def sights(self) -> Iterator[CommittedSight]:
        for event in self.polls:
            for place, offset, value, _ in event.shown:
                if value is not None:
                    yield CommittedSight(place, offset, value, event)
        for read in self.finals.values():
            for one in read.records:
                if one.value is not None:
                    yield CommittedSight(read.place, one.offset, one.value, None)

    def passages(self) -> list[Passage]:
        """Return where each reader of committed records has been, without a jump in between."""
        done = list[Passage]()
        now = dict[tuple[str, Place], Passage]()
        for event in self.polls:
            if event.function in _RESETS:
                if event.kind is Kind.OK:
                    _reset(event, now, done)
                continue
            for place, offset, _, _ in event.shown:
                key = event.process, place
                if key not in now:
                    now[key] = Passage(event.process, place, offset, {})
                now[key].shown.setdefault(offset, event.index)
        return [*done, *now.values()]


def _reset(event: Event, now: dict[tuple[str, Place], Passage], done: list[Passage]) -> None:
    places = (
        [at for process, at in now if process == event.process]
        if event.place is None
        else [event.place]
    )
    for place in places:
        before = now.pop((event.process, place), None)
        if before is not None:
            done.append(before)
    if event.place is not None and event.offset is not None:
        key = event.process, event.place
        now[key] = Passage(event.process, event.place, event.offset, {})


def _transactions_in(
    operations: Sequence[Operation], sends: Iterable[Send]
) -> dict[str, Transaction]:
    found = dict[str, Transaction]()
    for one in operations:
        begin, end = one.begin, one.end
        name = (begin if end is None else end).transaction
        if name is None:
            continue
        known = found.setdefault(name, Transaction(name, one.index))
        if begin.function == _BEGIN:
            known.group, known.began = begin.value, dict(begin.offsets)
        elif begin.function in (COMMIT, _ABORT):
            known.take_end(one)
        elif begin.function == _PREPARE and one.kind is Kind.OK:
            known.prepared = one
        elif begin.function == "poll" and end is not None:
            known.reads += [(end.index, shown) for shown in end.shown]
    by_name = defaultdict[str, list[Send]](list)
    for send in sends:
        if send.transaction is not None:
            by_name[send.transaction].append(send)
    for name, transaction in found.items():
        transaction.sends = by_name[name]
    return found
