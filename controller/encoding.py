"""A topic and its partitions as bytes, within snapshots and deltas.

There are thousands of partitions, so these have a layout of their own. What carries them has a
checksum, so bytes that cannot be read here are a mistake of ours or another program's work: they
are refused, never guessed at.

A topic is its id, its options, and its partitions (format 1, big-endian):

  u8 format | 16 bytes id | options | u32 partitions | each as below
  options: u32 count | each: u32 length, UTF-8 name, u32 length, UTF-8 value
  partition: i32 leader (−1: none), i32 leader epoch, i32 partition epoch, i32 last unclean epoch,
             u8 flags (1 durable, 2 recovering), u16 replicas, u16 isr, u16 elr, their ids as i32

Not here: everything else that has bytes (`parts.py`), and the checksums (`snapshot.py`).

N1  what was encoded decodes to an equal value
N2  anything else raises `CorruptionError`, or `StorageError` if it is of a later format
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import chain, islice
from struct import Struct, pack, unpack
from typing import Final

from ottla.controller.image import PartitionInfo, TopicInfo
from ottla.controller.shapes import Reader
from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import uuid_of

_FORMAT: Final = 1
_ID_BYTES: Final = 16
_NO_LEADER: Final = -1
_BYTE: Final = Struct(">B")
_COUNT: Final = Struct(">I")
_PARTITION: Final = Struct(">iiiiBHHH")
_FIXED: Final = Struct(">iiiiB")
# Thousands of partitions have few different sets of brokers.
_MEMBERS_KEPT: Final = 1024
_DURABLE: Final = 1
_RECOVERING: Final = 2


def encode_topic(topic: TopicInfo) -> bytes:
    parts = [_BYTE.pack(_FORMAT), topic.topic_id.bytes, _options(topic.configs)]
    parts.append(_COUNT.pack(len(topic.partitions)))
    parts += map(encode_partition, topic.partitions)
    return b"".join(parts)


def decode_topic(name: str, data: bytes) -> TopicInfo:
    reader = Reader(data, f"The topic {name!r}")
    _require_format(reader)
    topic_id = uuid_of(reader.take(_ID_BYTES))
    configs = _read_options(reader)
    count = reader.count(_PARTITION.size)
    partitions = tuple(read_partition(reader) for _ in range(count))
    reader.require_end()
    if not partitions:
        raise reader.garbage("it has no partitions")
    return TopicInfo(name, topic_id, partitions, configs)


def encode_partition(one: PartitionInfo) -> bytes:
    fixed = _FIXED.pack(
        _NO_LEADER if one.leader is None else one.leader,
        one.leader_epoch,
        one.partition_epoch,
        one.last_unclean_epoch,
        _DURABLE * one.is_durable | _RECOVERING * one.is_recovering,
    )
    return fixed + _encode_members(one.replicas, one.isr, one.elr)


@lru_cache(_MEMBERS_KEPT)
def _encode_members(*sets: tuple[BrokerId, ...]) -> bytes:
    sizes = tuple(map(len, sets))
    return pack(f">{len(sets)}H{sum(sizes)}i", *sizes, *chain(*sets))


def read_partition(reader: Reader) -> PartitionInfo:
    leader, leader_epoch, partition_epoch, unclean, flags, *sizes = reader.unpack(_PARTITION)
    replicas, isr, elr = _read_members(reader.take(4 * sum(sizes)), *sizes)
    if not replicas:
        raise reader.garbage("a partition has no replicas")
    if flags & ~(_DURABLE | _RECOVERING):
        raise reader.garbage("a partition has flags that nobody knows")
    return PartitionInfo(
        replicas=replicas,
        isr=isr,
        leader=None if leader == _NO_LEADER else BrokerId(leader),
        leader_epoch=LeaderEpoch(leader_epoch),
        partition_epoch=partition_epoch,
        elr=elr,
        is_durable=bool(flags & _DURABLE),
        is_recovering=bool(flags & _RECOVERING),
        last_unclean_epoch=LeaderEpoch(unclean),
    )


@lru_cache(_MEMBERS_KEPT)
def _read_members(data: bytes, *sizes: int) -> tuple[tuple[BrokerId, ...], ...]:
    members = map(BrokerId, unpack(f">{sum(sizes)}i", data))
    return tuple(tuple(islice(members, size)) for size in sizes)


def _options(configs: Mapping[str, str]) -> bytes:
    parts = [_COUNT.pack(len(configs))]
    for text in (text for pair in configs.items() for text in pair):
        encoded = text.encode()
        parts += (_COUNT.pack(len(encoded)), encoded)
    return b"".join(parts)


def _read_options(reader: Reader) -> dict[str, str]:
    count = reader.count(2 * _COUNT.size)
    return {_read_text(reader): _read_text(reader) for _ in range(count)}


def _read_text(reader: Reader) -> str:
    return reader.text(reader.count(1))


def _require_format(reader: Reader) -> None:
    found = reader.take(1)[0]
    if found > _FORMAT:
        raise StorageError(
            f"{reader.what} is of format {found}, and this version of Ottla reads formats up "
            f"to {_FORMAT}. Start the version that wrote it, or a later one."
        )
    if not found:
        raise reader.garbage("there is no format 0")
