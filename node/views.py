"""What the metadata says of one partition, in the words of replication.

Not here: the metadata (`ottla.controller.image`), and what a leader makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.controller.election import active_brokers, is_fsync, min_insync_of
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.proto.ids import BrokerId
from ottla.replication.leader import PartitionView


@dataclass(frozen=True, slots=True)
class Views:
    """Makes the views of partitions from one image; what all of them share is looked up once."""

    image: MetadataImage
    active: frozenset[BrokerId]
    # By topic: how many must be in sync, and whether only what is synced counts.
    _terms: dict[str, tuple[int, bool]] = field(default_factory=dict)

    @classmethod
    def of(cls, image: MetadataImage) -> Views:
        return cls(image, active_brokers(image))

    def partition(self, topic: TopicInfo, partition: PartitionInfo) -> PartitionView:
        brokers = self.image.brokers
        terms = self._terms.get(topic.name)
        if terms is None:
            terms = min_insync_of(self.image, topic), is_fsync(self.image, topic)
            self._terms[topic.name] = terms
        return PartitionView(
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            replicas=partition.replicas,
            isr=partition.isr,
            elr=partition.elr,
            min_isr=terms[0],
            broker_epochs={
                one: brokers[one].broker_epoch for one in partition.replicas if one in brokers
            },
            active=self.active,
            is_fsync=terms[1],
            is_durable=partition.is_durable,
            is_recovering=partition.is_recovering,
        )


def brokers_differ(before: MetadataImage | None, after: MetadataImage) -> bool:
    """Return whether leaders must hear of a broker: it came, left, or lives anew."""
    if before is None:
        return True
    if before.brokers is after.brokers:
        return False
    return _lives(before) != _lives(after)


def _lives(image: MetadataImage) -> dict[BrokerId, tuple[int, bool]]:
    return {key: (one.broker_epoch, one.is_active) for key, one in image.brokers.items()}
