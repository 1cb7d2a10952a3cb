"""Offsets that are committed in a transaction: written at once, shown when it is committed.

They are transactional batches like any other, of the producer that commits them, in the partition
of the group; so the last stable offset, compaction and the markers know them without being told.
Their sequences are given here: the producer does not count what goes through a coordinator.

I1  an offset of a transaction is shown after its commit marker is committed, or never
I2  a marker is written by the ledger, in one line with what it decides about

Not here: whether the partition belongs to the transaction (`node/transactions/admitting.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.node.groups.ledger import Ledger
from ottla.node.groups.offsets import Changes, Offsets
from ottla.node.groups.records import Key, OffsetKey, encode_offset
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT32_MAX, Offset
from ottla.proto.records.control import EndMarker


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """Who commits in a transaction."""

    producer_id: int
    epoch: int


def commit_in_transaction(
    ledger: Ledger,
    name: str,
    by: TransactionalProducer,
    changes: Changes,
    told: Callable[[ErrorCode | None], None],
) -> None:
    """Write offsets of a group; `told` once, with None when they cannot be lost any more."""
    records: list[tuple[Key, bytes | None]] = [
        (OffsetKey(name, *place), None if value is None else encode_offset(value))
        for place, value in changes.items()
    ]
    batch = ledger.batch_of(records, (by.producer_id, by.epoch, _next_sequence(ledger, by)))
    if ledger.write(batch, lambda _: None, told):
        # In the log, so whoever wants to read what is stable waits from now on (O3).
        offsets = ledger.offsets.setdefault(name, Offsets())
        offsets.pend(by.producer_id, changes, ledger.replica.log.end_offset)
        ledger.undecided.setdefault(by.producer_id, set()).add(name)


def _next_sequence(ledger: Ledger, by: TransactionalProducer) -> int:
    known = ledger.replica.log.producers.get(by.producer_id)
    if known is None or known.epoch != by.epoch or not known.batches:
        return 0
    return (known.last_sequence + 1) & INT32_MAX


def end_transaction(
    ledger: Ledger, end: EndMarker, told: Callable[[ErrorCode | None], None]
) -> None:
    """Write the marker of a transaction; `told` with None when what it says is so (I1)."""

    def apply(_: Offset) -> None:
        for name in ledger.undecided.pop(end.producer_id, ()):
            offsets = ledger.offsets.get(name)
            if offsets is not None:
                offsets.end(end.producer_id, is_commit=end.marker.is_commit)
                ledger.drop_offsets(name)

    ledger.write(end, apply, told)
