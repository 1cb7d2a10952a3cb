"""What stands in `__transaction_state`, in Kafka's own bytes: keys, values, and nothing else.

Kafka 4.3 writes keys of version 0 and values of version 1, and so do we; both versions of values
are read. One field is Kafka's of the day after (KIP-939): the epoch of who goes on, tag 3.

R1  what is written here is read back the same
R2  whatever the bytes, a reader returns or raises `RecordsError`
R3  keys of kinds that we do not know are passed over: newer nodes may have written them

Not here: what becomes of it (`transaction.py`).
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.node.groups.record_reader import RecordReader, unreadable
from ottla.node.transactions.words import (
    OLD_CLIENT,
    STATES_BY_NUMBER,
    Place,
    State,
    TransactionValue,
)
from ottla.proto.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_KEY: Final = 0
_VALUE: Final = 1
_PREVIOUS_ID: Final = 0
_NEXT_ID: Final = 1
_CLIENT_VERSION: Final = 2
_NEXT_EPOCH: Final = 3
# Tag, shape, and what is not written.
_TAGS: Final = (
    (_PREVIOUS_ID, ">q", NO_PRODUCER_ID),
    (_NEXT_ID, ">q", NO_PRODUCER_ID),
    (_CLIENT_VERSION, ">h", OLD_CLIENT),
    (_NEXT_EPOCH, ">h", NO_PRODUCER_EPOCH),
)


# ── Writing ───────────────────────────────────────────────────────────────────────────────────


def encode_key(transactional_id: str) -> bytes:
    data = transactional_id.encode()
    return struct.pack(">hh", _KEY, len(data)) + data


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _partitions(value: TransactionValue) -> bytes:
    if value.state is State.EMPTY:
        # Kafka has no list there.
        return _uvarint(0)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(value.partitions):
        topics.setdefault(topic, []).append(index)
    parts = [_uvarint(len(topics) + 1)]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [_uvarint(len(name) + 1), name, _uvarint(len(indexes) + 1)]
        parts += [struct.pack(f">{len(indexes)}i", *indexes), _uvarint(0)]
    return b"".join(parts)


def encode_value(value: TransactionValue) -> bytes:
    fields = {
        _PREVIOUS_ID: value.previous_producer_id,
        _NEXT_ID: value.next_producer_id,
        _CLIENT_VERSION: value.client_version,
        _NEXT_EPOCH: value.next_producer_epoch,
    }
    tags = [
        (tag, struct.pack(shape, fields[tag]))
        for tag, shape, default in _TAGS
        if fields[tag] != default
    ]
    return b"".join(
        (
            struct.pack(
                ">hqhib",
                _VALUE,
                value.producer_id,
                value.producer_epoch,
                value.timeout_ms,
                value.state.number,
            ),
            _partitions(value),
            struct.pack(">qq", value.updated_ms, value.started_ms),
            _uvarint(len(tags)),
            *(_uvarint(tag) + _uvarint(len(data)) + data for tag, data in tags),
        )
    )


# ── Reading ───────────────────────────────────────────────────────────────────────────────────


def decode_key(data: bytes) -> str | None:
    """Return the transactional id, or None if the record is of a kind that we do not know (R3)."""
    reader = RecordReader(data)
    return reader.text() if reader.number(">h") == _KEY else None


def decode_value(data: bytes) -> TransactionValue:
    reader = RecordReader(data)
    version = reader.number(">h")
    if not 0 <= version <= _VALUE:
        raise unreadable(f"it has version {version}")
    reader.is_flexible = version == _VALUE
    producer_id, epoch = reader.number(">q"), reader.number(">h")
    timeout_ms, number = reader.number(">i"), reader.number(">b")
    state = STATES_BY_NUMBER.get(number)
    if state is None:
        raise unreadable(f"it has state {number}")
    partitions = frozenset(_read_partitions(reader))
    updated_ms, started_ms = reader.number(">q"), reader.number(">q")
    tags = reader.tags()

    def tagged(tag: int) -> int:
        _, shape, default = _TAGS[tag]
        return default if tag not in tags else RecordReader(tags[tag]).number(shape)

    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset() if state is State.EMPTY else partitions,
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=tagged(_PREVIOUS_ID),
        next_producer_id=tagged(_NEXT_ID),
        next_producer_epoch=tagged(_NEXT_EPOCH),
        client_version=tagged(_CLIENT_VERSION),
    )


def _read_partitions(reader: RecordReader) -> list[Place]:
    found = list[Place]()
    for _ in range(reader.maybe_count()):
        topic = reader.text()
        found += [(topic, reader.number(">i")) for _ in range(reader.count())]
        reader.tags()
    return found
