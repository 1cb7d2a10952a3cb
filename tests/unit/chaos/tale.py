"""Tells a run with transactions in a few lines: what `Story` does for records.

A transaction here writes one record to each of two partitions, at offset 0 unless told otherwise.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.chaos.evidence import FinalRead, Record
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Log, Story

THERE: Final = Place("t", 1)


class Tale(Story):
    """A story with transactions: `t-1` has the records `t.0-1` here and `t.1-1` there."""

    def begun(self, name: str, at: int = 0, **more: Any) -> Tale:
        """Begin it, and write both records."""
        process, _, count = name.rpartition("-")
        self.did("begin-txn", by=process, transaction=name, **more)
        for lane, place in enumerate((HERE, THERE)):
            value = f"{process}.{lane}-{count}"
            self.sent(value, at, place=place, transaction=name, is_idempotent=True)
        return self

    def decided(
        self,
        name: str,
        kind: Kind = Kind.OK,
        *,
        by: str | None = None,
        is_commit: bool = True,
        **more: Any,
    ) -> Tale:
        """Somebody, its producer unless told otherwise, asks for its end; what came of that."""
        process = name.rpartition("-")[0] if by is None else by
        function = "commit-txn" if is_commit else "abort-txn"
        facts: dict[str, Any] = {"process": process, "function": function, **more}
        self._event(Kind.INVOKE, transaction=name, **facts)
        self._event(kind, transaction=name, **facts)
        return self

    def prepared(self, name: str) -> Tale:
        """Its producer has named it to whoever decides."""
        self.did("prepare-txn", by=name.rpartition("-")[0], transaction=name, value=given(name))
        return self

    def kept(self, name: str, found: str | None, kind: Kind = Kind.OK, **more: Any) -> Tale:
        """A successor, which was to keep this, holds the id and finds something."""
        facts: dict[str, Any] = {"process": name.rpartition("-")[0], "function": "keep-txn"}
        self._event(Kind.INVOKE, transaction=name, **facts, **more)
        self._event(kind, transaction=name, value=found, **facts, **more)
        return self

    def shown(self, log: Log, *, place: Place = HERE, **more: Any) -> Tale:
        """A reader of committed records is shown these."""
        self.polled(log, place=place, is_committed=True, **more)
        return self

    def stands(self, log: Log, *, place: Place = HERE, end: int, turn: int = 1) -> Tale:
        """What is committed at the end, and up to where everything is decided."""
        records = tuple(Record(at, value, 0) for at, value in log.items())
        final = FinalRead(
            place=place, source="committed", turn=turn, start_offset=0, high_watermark=end,
            records=records,
        )  # fmt: skip
        self.ended(final)
        return self

    def whole(self, here: Log, there: Log) -> Tale:
        """Say what is in the log, in which each partition has a marker at its end."""
        for place, log in ((HERE, here), (THERE, there)):
            end = max(log, default=-1) + 2
            self.read({**log, end - 1: None}, place=place, start=0, end=end)
            self.with_control_records(end - 1)
        return self


def given(name: str) -> str:
    """Return the name by which others can decide a transaction."""
    process, _, count = name.rpartition("-")
    return f"7:{count}:{process}"


def ends(tale: Tale, here: Log, there: Log) -> Tale:
    """Say what is committed at the end; everything is decided."""
    for turn in sorted({final.turn for final in tale.evidence.finals}):
        for place, log in ((HERE, here), (THERE, there)):
            end = max(f.high_watermark for f in tale.evidence.finals if f.place == place)
            tale.stands(log, place=place, end=end, turn=turn)
    return tale
