"""The metadata of the cluster at one version, as every node sees it.

An image is a value. Whoever holds one may keep it, compare it, and answer from it while the next
one is being made; nobody changes one. The next one shares with it everything that stayed the same.

Not here: how the next image is made (`state.py`) and who agrees on it (`quorum/`).

G1  versions only grow, and a different image has a different version
G2  `topic_names` is the inverse of `topics`, by topic id
G3  partitions are numbered from 0 without gaps
G4  a leader is in the in-sync set, which is part of the replicas; who is eligible is out of the
    in-sync set
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.proto.ids import NO_EPOCH, BrokerId, LeaderEpoch, ProducerId
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

# The name under which options for all brokers stand in `MetadataImage.broker_configs`.
ALL_BROKERS: Final = ""
FIRST_PRODUCER_ID: Final = ProducerId(0)
NO_CONTROLLER: Final = BrokerId(-1)
# The newest feature level that this program knows. A level says which commands there are.
FEATURE_LEVEL: Final = 1


@dataclass(frozen=True, slots=True)
class ClientEndpoint:
    """Where the clients of one listener find a broker."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker, where clients find it, and the life of it that is registered."""

    broker_id: BrokerId
    host: str
    port: int
    rack: str | None = None
    # The version at which this life of the broker registered (rules 2 and 68).
    broker_epoch: int = 0
    # Drawn anew at every start of the process.
    incarnation: UUID = ZERO_UUID
    # Drawn when the data directory was made: another disk has another.
    directory_id: UUID = ZERO_UUID
    # The kernel's: while it is the same, the page cache has survived.
    boot_id: UUID = ZERO_UUID
    is_fenced: bool = False
    # The version at which its controlled shutdown began; None while nobody asked for one.
    shutdown_version: int | None = None
    # Where the other nodes find it.
    internal_host: str = ""
    internal_port: int = 0
    feature_level_max: int = FEATURE_LEVEL
    # Where it has several listeners for clients: all of them. Else empty.
    endpoints: tuple[ClientEndpoint, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in sync."""
        return not self.is_fenced and self.shutdown_version is None

    def address_for(self, listener: str) -> tuple[str, int]:
        """Return where clients find it that came in by the listener of this name.

        A broker without such a listener is found where it is known: while listeners are being
        changed node by node, a client can at least try.
        """
        for one in self.endpoints:
            if one.listener == listener:
                return one.host, one.port
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Who holds a partition and who leads it."""

    # The first is preferred as the leader.
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    partition_epoch: int
    # Out of the in-sync set, but known to hold everything committed (rule 17).
    elr: tuple[BrokerId, ...] = ()
    # Whatever was committed was synced by all in sync, so a power cut takes none of it (rule 8).
    is_durable: bool = True
    # The leader was elected although it may lack records, and has not said that it got over it.
    is_recovering: bool = False
    # Of the last such leader: a replica whose last epoch is older may lose records (rule 44).
    last_unclean_epoch: LeaderEpoch = NO_EPOCH


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
class ClusterDefaults:
    """What a topic goes by that does not set it itself, where all nodes must go by the same."""

    min_insync_replicas: int = 2
    is_unclean_allowed: bool = False
    is_fsync: bool = True


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All the metadata of a cluster at one version."""

    version: int
    cluster_id: str
    # Who took office last, as far as this image knows; `NO_CONTROLLER` before the first.
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    # By broker id as text; under `ALL_BROKERS` the defaults for all.
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: ProducerId = FIRST_PRODUCER_ID
    # The version at which it took office.
    controller_epoch: int = 0
    # Runs over every command and what it did: equal versions of one cluster have equal digests.
    digest: bytes = b""
    feature_level: int = FEATURE_LEVEL
    # As the active controller had them when it took office.
    defaults: ClusterDefaults = ClusterDefaults()

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicInfo | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def is_active(self, broker_id: BrokerId) -> bool:
        """Whether a broker is registered, not fenced and not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active
