"""Sends, each with what it asked for and what became of it.

Not here: what an error means (`outcomes.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ottla.chaos.history import Kind, Operation, Place
from ottla.chaos.payload import key_of

ALL: Final = -1
# When something ends of which nobody saw the end.
NEVER_NS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Send:
    """One value that somebody tried to write."""

    # The event that began it.
    index: int
    process: str
    place: Place
    value: str
    key: str
    acks: int
    kind: Kind
    # −1: nobody said where.
    offset: int
    begun_ns: int
    ended_ns: int
    node: int | None
    attempts: int
    is_idempotent: bool
    is_tombstone: bool
    # It must be in the log at the end, if it is not deleted by intention.
    is_promised: bool
    # The transaction that it is part of.
    transaction: str | None = None

    def __str__(self) -> str:
        return f"{self.value} of {self.place}"


def client_of(send: Send) -> str:
    """Return which producer sent it: several processes share one, as `k1.0` and `k1.1` share k1."""
    return send.process.partition(".")[0]


def sends_in(operations: Iterable[Operation]) -> Iterator[Send]:
    for one in operations:
        begin, end = one.begin, one.end
        if begin.function != "send" or begin.place is None or begin.value is None:
            continue
        acks = ALL if begin.acks is None else begin.acks
        is_kept = end is not None and end.is_kept
        offset = None if end is None else end.offset
        yield Send(
            index=begin.index,
            process=begin.process,
            place=begin.place,
            value=begin.value,
            key=begin.key if begin.key is not None else key_of(begin.value),
            acks=acks,
            kind=one.kind,
            offset=-1 if offset is None or one.kind is not Kind.OK else offset,
            begun_ns=begin.t_ns,
            ended_ns=NEVER_NS if end is None else end.t_ns,
            node=None if end is None else end.node,
            attempts=0 if end is None else end.attempts,
            is_idempotent=begin.is_idempotent,
            is_tombstone=begin.is_tombstone,
            is_promised=acks == ALL and (one.kind is Kind.OK or is_kept),
            transaction=begin.transaction,
        )
