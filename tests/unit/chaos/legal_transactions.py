"""Transactions that keep every promise, while answers get lost: what a judge must not mind.

Two partitions, each a list of records and markers. A transaction is decided at one moment, and
gets its marker in each partition at a later one of its own. What is committed is read up to the
first record of a transaction that has no marker there yet. Producers hear of a decision, or do not;
one that does not know goes on when everything is marked, as a successor would.

Some transactions are prepared. Their producer dies, successors keep them, and one of these or an
operator decides, as often as it takes until somebody is told that it is done.

`legal_run(seed)` returns the evidence of such a run; with a `Lie` it is broken in one way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, Final, NamedTuple

from ottla.chaos.evidence import Evidence, FinalRead, Record
from ottla.chaos.history import Kind, Place, Shown
from tests.unit.chaos.story import Story

PLACES: Final = (Place("t", 0), Place("t", 1))
WRITERS: Final = ("a", "b", "c")
READERS: Final = ("r", "s")
_PATIENCE: Final = 400


class Lie(Enum):
    """How a cluster may break its promises."""

    # Readers are shown the first record that is not decided.
    INCLUSIVE = "inclusive"
    # A partition does not get its marker.
    NO_MARKER = "no marker"
    # A partition gets the other marker.
    OTHER_MARKER = "other marker"
    # What was decided counts, and not the offsets.
    NO_OFFSETS = "no offsets"
    # What is prepared is aborted before anybody has decided.
    TIMES_OUT = "times out"
    # Who decides what is prepared is told the opposite of what is done.
    OTHER_DECISION = "decided the other way"


class Entry(NamedTuple):
    """A record, or (without a value) a marker."""

    value: str | None
    writer: Txn | None


@dataclass(eq=False)
class Txn:
    """A transaction as the cluster knows it."""

    name: str
    process: str
    began: dict[Place, int]
    reached: dict[Place, int]
    places: set[Place] = field(default_factory=set)
    is_commit: bool | None = None
    unmarked: set[Place] = field(default_factory=set)
    # By partition how it ended there.
    marks: dict[Place, bool] = field(default_factory=dict)
    # Of one that is prepared: what everybody who decides wants.
    is_to_commit: bool = True

    @property
    def given_name(self) -> str:
        process, _, count = self.name.rpartition("-")
        return f"7:{count}:{process}"


class Bank:
    """The cluster and its clients."""

    def __init__(self, seed: int, lie: Lie | None) -> None:
        self.dice: Final = Random(seed)
        self.story: Final = Story(topics={"t": {}})
        self.lie = lie
        self.logs: Final = {place: list[Entry]() for place in PLACES}
        self.open: Final = dict[str, Txn]()
        self.stands: Final = {name: dict.fromkeys(PLACES, 0) for name in WRITERS}
        self.deciding: Final = list[Txn]()
        # As clients know it.
        self.prepared: Final = dict[str, Txn]()
        self.counts: Final = dict.fromkeys(WRITERS, 0)
        self.positions: Final = {(one, place): 0 for one in READERS for place in PLACES}
        for one, place in self.positions:
            self.story.did("assign", by=one, place=place, offset=0)

    # -- what may happen ---------------------------------------------------------------------------

    def begin(self, process: str) -> None:
        if process in self.prepared or any(one.process == process for one in self.deciding):
            return
        self.counts[process] += 1
        stands = self.stands[process]
        txn = Txn(f"{process}-{self.counts[process]}", process, {**stands}, {**stands})
        self.open[process] = txn
        for place, offset in stands.items():
            self.story.did("assign", by=process, place=place, offset=offset)
        self._note(txn, "begin-txn", tuple(txn.began.items()))
        for lane in range(self.dice.randint(2, 4)):
            place = self.dice.choice(PLACES)
            value = f"{process}.{lane}-{self.counts[process]}"
            txn.places.add(place)
            self.logs[place].append(Entry(value, txn))
            facts: dict[str, Any] = {"place": place, "transaction": txn.name}
            self.story.sent(value, len(self.logs[place]) - 1, is_idempotent=True, **facts)

    def read_in(self, txn: Txn) -> None:
        place = self.dice.choice(PLACES)
        txn.reached[place] = self._poll(
            txn.process, place, txn.reached[place], transaction=txn.name
        )

    def end(self, txn: Txn) -> None:
        del self.open[txn.process]
        how = self.dice.choice(("commit", "commit", "commit", "abort", "unknown", "fenced"))
        if how == "abort":
            self._decide(txn, is_commit=False)
            self._note(txn, "abort-txn", ())
            return
        facts: dict[str, Any] = {"process": txn.process, "function": "commit-txn"}
        facts |= {"transaction": txn.name, "value": f"g{txn.process}"}
        facts["offsets"] = tuple(txn.reached.items())
        self.story._event(Kind.INVOKE, **facts)
        is_commit = how == "commit" or (how == "unknown" and self.dice.random() < 0.5)
        self._decide(txn, is_commit=is_commit)
        kinds = {"commit": Kind.OK, "unknown": Kind.UNKNOWN, "fenced": Kind.FAIL}
        self.story._event(kinds[how], **facts)

    def prepare(self, txn: Txn) -> None:
        self.prepared[txn.process] = self.open.pop(txn.process)
        txn.is_to_commit = self.dice.random() < 0.7
        facts: dict[str, Any] = {"transaction": txn.name, "value": txn.given_name}
        self.story.did("prepare-txn", by=txn.process, **facts)

    def come_back(self, txn: Txn) -> None:
        """A successor keeps what is prepared, and may die again before it decides."""
        if txn.is_commit is None and self._lies(Lie.TIMES_OUT):
            self._decide(txn, is_commit=False)
        found = txn.given_name if txn.is_commit is None else None
        facts: dict[str, Any] = {"process": txn.process, "function": "keep-txn"}
        self.story._event(Kind.INVOKE, **facts, transaction=txn.name)
        self.story._event(Kind.OK, **facts, transaction=txn.name, value=found)
        if found is None:
            del self.prepared[txn.process]
        elif self.dice.random() < 0.5:
            self.decide(txn, txn.process)

    def decide(self, txn: Txn, by: str) -> None:
        """Somebody decides what is prepared; the answer, or the question, may get lost."""
        function = "commit-txn" if txn.is_to_commit else "abort-txn"
        facts: dict[str, Any] = {"process": by, "function": function, "transaction": txn.name}
        facts |= {"value": f"g{txn.process}"}
        facts["offsets"] = tuple(txn.reached.items()) if txn.is_to_commit else ()
        self.story._event(Kind.INVOKE, **facts)
        how = self.dice.choice((Kind.OK, Kind.OK, Kind.UNKNOWN, Kind.FAIL))
        is_taken = how is Kind.OK or (how is Kind.UNKNOWN and self.dice.random() < 0.5)
        if is_taken and txn.is_commit is None:
            is_other = self._lies(Lie.OTHER_DECISION)
            self._decide(txn, is_commit=txn.is_to_commit != is_other)
        self.story._event(how, **facts)
        if how is Kind.OK:
            del self.prepared[txn.process]

    def _decide(self, txn: Txn, *, is_commit: bool) -> None:
        txn.is_commit, txn.unmarked = is_commit, set(txn.places)
        self.deciding.append(txn)
        has_read = txn.reached != txn.began
        if is_commit and has_read and not self._lies(Lie.NO_OFFSETS):
            self.stands[txn.process].update(txn.reached)

    def mark(self, txn: Txn) -> None:
        place = self.dice.choice(sorted(txn.unmarked))
        txn.unmarked.discard(place)
        if not txn.unmarked:
            self.deciding.remove(txn)
        if len(txn.places) > 1 and txn.is_commit and self._lies(Lie.NO_MARKER):
            return
        is_other = len(txn.places) > 1 and self._lies(Lie.OTHER_MARKER)
        txn.marks[place] = bool(txn.is_commit) != is_other
        self.logs[place].append(Entry(None, txn))

    def poll(self) -> None:
        process, place = key = self.dice.choice(sorted(self.positions))
        self.positions[key] = self._poll(process, place, self.positions[key])

    # -- reading -----------------------------------------------------------------------------------

    def last_stable(self, place: Place) -> int:
        for offset, one in enumerate(self.logs[place]):
            if one.value is not None and one.writer and place not in one.writer.marks:
                return offset
        return len(self.logs[place])

    def committed(self, place: Place, begin: int, end: int) -> Iterator[tuple[int, str]]:
        for offset, one in enumerate(self.logs[place][begin:end], begin):
            if one.value is not None and one.writer and one.writer.marks.get(place, True):
                yield offset, one.value

    def _poll(self, process: str, place: Place, position: int, **more: Any) -> int:
        end = self.last_stable(place)
        if self.lie is Lie.INCLUSIVE and end < len(self.logs[place]):
            end += 1
        shown = [Shown(place, at, value, 0) for at, value in self.committed(place, position, end)]
        facts: dict[str, Any] = {"process": process, "function": "poll", "is_committed": True}
        self.story._event(Kind.INVOKE, **facts, **more)
        self.story._event(Kind.OK, **facts, **more, shown=tuple(shown))
        return shown[-1].offset + 1 if shown else position

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> Evidence:
        for txn in list(self.open.values()):
            self.end(txn)
        for txn in list(self.prepared.values()):
            while txn.process in self.prepared:
                self.come_back(txn)
        while self.deciding:
            self.mark(self.dice.choice(self.deciding))
        for process, stands in self.stands.items():
            told: dict[str, Any] = {"value": f"g{process}", "offsets": tuple(stands.items())}
            self.story.did("committed", by="final", phase="final", **told)
        for place, log in self.logs.items():
            stable = self.last_stable(place)
            decided = tuple(Record(at, one, 0) for at, one in self.committed(place, 0, stable))
            self.story.ended(
                FinalRead(
                    place=place,
                    source="committed",
                    turn=1,
                    start_offset=0,
                    high_watermark=stable,
                    records=decided,
                )
            )
            self.story.read({at: one.value for at, one in enumerate(log)}, place=place, start=0)
            markers = [at for at, one in enumerate(log) if one.value is None]
            self.story.with_control_records(*markers)
        return self.story.evidence

    def _note(self, txn: Txn, function: str, offsets: tuple[tuple[Place, int], ...]) -> None:
        facts: dict[str, Any] = {"transaction": txn.name, "value": f"g{txn.process}"}
        self.story.did(function, by=txn.process, offsets=offsets, **facts)

    def _lies(self, lie: Lie) -> bool:
        """Tell this lie once."""
        if self.lie is not lie:
            return False
        self.lie = None
        return True


def legal_run(seed: int, lie: Lie | None = None) -> Evidence:
    bank = Bank(seed, lie)
    for _ in range(_PATIENCE):
        process = bank.dice.choice(WRITERS)
        txn = bank.open.get(process)
        waiting = bank.prepared.get(process)
        roll = bank.dice.random()
        if roll < 0.3:
            bank.poll()
        elif waiting is not None and roll < 0.4:
            bank.come_back(waiting)
        elif waiting is not None and roll < 0.45:
            bank.decide(waiting, f"{process}.operator")
        elif roll < 0.6 and bank.deciding:
            bank.mark(bank.dice.choice(bank.deciding))
        elif txn is None:
            bank.begin(process)
        elif roll < 0.8:
            bank.read_in(txn)
        elif roll < 0.87:
            bank.prepare(txn)
        else:
            bank.end(txn)
    return bank.finish()
