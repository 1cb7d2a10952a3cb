"""What members of a group tell one another through the coordinator, which does not look inside.

A member joins with a *subscription*, and the leader of the group hands out *assignments*. Both have
a format of their own (Kafka's ConsumerProtocol): a version, then fields, never flexible.

    subscription   v0 topics, user data · v1 + owned partitions · v2 + generation · v3 + rack
    assignment     v0 to v3: partitions, user data

P1  the bytes come from other clients: every length is checked, and what is broken is a
    `RemoteProtocolError`
P2  fields after those of the highest version that we know are passed over, as every client does it

Not here: who gets what (`assignors.py`, `sticky.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.primitives import (
    Budget,
    read_count,
    read_nullable_string,
    read_size,
    read_string,
)

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 3
NO_GENERATION: Final = -1
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member wants, and what it has."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    # Of the group when it got what it owns; -1 if it does not say.
    generation: int = NO_GENERATION
    rack: str | None = None
    # A static member's name. It comes with the answer to JoinGroup, not in these bytes.
    instance_id: str | None = None


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    out = bytearray(_INT16.pack(version))
    out += _INT32.pack(len(subscription.topics))
    for topic in subscription.topics:
        out += _string(topic)
    out += _bytes(subscription.user_data)
    if version >= _OWNED_FROM:
        out += encode_partitions(subscription.owned)
    if version >= _GENERATION_FROM:
        out += _INT32.pack(subscription.generation)
    if version >= _RACK_FROM:
        out += b"\xff\xff" if subscription.rack is None else _string(subscription.rack)
    return bytes(out)


def decode_subscription(data: bytes, instance_id: str | None = None) -> Subscription:
    """Return what a member said, or raise `RemoteProtocolError`."""
    what = "subscription"
    version, at = _version(data, what)
    budget = Budget()
    count, at = read_count(data, at, 2, budget, what)
    topics = []
    for _ in range(max(count, 0)):
        topic, at = read_string(data, at, what)
        topics.append(topic)
    user_data, at = _read_bytes(data, at, what)
    owned: tuple[TopicPartition, ...] = ()
    generation = NO_GENERATION
    rack = None
    if version >= _OWNED_FROM and at < len(data):
        owned, at = decode_partitions(data, at, budget, what)
    if version >= _GENERATION_FROM and at < len(data):
        generation, at = _int32(data, at, what)
    if version >= _RACK_FROM and at < len(data):
        rack, at = read_nullable_string(data, at, what)
    return Subscription(tuple(topics), user_data, owned, generation, rack, instance_id)


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None
) -> bytes:
    version = _INT16.pack(ASSIGNMENT_VERSION)
    return version + encode_partitions(partitions) + _bytes(user_data)


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions, in the order of the leader. No bytes at all mean none."""
    if not data:
        return ()
    what = "assignment"
    _, at = _version(data, what)
    partitions, _ = decode_partitions(data, at, Budget(), what)
    return partitions


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return partitions grouped by topic, as both formats and the user data of sticky have them."""
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one.topic, []).append(one.partition)
    out = bytearray(_INT32.pack(len(by_topic)))
    for topic, numbers in by_topic.items():
        out += _string(topic) + struct.pack(f">{len(numbers) + 1}i", len(numbers), *numbers)
    return bytes(out)


def decode_partitions(
    data: bytes, at: int, budget: Budget, what: str
) -> tuple[tuple[TopicPartition, ...], int]:
    topics, at = read_count(data, at, 6, budget, what)
    found: list[TopicPartition] = []
    for _ in range(max(topics, 0)):
        topic, at = read_string(data, at, what)
        count, at = read_count(data, at, 4, budget, what)
        for _ in range(max(count, 0)):
            number, at = _int32(data, at, what)
            found.append(TopicPartition(topic, number))
    return tuple(found), at


@dataclass(frozen=True, slots=True)
class StickyData:
    """The user data of the sticky assignor: what the member had, and since which generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int


def encode_sticky_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    return encode_partitions(partitions) + _INT32.pack(generation)


def decode_sticky_data(data: bytes | None) -> StickyData | None:
    """Return what a member had, or None if its user data are something else."""
    if not data:
        return None
    try:
        partitions, at = decode_partitions(data, 0, Budget(), "sticky user data")
        # Version 0 had no generation.
        generation = NO_GENERATION
        if at < len(data):
            generation, at = _int32(data, at, "sticky user data")
    except RemoteProtocolError:
        return None
    return StickyData(partitions, generation) if at == len(data) else None


def encode_generation(generation: int) -> bytes:
    """Return the user data of the cooperative sticky assignor, for readers before version 2."""
    return _INT32.pack(generation)


def generation_of(data: bytes | None) -> int:
    """Return the generation in the user data of the cooperative sticky assignor, or -1."""
    if data is not None and len(data) == _INT32.size:
        return int(_INT32.unpack(data)[0])
    # librdkafka writes the user data of the other sticky assignor.
    sticky = decode_sticky_data(data)
    return NO_GENERATION if sticky is None else sticky.generation


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for one in sorted(partitions):
        by_topic.setdefault(one.topic, []).append(one.partition)
    return by_topic


def _version(data: bytes, what: str) -> tuple[int, int]:
    if len(data) < _INT16.size:
        raise RemoteProtocolError(f"{what}: {len(data)} bytes, which is not even a version")
    version = int(_INT16.unpack_from(data)[0])
    if version < 0:
        raise RemoteProtocolError(f"{what}: version {version}")
    return version, _INT16.size


def _int32(data: bytes, at: int, what: str) -> tuple[int, int]:
    end = at + _INT32.size
    if end > len(data):
        raise RemoteProtocolError(f"{what}: the bytes end before it does")
    return int(_INT32.unpack_from(data, at)[0]), end


def _read_bytes(data: bytes, at: int, what: str) -> tuple[bytes | None, int]:
    size, at = read_size(data, at, what)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _bytes(data: bytes | None) -> bytes:
    return _INT32.pack(-1) if data is None else _INT32.pack(len(data)) + data
