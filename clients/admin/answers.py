"""What the admin client tells: plain values, without the protocol's shapes.

Not here: asking (`client.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.clients.metadata import BrokerInfo
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import UUID


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be made; None leaves a number to the cluster."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or could be; None where the broker is too old to tell."""

    name: str
    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One option of a topic or a broker as it stands."""

    name: str
    # None if it is secret, or not set.
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster and its brokers."""

    cluster_id: str | None
    # -1 if nobody tells.
    controller_id: int
    brokers: tuple[BrokerInfo, ...]


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group, as a list of groups tells of it."""

    group_id: str
    protocol_type: str
    # Empty where the broker is too old to tell.
    state: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group."""

    member_id: str
    client_id: str
    host: str
    group_instance_id: str | None
    # As the member and its leader wrote them.
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A group and its members."""

    group_id: str
    state: str
    protocol_type: str
    # The assignor in use.
    protocol: str
    members: tuple[GroupMember, ...]


@dataclass(frozen=True, slots=True)
class OffsetInfo:
    """An offset that was asked for by time, or by its place in the log."""

    # -1 if there is no record at or after the time.
    offset: int
    timestamp_ms: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """What a group has committed for a partition."""

    offset: int
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, as a list of them tells of it."""

    transactional_id: str
    producer_id: int
    # "Empty", "Ongoing", "PrepareCommit", "CompleteCommit" and so on: Kafka's words.
    state: str
    # Who coordinates it.
    node_id: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """A transactional id, and the transaction under it if one is open."""

    transactional_id: str
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    # None if none is open.
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    node_id: int

    @property
    def is_open(self) -> bool:
        return self.state == "Ongoing"


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """A producer that a partition remembers."""

    producer_id: int
    epoch: int
    # -1 if it wrote none that is kept.
    last_sequence: int
    last_timestamp_ms: int
    # Of the coordinator that ended its last transaction here; -1 if none did.
    coordinator_epoch: int
    # Where the transaction begins that is open here; None if none is.
    open_since_offset: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition, and that no coordinator will end."""

    partition: TopicPartition
    producer: ProducerInfo
    # None if no coordinator knows the producer.
    transactional_id: str | None
