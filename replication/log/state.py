"""What the state store keeps of each partition, and the bytes it keeps it as.

    partition/<topic>-<n>            PartitionState: one small record
    producers/<topic>-<n>/<offset>   the producers as they were when the log ended at <offset>
    clean-shutdown                   the broker epoch of a node that stopped properly (rule 50)

Every change of a record is one transaction, so its parts never disagree: a recovery point never
stands beside epochs that it has outrun (rule 49b).

Not here: when to write it (`log.py`, `manager.py`), and the checksum around each value (the
store's own business).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import (
    FIRST_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from ottla.replication.epochs import EpochStart
from ottla.replication.producers import (
    BATCHES_MAX,
    NO_COORDINATOR,
    Placed,
    Producer,
    ProducerStates,
)
from ottla.replication.transactions import Ended

CLEAN_SHUTDOWN_KEY: Final = b"clean-shutdown"
PARTITION_PREFIX: Final = b"partition/"
_PRODUCERS_PREFIX: Final = b"producers/"

_VERSION: Final = 2
# Beyond this it is no version that anybody will ever write.
_VERSION_MAX: Final = 31
_FIXED: Final = struct.Struct(">BqqqIIqqqqqqq16s")
_COUNT: Final = struct.Struct(">I")
_EPOCH: Final = struct.Struct(">iq")
_PENDING: Final = struct.Struct(">BqqII")
_OFFSET: Final = struct.Struct(">q")
# Version 3 has transactions; 2, from before there were any, is still read.
_SNAPSHOT_VERSION: Final = 3
_SNAPSHOT_WITHOUT: Final = 2
_SNAPSHOT_HEAD: Final = struct.Struct(">BI")
_PRODUCER_WITHOUT: Final = struct.Struct(">qhqB")
_PRODUCER: Final = struct.Struct(">qhqBi")
_OPEN: Final = struct.Struct(">qq")
_ENDED: Final = struct.Struct(">qqq")
_PLACED: Final = struct.Struct(">iiqqq")


class Intent(IntEnum):
    """What was begun on the files of a partition and has to be finished when it is opened."""

    NOTHING = 0
    # A cleaned segment takes the place of its sources.
    SWAP = 1
    # All segments go, and the log starts anew at an offset.
    RESET = 2
    # The partition itself goes.
    DELETE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """An intent, committed before the first file is touched."""

    intent: Intent = Intent.NOTHING
    # SWAP: base of the cleaned segment. RESET: where the log starts anew.
    offset: Offset = FIRST_OFFSET
    # SWAP: bases of all the segments it replaces.
    sources: tuple[Offset, ...] = ()
    # SWAP: size and checksum of the cleaned segment's file.
    size: int = 0
    crc: int = 0


NOTHING_PENDING: Final = Pending()
# Nobody has said whose partition it is, or the record that said so is lost.
NO_TOPIC_ID: Final = bytes(16)


class Trusted(NamedTuple):
    """What is known of a segment below a position, so that nobody has to read it again."""

    # How many entries of its indexes are synced.
    index_entries: int
    time_entries: int
    # The largest timestamp, and the last offset of the batch that has it.
    max_timestamp: int
    max_timestamp_offset: int


NOTHING_TRUSTED: Final = Trusted(0, 0, NO_TIMESTAMP, -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """The durable facts about one partition that its files do not tell."""

    # Everything below is synced and was checked: recovery looks only at what lies above.
    recovery_point: Offset
    # Where the recovery point lies: base offset of its segment, and the position in that file.
    recovery_base: Offset
    recovery_position: int
    # What is known of that segment below the recovery point.
    trusted: Trusted = NOTHING_TRUSTED
    # First offset that may be read (rule 49c).
    start_offset: Offset
    # A hint, exact when written; never above what this replica had.
    high_watermark: Offset
    # Compaction has seen everything below.
    cleaned_to: Offset = FIRST_OFFSET
    # Compaction, here or at the leader, may have left gaps in the offsets below.
    gaps_below: Offset = FIRST_OFFSET
    # The earliest time at which a tombstone may go; −1 if none waits.
    horizon_ms: int = -1
    # Whose partition it is: a topic that is made again has the same name and another id (rule 5).
    topic_id: bytes = NO_TOPIC_ID
    epochs: tuple[EpochStart, ...] = ()
    pending: Pending = NOTHING_PENDING


def new_state(start_offset: Offset, topic_id: bytes = NO_TOPIC_ID) -> PartitionState:
    return PartitionState(
        topic_id=topic_id,
        recovery_point=start_offset,
        recovery_base=start_offset,
        recovery_position=0,
        start_offset=start_offset,
        high_watermark=start_offset,
        cleaned_to=start_offset,
    )


def partition_key(name: str) -> bytes:
    return PARTITION_PREFIX + name.encode()


def producers_prefix(name: str) -> bytes:
    return _PRODUCERS_PREFIX + name.encode() + b"/"


def producers_key(name: str, offset: Offset) -> bytes:
    return producers_prefix(name) + _OFFSET.pack(offset)


def snapshot_offset(key: bytes) -> Offset:
    """Return the offset at the end of a producers key."""
    return Offset(_OFFSET.unpack(key[-8:])[0])


def encode_state(state: PartitionState) -> bytes:
    parts = [
        _FIXED.pack(
            _VERSION,
            state.recovery_point,
            state.recovery_base,
            state.recovery_position,
            *state.trusted,
            state.start_offset,
            state.high_watermark,
            state.cleaned_to,
            state.gaps_below,
            state.horizon_ms,
            state.topic_id,
        ),
        _COUNT.pack(len(state.epochs)),
        *(_EPOCH.pack(*entry) for entry in state.epochs),
        _PENDING.pack(
            state.pending.intent,
            state.pending.offset,
            state.pending.size,
            state.pending.crc,
            len(state.pending.sources),
        ),
        *(_OFFSET.pack(source) for source in state.pending.sources),
    ]
    return b"".join(parts)


def decode_state(name: str, value: bytes) -> PartitionState:
    """Return the record, or raise `CorruptionError` for bytes that `encode_state` did not make.

    A record of a newer program is a plain `StorageError`: it is not damaged, and not to be rebuilt.
    """
    if value and _VERSION < value[0] <= _VERSION_MAX:
        raise StorageError(
            f"the state record of {name} has format version {value[0]}; "
            f"this program knows {_VERSION}"
        )
    try:
        return _decode_state(value)
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"the state record of {name} cannot be read: {error}") from error


def _decode_state(value: bytes) -> PartitionState:
    version, *fixed = _FIXED.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"format version {version}, this program knows {_VERSION}")
    at = _FIXED.size
    (count,) = _COUNT.unpack_from(value, at)
    at += _COUNT.size
    if count * _EPOCH.size > len(value) - at:
        raise ValueError(f"{count} epochs in {len(value) - at} bytes")
    epochs = []
    for epoch, start in _EPOCH.iter_unpack(value[at : at + count * _EPOCH.size]):
        epochs.append(EpochStart(LeaderEpoch(epoch), Offset(start)))
    for older, newer in pairwise(epochs):
        if newer.epoch <= older.epoch or newer.start_offset <= older.start_offset:
            raise ValueError(f"epochs do not grow: {older} before {newer}")
    at += count * _EPOCH.size
    intent, offset, size, crc, source_count = _PENDING.unpack_from(value, at)
    at += _PENDING.size
    if source_count * _OFFSET.size != len(value) - at:
        raise ValueError(f"{source_count} sources in {len(value) - at} bytes")
    sources = tuple(Offset(source) for (source,) in _OFFSET.iter_unpack(value[at:]))
    return PartitionState(
        recovery_point=Offset(fixed[0]),
        recovery_base=Offset(fixed[1]),
        recovery_position=fixed[2],
        trusted=Trusted._make(fixed[3:7]),
        start_offset=Offset(fixed[7]),
        high_watermark=Offset(fixed[8]),
        cleaned_to=Offset(fixed[9]),
        gaps_below=Offset(fixed[10]),
        horizon_ms=fixed[11],
        topic_id=fixed[12],
        epochs=tuple(epochs),
        pending=Pending(
            intent=Intent(intent), offset=Offset(offset), sources=sources, size=size, crc=crc
        ),
    )


def encode_producers(producers: ProducerStates) -> bytes:
    parts = [_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, len(producers))]
    for producer in producers:
        parts.append(
            _PRODUCER.pack(
                producer.producer_id,
                producer.epoch,
                producer.last_seen_ms,
                len(producer.batches),
                producer.coordinator_epoch,
            )
        )
        parts.extend(_PLACED.pack(*placed) for placed in producer.batches)
    transactions = producers.transactions
    parts.append(_COUNT.pack(transactions.open_count))
    parts.extend(_OPEN.pack(*one) for one in transactions.opened)
    parts.append(_COUNT.pack(len(transactions.ended)))
    parts.extend(_ENDED.pack(*one) for one in transactions.ended)
    return b"".join(parts)


def decode_producers(name: str, value: bytes) -> ProducerStates:
    """Return the producers, or raise `CorruptionError`."""
    try:
        return _decode_producers(value)
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"a producer snapshot of {name} cannot be read: {error}") from error


def _decode_producers(value: bytes) -> ProducerStates:
    version, count = _SNAPSHOT_HEAD.unpack_from(value)
    if version not in (_SNAPSHOT_WITHOUT, _SNAPSHOT_VERSION):
        raise ValueError(f"format version {version}, this program knows {_SNAPSHOT_VERSION}")
    at = _SNAPSHOT_HEAD.size
    producers = ProducerStates()
    for _ in range(count):
        producer, at = _decode_producer(value, at, is_old=version == _SNAPSHOT_WITHOUT)
        producers.restore(producer)
    if version == _SNAPSHOT_VERSION:
        at = _decode_transactions(value, at, producers)
    if at != len(value):
        raise ValueError(f"{len(value) - at} bytes are left over")
    return producers


def _decode_producer(value: bytes, at: int, *, is_old: bool) -> tuple[Producer, int]:
    layout = _PRODUCER_WITHOUT if is_old else _PRODUCER
    producer_id, epoch, timestamp, batch_count, *rest = layout.unpack_from(value, at)
    at += layout.size
    if batch_count > BATCHES_MAX:
        raise ValueError(f"producer {producer_id} has {batch_count} batches")
    end = at + batch_count * _PLACED.size
    if end > len(value):
        raise ValueError(f"it ends inside producer {producer_id}")
    batches = deque((Placed._make(row) for row in _PLACED.iter_unpack(value[at:end])), BATCHES_MAX)
    producer = Producer(ProducerId(producer_id), ProducerEpoch(epoch), timestamp, batches)
    producer.coordinator_epoch = rest[0] if rest else NO_COORDINATOR
    return producer, end


def _decode_transactions(value: bytes, at: int, producers: ProducerStates) -> int:
    opened, at = _rows(value, at, _OPEN)
    ended, at = _rows(value, at, _ENDED)
    for producer_id, _ in opened:
        if producers.get(producer_id) is None:
            raise ValueError(f"producer {producer_id} has a transaction, and is not known")
    producers.transactions.restore(
        {row[0]: row[1] for row in opened}, [Ended._make(one) for one in ended]
    )
    return at


def _rows(value: bytes, at: int, layout: struct.Struct) -> tuple[list[tuple[int, ...]], int]:
    (count,) = _COUNT.unpack_from(value, at)
    at += _COUNT.size
    end = at + count * layout.size
    if end > len(value):
        raise ValueError(f"{count} transactions in {len(value) - at} bytes")
    return list(layout.iter_unpack(value[at:end])), end


def forgotten(name: str, keys: Iterable[bytes]) -> dict[bytes, bytes | None]:
    """Return the changes that make the store forget a partition and its producer snapshots."""
    changes: dict[bytes, bytes | None] = dict.fromkeys(keys)
    changes[partition_key(name)] = None
    return changes
