"""What stands in `__consumer_offsets`, in Kafka's own bytes: keys, values, and nothing else.

A key says by its first two bytes what kind of record it is. Kafka 4.3 writes committed offsets
under keys of version 1 with values of version 3 (1, if the commit says when it expires), and groups
under keys of version 2 with values of version 3; so do we. All versions ever written are read.

R1  what is written here is read back the same
R2  whatever the bytes, a reader returns or raises `RecordsError`
R3  keys of kinds that we do not know are passed over: newer nodes may have written them

Not here: batches (`ottla.proto.records`), and what groups make of it (`group.py`, `offsets.py`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from ottla.node.groups.record_reader import RecordReader, unreadable
from ottla.proto.errors import RecordsError

_OFFSET_KEYS: Final = (0, 1)
_OFFSET_KEY: Final = 1
_GROUP_KEY: Final = 2
_OFFSET_VALUE: Final = 3
# The one that knows when it expires.
_EXPIRING_VALUE: Final = 1
_GROUP_VALUE: Final = 3
_FLEXIBLE_VALUE: Final = 4
_VALUE_MAX: Final = 4
_NO_EPOCH: Final = -1
_NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """Whose offset it is: of a group, in a partition."""

    group: str
    topic: str
    partition: int

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The name of a group."""

    group: str


@dataclass(frozen=True, slots=True)
class OffsetValue:
    """A committed offset: the next one to be read."""

    offset: int
    # Of the record before it, as far as the member knew; -1: it did not.
    leader_epoch: int
    # A text that the member keeps beside it.
    metadata: str
    # Times of day.
    commit_ms: int
    # None: as the options say. Only old clients choose.
    expire_ms: int | None = None


@dataclass(frozen=True, slots=True)
class MemberValue:
    """A member, as the log knows it."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    # Its metadata for the protocol that was chosen.
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupValue:
    """A generation of a group, as the log knows it."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    # Time of day; -1: not known.
    since_ms: int
    members: tuple[MemberValue, ...] = ()


Key = OffsetKey | GroupKey


# ── Writing ───────────────────────────────────────────────────────────────────────────────────


def _text(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def encode_key(key: Key) -> bytes:
    if isinstance(key, GroupKey):
        return struct.pack(">h", _GROUP_KEY) + _text(key.group)
    head = struct.pack(">h", _OFFSET_KEY) + _text(key.group) + _text(key.topic)
    return head + struct.pack(">i", key.partition)


def encode_offset(value: OffsetValue) -> bytes:
    if value.expire_ms is None:
        head = struct.pack(">hqi", _OFFSET_VALUE, value.offset, value.leader_epoch)
        return head + _text(value.metadata) + struct.pack(">q", value.commit_ms)
    head = struct.pack(">hq", _EXPIRING_VALUE, value.offset)
    return head + _text(value.metadata) + struct.pack(">qq", value.commit_ms, value.expire_ms)


def encode_group(value: GroupValue) -> bytes:
    parts = [
        struct.pack(">h", _GROUP_VALUE),
        _text(value.protocol_type),
        struct.pack(">i", value.generation),
        _text(value.protocol),
        _text(value.leader),
        struct.pack(">qi", value.since_ms, len(value.members)),
    ]
    for one in value.members:
        parts += [
            _text(one.member_id),
            _text(one.instance_id),
            _text(one.client_id),
            _text(one.client_host),
            struct.pack(">ii", one.rebalance_ms, one.session_ms),
            _bytes(one.subscription),
            _bytes(one.assignment),
        ]
    return b"".join(parts)


# ── Reading ───────────────────────────────────────────────────────────────────────────────────


def decode_key(data: bytes) -> Key | None:
    """Return what a record is about, or None if it is of a kind that we do not know (R3)."""
    reader = RecordReader(data)
    version = reader.number(">h")
    if version in _OFFSET_KEYS:
        return OffsetKey(reader.text(), reader.text(), reader.number(">i"))
    return GroupKey(reader.text()) if version == _GROUP_KEY else None


def _begin(data: bytes) -> tuple[RecordReader, int]:
    reader = RecordReader(data)
    version = reader.number(">h")
    if not 0 <= version <= _VALUE_MAX:
        raise unreadable(f"it has version {version}")
    reader.is_flexible = version >= _FLEXIBLE_VALUE
    return reader, version


def decode_offset(data: bytes) -> OffsetValue:
    reader, version = _begin(data)
    offset = reader.number(">q")
    epoch = reader.number(">i") if version >= 3 else _NO_EPOCH
    metadata = reader.text()
    commit_ms = reader.number(">q")
    expire_ms = reader.number(">q") if version == _EXPIRING_VALUE else _NO_TIME
    reader.tags()
    return OffsetValue(
        offset, epoch, metadata, commit_ms, None if expire_ms == _NO_TIME else expire_ms
    )


def decode_group(data: bytes) -> GroupValue:
    reader, version = _begin(data)
    protocol_type, generation = reader.text(), reader.number(">i")
    protocol, leader = reader.maybe_text(), reader.maybe_text()
    since_ms = reader.number(">q") if version >= 2 else _NO_TIME
    members = tuple(_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    return GroupValue(protocol_type, generation, protocol, leader, since_ms, members)


def _member(reader: RecordReader, version: int) -> MemberValue:
    member_id = reader.text()
    instance_id = reader.maybe_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_ms = reader.number(">i") if version >= 1 else None
    session_ms = reader.number(">i")
    subscription, assignment = reader.data(), reader.data()
    reader.tags()
    return MemberValue(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Before there was such a thing it was the same.
        rebalance_ms=session_ms if rebalance_ms is None else rebalance_ms,
        session_ms=session_ms,
        subscription=subscription,
        assignment=assignment,
    )


# ── What consumers say of themselves ──────────────────────────────────────────────────────────


def topics_of(subscription: bytes) -> frozenset[str] | None:
    """Return the topics that a consumer subscribes to, or None if that cannot be read."""
    reader = RecordReader(subscription)
    try:
        reader.number(">h")
        return frozenset(reader.text() for _ in range(reader.count()))
    except RecordsError:
        return None
