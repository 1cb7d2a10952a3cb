"""The metadata of the cluster at one version, as every node sees it.

An image is a value. Whoever holds one may keep it, compare it, and answer from it while the next
one is being made; nobody changes one. The next one shares with it everything that stayed the same.

Not here: how the next image is made (`state.py`) and who agrees on it (`solo.py`).

G1  versions only grow, and a different image has a different version
G2  `topic_names` is the inverse of `topics`, by topic id
G3  partitions are numbered from 0 without gaps
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.proto.ids import BrokerId, LeaderEpoch, ProducerId
from ottla.proto.kafka.uuids import UUID

# The name under which options for all brokers stand in `MetadataImage.broker_configs`.
ALL_BROKERS: Final = ""
FIRST_PRODUCER_ID: Final = ProducerId(0)


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker, and where clients find it."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who holds a partition and who leads it."""

    # The first is preferred as the leader.
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: int
    # Out of the in-sync set, but known to hold everything committed.
    elr: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic: its partitions by number, and the options it sets itself."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All the metadata of a cluster at one version."""

    version: int
    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    # By broker id as text; under `ALL_BROKERS` the defaults for all.
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]
