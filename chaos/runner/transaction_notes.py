"""What one producer writes down of its transactions: their sends, their ends, and where it stands.

Each record of a transaction is a send of a lane of its own, so that a process does one thing at a
time. What became of a record and what became of its transaction are two things: a record that is
acknowledged is in the log, also of a transaction that is aborted.

Not here: what a client says (`foreign_transactor.py`, `own_transactor.py`).

N1  of a send that a client never tells of, nobody knows: it ends when the next transaction begins,
    and what is told of it later does not count
N2  a transaction has surely not been committed if nobody has ever asked for that
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.chaos.history import Kind, Place
from ottla.chaos.runner.recorder import (
    ABORT_TXN,
    ASSIGN,
    BEGIN_TXN,
    COMMIT_TXN,
    COMMITTED,
    KEEP_TXN,
    PREPARE_TXN,
    SEND,
    Recorder,
)
from ottla.chaos.workload import ALL, ProcessPlan

TRANSACTION_MS: Final = 10_000
# Shorter than a transaction may be open.
DELIVERY_MS: Final = 8_000


class TransactionNotes:
    """The notes of one process, through all lives of its producer."""

    def __init__(self, plan: ProcessPlan, recorder: Recorder) -> None:
        self._plan: Final = plan
        self._recorder: Final = recorder
        self._count = 0
        self.transaction = ""
        # By lane: what it sends now.
        self._open: Final = dict[int, int]()
        self._bad = 0
        # Where its next transaction reads on, and where this one stands; None: it has to ask.
        self.positions: dict[Place, int] | None = None
        self.reached: Final = dict[Place, int]()

    # -- records ---------------------------------------------------------------------------------

    def begin(self) -> None:
        self.give_up()
        self._count += 1
        self._bad = 0
        self.transaction = f"{self._plan.name}-{self._count}"
        self.reached.clear()
        self.reached.update(self.positions or {})
        self._note(BEGIN_TXN, offsets=tuple(sorted(self.reached.items())))

    def send(self, lane: int, place: Place) -> tuple[str, int]:
        """Return the value to send, and the index by which `sent` knows it."""
        name = f"{self._plan.name}.{lane}"
        value = f"{name}-{self._count}"
        index = self._recorder.begin(
            name,
            SEND,
            place=place,
            value=value,
            acks=ALL,
            is_idempotent=True,
            transaction=self.transaction,
            # No library says how often it sent something.
            attempts=0,
        )
        self._open[lane] = index
        return value, index

    def sent(self, lane: int, index: int, kind: Kind, **fields: Any) -> None:
        """Take what became of a send (N1)."""
        if self._open.get(lane) != index:
            return
        del self._open[lane]
        self._bad += kind is not Kind.OK and not fields.get("is_kept", False)
        self._recorder.end(index, kind, **fields)

    @property
    def is_all_sent(self) -> bool:
        """Whether every record of this transaction is acknowledged."""
        return not self._open and not self._bad

    def give_up(self) -> None:
        for lane in list(self._open):
            self._give_up(lane)

    def _give_up(self, lane: int) -> None:
        index = self._open.get(lane)
        if index is not None:
            self.sent(lane, index, Kind.UNKNOWN, error="NEVER_TOLD")

    # -- ends ------------------------------------------------------------------------------------

    def begin_end(self, *, commit: bool, by: str | None = None, phase: str = "main") -> int:
        """Take that somebody, its own producer unless named, asks for the end of this one."""
        moved = {} if self.positions is None else self.reached
        offsets = tuple(sorted(moved.items())) if commit else ()
        function = COMMIT_TXN if commit else ABORT_TXN
        facts = {**self._facts(), "offsets": offsets, "phase": phase}
        return self._recorder.begin(by or self._plan.name, function, **facts)

    def end(self, index: int, kind: Kind, error: str | None = None) -> None:
        self._recorder.end(index, kind, error=error)

    def committed(self) -> None:
        """Take that the next transaction reads on from here."""
        if self.positions is not None:
            self.positions = dict(self.reached)

    # -- what is prepared ------------------------------------------------------------------------

    def begin_prepare(self) -> int:
        return self._recorder.begin(self._plan.name, PREPARE_TXN, transaction=self.transaction)

    def prepared(self, index: int, name: str) -> None:
        """Take the name by which others can decide it."""
        self._recorder.end(index, Kind.OK, value=name)

    def begin_keep(self, *, is_waiting: bool, by: str | None = None, phase: str = "main") -> int:
        """Take that a successor asks what is open, and whether it should be this transaction."""
        transaction = self.transaction if is_waiting else None
        name = by or self._plan.name
        return self._recorder.begin(name, KEEP_TXN, transaction=transaction, phase=phase)

    def kept(self, index: int, found: str | None) -> None:
        self._recorder.end(index, Kind.OK, value=found)

    # -- reading ---------------------------------------------------------------------------------

    def look(self) -> int:
        """Begin to ask what the group has committed."""
        return self._recorder.begin(self._plan.name, COMMITTED, value=self._plan.group)

    def found(self, index: int, offsets: Mapping[Place, int]) -> None:
        """Take where the group stands (−1: nowhere yet): it is read on from there."""
        self._recorder.end(index, Kind.OK, offsets=tuple(sorted(offsets.items())))
        self.positions = {place: max(0, offset) for place, offset in offsets.items()}
        for place, offset in self.positions.items():
            self._recorder.note(self._plan.name, ASSIGN, place=place, offset=offset)

    def not_found(self, index: int, error: str) -> None:
        self._recorder.end(index, Kind.FAIL, error=error)

    def _note(self, function: str, **fields: Any) -> None:
        self._recorder.note(self._plan.name, function, **self._facts(), **fields)

    def _facts(self) -> dict[str, Any]:
        return {"transaction": self.transaction, "value": self._plan.group or None}
