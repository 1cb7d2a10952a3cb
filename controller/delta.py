"""The difference of two images, for the stream of metadata to brokers.

Images share what stayed the same, so the difference is found by looking for what is another object.
One look at each topic remains; the rest costs what changed.

Not here: how it is sent, and from which image (`ottla.node`).

D1  `follow(before, delta_between(before, after))` is `after`
D2  nobody follows back: what is older is passed over, and what contradicts what is known already
    raises `InvariantError`, because one of two controllers is wrong and nobody can tell which (68)
D3  after a gap there is nothing to follow: the broker needs a whole image
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import compress
from operator import is_not
from typing import Final

from ottla.controller.encoding import encode_partition, read_partition
from ottla.controller.image import (
    BrokerInfo,
    ClusterDefaults,
    MetadataImage,
    PartitionInfo,
    TopicInfo,
)
from ottla.controller.parts import (
    BROKER,
    DEFAULTS,
    OPTIONS,
    TOPIC,
    read_endpoints,
    write_endpoints,
)
from ottla.controller.shapes import (
    BYTES,
    ID,
    NUMBER,
    TEXT,
    Reader,
    Shape,
    listed,
    mapped,
    optional,
    record,
)
from ottla.proto.errors import ensure
from ottla.proto.ids import BrokerId, ProducerId
from ottla.proto.kafka.uuids import UUID


@dataclass(frozen=True, slots=True)
class TopicDelta:
    """What is new about a topic that was there before."""

    topic_id: UUID
    # New or changed ones, by number.
    partitions: Mapping[int, PartitionInfo]
    # All of them, if any is new; None: they are as they were.
    configs: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Delta:
    """What leads from one image to a later one."""

    from_version: int
    from_digest: bytes
    version: int
    digest: bytes
    controller_id: BrokerId
    controller_epoch: int
    next_producer_id: ProducerId
    feature_level: int
    defaults: ClusterDefaults
    brokers: tuple[BrokerInfo, ...] = ()
    brokers_gone: tuple[BrokerId, ...] = ()
    topics: tuple[TopicInfo, ...] = ()
    topics_changed: tuple[TopicDelta, ...] = ()
    topics_gone: tuple[UUID, ...] = ()
    # By name; without options: gone.
    broker_configs: Mapping[str, Mapping[str, str]] | None = None


def delta_between(before: MetadataImage, after: MetadataImage) -> Delta:
    brokers = () if before.brokers is after.brokers else tuple(_new_brokers(before, after))
    others = _other_topics(before, after)
    topics = tuple(topic for topic in others if topic.topic_id not in before.topic_names)
    return Delta(
        from_version=before.version,
        from_digest=before.digest,
        version=after.version,
        digest=after.digest,
        controller_id=after.controller_id,
        controller_epoch=after.controller_epoch,
        next_producer_id=after.next_producer_id,
        feature_level=after.feature_level,
        defaults=after.defaults,
        brokers=brokers,
        brokers_gone=tuple(key for key in before.brokers if key not in after.brokers),
        topics=topics,
        topics_changed=tuple(_changed_topics(before, others)),
        topics_gone=_gone_topics(before, after, len(topics)),
        broker_configs=_new_configs(before, after),
    )


def _new_brokers(before: MetadataImage, after: MetadataImage) -> Iterator[BrokerInfo]:
    return (one for key, one in after.brokers.items() if before.brokers.get(key) != one)


def _other_topics(before: MetadataImage, after: MetadataImage) -> list[TopicInfo]:
    """Return the topics of `after` that are not the same objects in `before`.

    Names keep their hashes and ids do not, so for all the others no id is looked up.
    """
    if before.topics is after.topics:
        return []
    topics = after.topics.values()
    return list(compress(topics, map(is_not, topics, map(before.topics.get, after.topics))))


def _gone_topics(before: MetadataImage, after: MetadataImage, new_topics: int) -> tuple[UUID, ...]:
    # Whatever is not new was there before.
    count = len(before.topics) - (len(after.topics) - new_topics)
    if count == 0:
        return ()
    others = _other_topics(after, before)
    gone = tuple(topic.topic_id for topic in others if topic.topic_id not in after.topic_names)
    if count == 1:
        return gone
    # The digest runs over their order, which is that of the ids.
    return tuple(key for key in before.topic_names if key not in after.topic_names)


def _changed_topics(before: MetadataImage, others: list[TopicInfo]) -> Iterator[TopicDelta]:
    for topic in others:
        old = before.topics.get(topic.name)
        if old is None or old.topic_id != topic.topic_id or old == topic:
            continue
        present = len(old.partitions)
        partitions = {
            index: one
            for index, one in enumerate(topic.partitions)
            if index >= present
            or (one is not old.partitions[index] and one != old.partitions[index])
        }
        configs = None if old.configs == topic.configs else topic.configs
        yield TopicDelta(topic.topic_id, partitions, configs)


def _new_configs(
    before: MetadataImage, after: MetadataImage
) -> Mapping[str, Mapping[str, str]] | None:
    old, new = before.broker_configs, after.broker_configs
    if old is new or old == new:
        return None
    changed = {name: options for name, options in new.items() if old.get(name) != options}
    return {**changed, **{name: {} for name in old if name not in new}}


# ── Following ─────────────────────────────────────────────────────────────────────────────────


class NotFollowed(Enum):
    """Why there is no next image."""

    OLD = "it is no newer than what is known"
    GAP = "something between what is known and this is missing"


def follow(image: MetadataImage, delta: Delta) -> MetadataImage | NotFollowed:
    """Return the next image, or why there is none."""
    if delta.version <= image.version:
        if delta.version == image.version:
            _require_same(image, delta.version, delta.digest)
        return NotFollowed.OLD
    if delta.from_version != image.version:
        return NotFollowed.GAP
    _require_same(image, delta.from_version, delta.from_digest)
    return _followed(image, delta)


def follow_whole(image: MetadataImage, whole: MetadataImage) -> MetadataImage | NotFollowed:
    """Return the image that was sent whole, if it is newer."""
    ensure(image.cluster_id == whole.cluster_id, "the metadata is of this cluster")
    if whole.version <= image.version:
        if whole.version == image.version:
            _require_same(image, whole.version, whole.digest)
        return NotFollowed.OLD
    for topic in whole.topics.values():
        old = image.topic_by_id(topic.topic_id)
        for was, now in zip(old.partitions if old else (), topic.partitions, strict=False):
            _require_forward(topic, was, now)
    return whole


def _require_same(image: MetadataImage, version: int, digest: bytes) -> None:
    ensure(
        digest == image.digest,
        "one version of the metadata is the same wherever it comes from",
        version=version,
        ours=image.digest.hex(),
        theirs=digest.hex(),
    )


def _require_forward(topic: TopicInfo, was: PartitionInfo, now: PartitionInfo) -> None:
    ensure(
        now.partition_epoch >= was.partition_epoch and now.leader_epoch >= was.leader_epoch,
        "the epochs of a partition only grow",
        topic=topic.name,
        was=was,
        now=now,
    )


def _followed(image: MetadataImage, delta: Delta) -> MetadataImage:
    gone = frozenset(delta.topics_gone)
    topics = {key: one for key, one in image.topics.items() if one.topic_id not in gone}
    topics |= {topic.name: topic for topic in delta.topics}
    for change in delta.topics_changed:
        old = image.topic_by_id(change.topic_id)
        ensure(old is not None, "a changed topic is known", topic_id=change.topic_id)
        if old is not None:
            topics[old.name] = _changed(old, change)
    brokers = {key: one for key, one in image.brokers.items() if key not in delta.brokers_gone}
    brokers |= {broker.broker_id: broker for broker in delta.brokers}
    configs = {**image.broker_configs, **(delta.broker_configs or {})}
    return replace(
        image,
        version=delta.version,
        digest=delta.digest,
        controller_id=delta.controller_id,
        controller_epoch=delta.controller_epoch,
        next_producer_id=delta.next_producer_id,
        feature_level=delta.feature_level,
        defaults=delta.defaults,
        brokers=dict(sorted(brokers.items())),
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        broker_configs={name: options for name, options in configs.items() if options},
    )


def _changed(old: TopicInfo, change: TopicDelta) -> TopicInfo:
    partitions = list(old.partitions)
    for index in sorted(change.partitions):
        partition = change.partitions[index]
        ensure(0 <= index <= len(partitions), "partitions have no gaps", topic=old.name)
        if index == len(partitions):
            partitions.append(partition)
        else:
            _require_forward(old, partitions[index], partition)
            partitions[index] = partition
    configs = old.configs if change.configs is None else change.configs
    return replace(old, partitions=tuple(partitions), configs=configs)


# ── Bytes ─────────────────────────────────────────────────────────────────────────────────────


def _write_partitions(out: bytearray, partitions: Mapping[int, PartitionInfo]) -> None:
    NUMBER.write(out, len(partitions))
    for index, partition in partitions.items():
        NUMBER.write(out, index)
        out += encode_partition(partition)


def _read_partitions(reader: Reader) -> Mapping[int, PartitionInfo]:
    count = reader.require_room(reader.number(), 1)
    return {reader.number(): read_partition(reader) for _ in range(count)}


_DELTA: Final = record(
    Delta,
    from_version=NUMBER,
    from_digest=BYTES,
    version=NUMBER,
    digest=BYTES,
    controller_id=NUMBER,
    controller_epoch=NUMBER,
    next_producer_id=NUMBER,
    feature_level=NUMBER,
    defaults=DEFAULTS,
    brokers=listed(BROKER),
    brokers_gone=listed(NUMBER),
    topics=listed(TOPIC),
    topics_changed=listed(
        record(
            TopicDelta,
            topic_id=ID,
            partitions=Shape(_write_partitions, _read_partitions),
            configs=optional(OPTIONS),
        )
    ),
    topics_gone=listed(ID),
    broker_configs=optional(mapped(TEXT, OPTIONS)),
)


# What it begins with, up to the digest.
_HEAD: Final = record(Delta, from_version=NUMBER, from_digest=BYTES, version=NUMBER, digest=BYTES)


def encode_delta(delta: Delta) -> bytes:
    out = bytearray()
    _DELTA.write(out, delta)
    write_endpoints(out, delta.brokers)
    return bytes(out)


def with_digest(data: bytes, before: Delta, after: Delta) -> bytes:
    """Return the bytes of `after`, given those of `before`, which has another digest.

    A digest runs over the bytes; so those of thousands of partitions are made only once.
    """
    old, new = bytearray(), bytearray()
    _HEAD.write(old, before)
    _HEAD.write(new, after)
    return bytes(new) + data[len(old) :]


def decode_delta(data: bytes) -> Delta:
    """Return the delta, or raise `CorruptionError`. The stream that carries it has checksums."""
    reader = Reader(data, "The delta of the metadata")
    delta = _DELTA.read(reader)
    brokers = read_endpoints(reader, delta.brokers)
    reader.require_end()
    return replace(delta, brokers=brokers)
