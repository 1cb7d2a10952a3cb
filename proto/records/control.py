"""Control batches: the markers that say how a transaction ended in one partition.

A transaction leaves its records in many partitions, and in each of them one marker behind them, as
a line is drawn under a sum: committed, or aborted. A marker is a batch of one record that clients
never see.

    key    version int16 (0) · kind int16 (0 abort, 1 commit)
    value  version int16 (0) · coordinator epoch int32

Not here: when a transaction ends (`node/transactions`), what a log makes of it
(`replication/producers.py`).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ottla.proto.errors import RecordsError
from ottla.proto.records.build import build_batch
from ottla.proto.records.decode import iterate_records
from ottla.proto.records.record import Record

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


class Marker(NamedTuple):
    """How the transaction of a producer ended, as its coordinator has said."""

    is_commit: bool
    # The leader epoch of the coordinator's partition: a deposed coordinator is told by it.
    coordinator_epoch: int


class EndMarker(NamedTuple):
    """A marker to be written for a producer."""

    producer_id: int
    producer_epoch: int
    marker: Marker
    # The transaction has ended with a new epoch, in which it wrote nothing (KIP-890).
    is_bumped: bool = False


def build_marker(end: EndMarker, *, timestamp: int) -> bytes:
    """Return the control batch for it, as a producer's batch: at offset 0, not stamped."""
    kind = _COMMIT if end.marker.is_commit else _ABORT
    record = Record(
        0,
        timestamp,
        _KEY.pack(_VERSION, kind),
        _VALUE.pack(_VERSION, end.marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        producer_id=end.producer_id,
        producer_epoch=end.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: bytes | bytearray | memoryview) -> Marker | None:
    """Return the marker in a control batch, or None if it is empty or says something else.

    Kafka's quorum has other kinds, and a newer node may have more; whoever does not understand one
    leaves the transaction open, which shows nothing that is not decided.
    """
    try:
        record = next(iterate_records(batch), None)
    except RecordsError:
        return None
    key = b"" if record is None else record.key or b""
    value = b"" if record is None else record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        return None
    _, kind = _KEY.unpack_from(key)
    _, coordinator_epoch = _VALUE.unpack_from(value)
    return Marker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
