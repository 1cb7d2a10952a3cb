"""The parts of an image as bytes, for the node's state store.

One value per topic, so that a change costs what it changes, whatever else there is. Each value
begins with a format number. The store seals values with a checksum, so bytes that cannot be read
here are a mistake of ours or another program's work: they are refused, never guessed at.

A topic is its id, its options, and its partitions (format 1, big-endian):

  u8 format | 16 bytes id | options | u32 partitions |
    each: i32 leader (−1: none), i32 leader epoch, i32 partition epoch,
          u16 replicas, u16 isr, u16 elr, then their ids as i32
  options: u32 count | each: u32 length, UTF-8 name, u32 length, UTF-8 value

Not here: the keys (`solo.py`) and the checksums (the store).

N1  what was encoded decodes to an equal value
N2  anything else raises `CorruptionError`, or `StorageError` if it is of a later format
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct, pack, unpack_from
from typing import Final

from ottla.controller.image import PartitionInfo, TopicInfo
from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, ProducerId
from ottla.proto.kafka.uuids import uuid_of

_FORMAT: Final = 1
_ID_BYTES: Final = 16
_NO_LEADER: Final = -1
_BYTE: Final = Struct(">B")
_COUNT: Final = Struct(">I")
_PARTITION: Final = Struct(">iiiHHH")
_COUNTERS: Final = Struct(">Bqqq")


@dataclass(frozen=True, slots=True)
class Counters:
    """What counts the whole image and belongs to no part of it."""

    version: int
    next_producer_id: ProducerId
    broker_epoch: int


def encode_topic(topic: TopicInfo) -> bytes:
    parts = [_BYTE.pack(_FORMAT), topic.topic_id.bytes, _options(topic.configs)]
    parts.append(_COUNT.pack(len(topic.partitions)))
    for one in topic.partitions:
        leader = _NO_LEADER if one.leader is None else one.leader
        sizes = (len(one.replicas), len(one.isr), len(one.elr))
        parts.append(_PARTITION.pack(leader, one.leader_epoch, one.partition_epoch, *sizes))
        parts.append(pack(f">{sum(sizes)}i", *one.replicas, *one.isr, *one.elr))
    return b"".join(parts)


def decode_topic(name: str, data: bytes) -> TopicInfo:
    reader = _Reader(data, f"The stored topic {name!r}")
    reader.require_format()
    topic_id = uuid_of(reader.take(_ID_BYTES))
    configs = reader.options()
    count = reader.count(_PARTITION.size)
    partitions = tuple(_partition(reader) for _ in range(count))
    reader.require_end()
    if not partitions:
        raise reader.garbage("it has no partitions")
    return TopicInfo(name, topic_id, partitions, configs)


def _partition(reader: _Reader) -> PartitionInfo:
    leader, leader_epoch, partition_epoch, *sizes = reader.unpack(_PARTITION)
    replicas, isr, elr = (reader.brokers(size) for size in sizes)
    if not replicas:
        raise reader.garbage("a partition has no replicas")
    return PartitionInfo(
        replicas=replicas,
        isr=isr,
        leader=None if leader == _NO_LEADER else BrokerId(leader),
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=partition_epoch,
        elr=elr,
    )


def encode_configs(configs: Mapping[str, str]) -> bytes:
    return _BYTE.pack(_FORMAT) + _options(configs)


def decode_configs(name: str, data: bytes) -> dict[str, str]:
    reader = _Reader(data, f"The stored options of broker {name!r}")
    reader.require_format()
    configs = reader.options()
    reader.require_end()
    return configs


def encode_counters(counters: Counters) -> bytes:
    return _COUNTERS.pack(
        _FORMAT, counters.version, counters.next_producer_id, counters.broker_epoch
    )


def decode_counters(data: bytes) -> Counters:
    reader = _Reader(data, "The stored counters of the metadata")
    reader.require_format()
    reader.rewind()
    _, version, next_producer_id, broker_epoch = reader.unpack(_COUNTERS)
    reader.require_end()
    if min(version, next_producer_id, broker_epoch) < 0:
        raise reader.garbage("a counter is negative")
    return Counters(version, ProducerId(next_producer_id), broker_epoch)


def _options(configs: Mapping[str, str]) -> bytes:
    parts = [_COUNT.pack(len(configs))]
    for text in (text for pair in configs.items() for text in pair):
        encoded = text.encode()
        parts += (_COUNT.pack(len(encoded)), encoded)
    return b"".join(parts)


class _Reader:
    """Takes a value apart from front to back, and says what it was when it cannot."""

    __slots__ = ("_at", "_data", "_what")

    def __init__(self, data: bytes, what: str) -> None:
        self._data = data
        self._what = what
        self._at = 0

    def garbage(self, why: str) -> CorruptionError:
        return CorruptionError(f"{self._what} cannot be read: {why}.")

    def require_format(self) -> None:
        found = self.take(1)[0]
        if found > _FORMAT:
            raise StorageError(
                f"{self._what} is of format {found}, and this version of Ottla reads formats up "
                f"to {_FORMAT}. Start the version that wrote it, or a later one."
            )
        if found != _FORMAT:
            raise self.garbage(f"there is no format {found}")

    def rewind(self) -> None:
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise self.garbage("it ends too early")
        self._at += size
        return taken

    def unpack(self, shape: Struct) -> Sequence[int]:
        return shape.unpack(self.take(shape.size))

    def count(self, size_of_each: int) -> int:
        """Return a number of things to come, for which there is room in what is left."""
        (count,) = self.unpack(_COUNT)
        if count * size_of_each > len(self._data) - self._at:
            raise self.garbage("it ends too early")
        return count

    def brokers(self, count: int) -> tuple[BrokerId, ...]:
        return tuple(map(BrokerId, unpack_from(f">{count}i", self.take(4 * count))))

    def options(self) -> dict[str, str]:
        count = self.count(2 * _COUNT.size)
        return {self._text(): self._text() for _ in range(count)}

    def _text(self) -> str:
        raw = self.take(self.count(1))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.garbage("a text in it is not UTF-8") from None

    def require_end(self) -> None:
        if self._at != len(self._data):
            raise self.garbage("there is more than belongs to it")
