"""What can be done to the metadata.

A command carries everything its outcome depends on beside the image: ids are drawn, defaults are
looked up and seeds are thrown before it is made. So it has the same outcome wherever, and however
often, it is applied. What it was decided on (broker, leader and partition epochs) travels in it and
is compared when it is applied, so whoever was deposed meanwhile proposes in vain (rule 15).

Not here: what it does (`state.py`) and its bytes (`proposal.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ottla.controller.image import FEATURE_LEVEL, ClientEndpoint, ClusterDefaults
from ottla.controller.port import ConfigChange, NewPartitions, NewTopic, TopicDefaults
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID

# What `RegisterBroker` expects of a broker that was never here, and who cannot prove a clean end.
NO_BROKER_EPOCH: Final = -1
# Partitions by topic id, in ascending order.
Partitions = Mapping[UUID, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """Make a topic under an id that was never used before."""

    wanted: NewTopic
    topic_id: UUID
    defaults: TopicDefaults
    seed: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """Forget a topic: the one of this id, and not another that got its name since."""

    name: str
    topic_id: UUID


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Add partitions to the topic of this id."""

    wanted: NewPartitions
    topic_id: UUID
    seed: int


@dataclass(frozen=True, slots=True)
class ChangeConfigs:
    """Change the options of one topic or broker."""

    change: ConfigChange


@dataclass(frozen=True, slots=True)
class TakeProducerIds:
    """Set so many producer ids aside, for one broker to give away."""

    count: int


@dataclass(frozen=True, slots=True)
class TakeOffice:
    """The first command of an active controller. Its outcome gives the epoch of the office."""

    node_id: BrokerId
    # `MetadataImage.controller_epoch` as it was when this node was elected.
    expected_epoch: int
    defaults: ClusterDefaults


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A process has started and wants to be a broker of the cluster (rules 2, 7 and 8)."""

    cluster_id: str
    broker_id: BrokerId
    incarnation: UUID
    # Of the life that this one replaces, as the active controller knew it; `NO_BROKER_EPOCH`: none.
    expected_epoch: int
    directory_id: UUID
    boot_id: UUID
    # From the clean shutdown marker (rule 50), or `NO_BROKER_EPOCH`.
    previous_epoch: int
    host: str
    port: int
    internal_host: str
    internal_port: int
    rack: str | None = None
    feature_level_max: int = FEATURE_LEVEL
    endpoints: tuple[ClientEndpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """Take a broker out of every in-sync set and move what it leads, all in one (rule 10)."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ReportDamage:
    """Take back a broker's claims to partitions that its disk does not hold as it should.

    Of a fenced one: what does not fit into one `UnfenceBroker` (rule 8). Of one that serves: what
    turned out to be damaged when it was read, or when it was followed (rules 44 and 55).
    """

    broker_id: BrokerId
    broker_epoch: int
    damaged: Partitions


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """Let a broker lead that follows the metadata and has read its logs (rules 8 and 9)."""

    broker_id: BrokerId
    broker_epoch: int
    # How much of the metadata the broker has followed.
    applied_version: int
    damaged: Partitions


@dataclass(frozen=True, slots=True)
class BeginShutdown:
    """A broker wants to end: what it leads moves, and it joins no in-sync set again (rule 12)."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class ForgetBroker:
    """Take a fenced broker that holds nothing out of the cluster."""

    broker_id: BrokerId
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """The in-sync set that a leader wants for one partition."""

    topic_id: UUID
    partition: int
    leader_epoch: LeaderEpoch
    partition_epoch: int
    # With the broker epoch of each, as the leader knows it from its fetches; −1: it does not.
    isr: tuple[tuple[BrokerId, int], ...]
    is_recovering: bool = False
    # All in this set have synced past the high watermark of the change to fsync (rule 8).
    is_synced: bool = False


@dataclass(frozen=True, slots=True)
class AlterPartitions:
    """A leader's wishes for the partitions it leads, each granted or refused alone (rule 14)."""

    broker_id: BrokerId
    broker_epoch: int
    changes: tuple[PartitionChange, ...]


ElectionKind = Literal["preferred", "unclean"]


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Give partitions their preferred leaders back, or leaderless ones any leader at all."""

    kind: ElectionKind
    # None: wherever it would change something.
    partitions: Partitions | None


@dataclass(frozen=True, slots=True)
class SetFeatureLevel:
    """Allow the commands of another feature level, which all brokers must know."""

    level: int


Command = (
    CreateTopic
    | DeleteTopic
    | CreatePartitions
    | ChangeConfigs
    | TakeProducerIds
    | TakeOffice
    | RegisterBroker
    | FenceBroker
    | ReportDamage
    | UnfenceBroker
    | BeginShutdown
    | ForgetBroker
    | AlterPartitions
    | ElectLeaders
    | SetFeatureLevel
)
