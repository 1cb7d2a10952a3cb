"""What is told of newer metadata: who came, left, was fenced; which partitions are not as before.

An image shares with the next one everything that stayed the same, so most of it is passed by.

Not here: when and where it is written (`trace.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.controller.election import min_insync_of
from ottla.controller.image import BrokerInfo, MetadataImage, TopicInfo
from ottla.proto.ids import BrokerId

Facts = dict[str, Any]


def changes(before: MetadataImage | None, after: MetadataImage) -> Iterator[tuple[str, Facts]]:
    """Yield an event and its facts for each change; without an image before, for everything."""
    if before is after:
        return
    version = {"version": after.version, "digest": after.digest.hex()}
    office = {"controller": after.controller_id, "controller_epoch": after.controller_epoch}
    yield "metadata", version | office
    for event, broker in _broker_changes({} if before is None else before.brokers, after.brokers):
        yield event, _broker_facts(broker)
    for topic in _gone(before, after):
        yield "deleted", {"topic": topic.name, "topic_id": str(topic.topic_id)}
    for topic, index in _partition_changes(before, after):
        yield "partition", _partition_facts(after, topic, index)


def _gone(before: MetadataImage | None, after: MetadataImage) -> Iterator[TopicInfo]:
    for name, topic in ({} if before is None else before.topics).items():
        now = after.topics.get(name)
        if now is not topic and (now is None or now.topic_id != topic.topic_id):
            yield topic


def _broker_changes(
    before: Mapping[BrokerId, BrokerInfo], after: Mapping[BrokerId, BrokerInfo]
) -> Iterator[tuple[str, BrokerInfo]]:
    for broker_id, broker in after.items():
        old = before.get(broker_id)
        if old is None or old.broker_epoch != broker.broker_epoch:
            yield "registered", broker
        elif old.is_fenced != broker.is_fenced:
            yield ("fenced" if broker.is_fenced else "unfenced"), broker
        elif old.shutdown_version is None and broker.shutdown_version is not None:
            yield "leaving", broker
    for broker_id, broker in before.items():
        if broker_id not in after:
            yield "unregistered", broker


def _broker_facts(broker: BrokerInfo) -> Facts:
    return {
        "broker": broker.broker_id,
        "broker_epoch": broker.broker_epoch,
        "incarnation": str(broker.incarnation),
        "is_fenced": broker.is_fenced,
    }


def _partition_changes(
    before: MetadataImage | None, after: MetadataImage
) -> Iterator[tuple[TopicInfo, int]]:
    """Yield the partitions that are new or not as they were; whatever stayed is the same object."""
    for name, topic in after.topics.items():
        old = None if before is None else before.topics.get(name)
        if old is topic and before is not None and before.defaults is after.defaults:
            continue
        is_other = old is None or old.topic_id != topic.topic_id
        # The minimum may be another one.
        is_other = is_other or old is None or old.configs != topic.configs
        is_other = is_other or before is None or before.defaults != after.defaults
        for index, partition in enumerate(topic.partitions):
            is_same = old is not None and old.partitions[index : index + 1] == (partition,)
            if is_other or not is_same:
                yield topic, index


def _partition_facts(image: MetadataImage, topic: TopicInfo, index: int) -> Facts:
    partition = topic.partitions[index]
    return {
        "topic": topic.name,
        "partition": index,
        "version": image.version,
        "topic_id": str(topic.topic_id),
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.partition_epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "elr": list(partition.elr),
        "min_isr": min_insync_of(image, topic),
        "last_unclean_epoch": partition.last_unclean_epoch,
    }
