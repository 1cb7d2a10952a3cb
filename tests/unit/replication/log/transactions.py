"""Producers that write transactions into one log, for tests."""

from __future__ import annotations

from ottla.proto.records.control import EndMarker, Marker
from ottla.replication.log.append import Appended
from ottla.replication.log.log import Log
from ottla.replication.transactions import Aborted
from tests.builders import NOW_MS, Told, produced

COORDINATOR = 3


def write(
    log: Log, producer_id: int, *told: Told, epoch: int = 0, sequence: int | None = None
) -> Appended:
    """Append a transactional batch, admitted if that is needed, with the next sequence."""
    known = log.producers.get(producer_id)
    if sequence is None:
        goes_on = known is not None and known.epoch == epoch
        sequence = known.last_sequence + 1 if known is not None and goes_on else 0
    if log.producers.transactions.first_offset_of(producer_id) is None:
        admit(log, producer_id, epoch)
    raw = produced(
        *(told or (b"x",)),
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
        transactional=True,
    )
    return log.append_as_leader(raw, epoch=log.epochs.latest, now_ms=NOW_MS)


def admit(log: Log, producer_id: int, epoch: int = 0) -> None:
    transactions = log.producers.transactions
    assert transactions.admit(transactions.guard(producer_id, epoch))


def end(
    log: Log,
    producer_id: int,
    *,
    is_commit: bool,
    epoch: int = 0,
    coordinator: int = COORDINATOR,
    is_bumped: bool = False,
) -> Appended:
    marker = EndMarker(producer_id, epoch, Marker(is_commit, coordinator), is_bumped)
    return log.append_as_leader(marker, epoch=log.epochs.latest, now_ms=NOW_MS)


def aborted(log: Log) -> list[Aborted]:
    """Return all that was aborted in what is left of the log."""
    return log.aborted.overlapping(log.segments, log.start_offset, log.end_offset)
