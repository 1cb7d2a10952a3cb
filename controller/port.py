"""What a node asks of the controllers, wherever the active one of them runs.

Every answer comes after the change is durable and every listener has seen the image that holds it,
so a client that was told "created" finds what it created on the node that told it.

Lists of wishes are answered one by one, in order: a refused wish does not spoil its neighbours. A
`RequestError` is an answer to one wish. Its code says what is known of the wish:
  REQUEST_TIMED_OUT  it may or may not have happened, or has, and this node does not see it yet
  NOT_CONTROLLER     it did not happen: no controller was active; ask again
  any other          it did not happen, and why
Where there is no list, it is raised. `client` is who wishes, for the log of the active controller.

Not here: the names and numbers that Kafka's requests use (`ottla.node.kafka`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.proto.errors import RequestError
from ottla.proto.ids import BrokerId

if TYPE_CHECKING:
    from ottla.controller.commands import ElectionKind
    from ottla.controller.door import QuorumView

ConfigKind = Literal["topic", "broker"]
# Awaited with every new image, in the order of versions.
Listener = Callable[[MetadataImage], Awaitable[None]]
# Given whose options they are, and all of them as they would be; raises `ConfigError` if they
# cannot be obeyed.
CheckConfigs = Callable[[ConfigKind, str, Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that somebody wants: a number of partitions, or who holds each of them."""

    name: str
    # None for the cluster's default, and always None beside `assignments`.
    partitions: int | None = None
    replication_factor: int | None = None
    # By partition number; empty: the controller chooses.
    assignments: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The number of partitions that a topic shall have from now on."""

    topic: str
    # In all, not in addition.
    count: int
    # Who holds each of the additional partitions, in order; None: the controller chooses.
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """Options to set and to forget, of one topic or one broker."""

    kind: ConfigKind
    # A topic's name, a broker's id as text, or `ALL_BROKERS`.
    name: str
    set: Mapping[str, str] = field(default_factory=dict)
    unset: frozenset[str] = frozenset()
    # Forget everything that is not in `set`, which is what AlterConfigs means.
    replace: bool = False


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What a topic gets that does not say how many partitions and replicas it wants."""

    partitions: int
    # At most; a cluster of fewer brokers gives what it has.
    replication_factor: int


class Controller(Protocol):
    """The door to the cluster's metadata."""

    @property
    def image(self) -> MetadataImage:
        """The newest image that this node knows."""

    @property
    def applied_version(self) -> int:
        """The version that every listener has seen; −1 before the first."""

    def watch(self, listener: Listener) -> None:
        """Have `listener` awaited with each new image before the change is answered."""

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool, client: str = ""
    ) -> list[TopicInfo | RequestError]:
        """Make topics. With `validate_only`, say what would happen and change nothing."""

    async def delete_topics(
        self, topics: Sequence[str], *, client: str = ""
    ) -> list[RequestError | None]: ...

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool, client: str = ""
    ) -> list[RequestError | None]: ...

    async def change_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool, client: str = ""
    ) -> list[RequestError | None]: ...

    async def take_producer_ids(self) -> range:
        """Return ids that nobody was given before and nobody else will be given."""

    async def elect_leaders(
        self,
        kind: ElectionKind,
        partitions: Sequence[tuple[str, int]] | None,
        *,
        client: str = "",
    ) -> list[tuple[str, int, RequestError | None]]:
        """Give partitions the leader they should have; None: all that do not have it.

        The codes are Kafka's: ELECTION_NOT_NEEDED (only where a partition was named),
        PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION.
        """

    async def set_feature_level(
        self, level: int, *, validate_only: bool, client: str = ""
    ) -> RequestError | None: ...

    async def forget_broker(self, broker_id: BrokerId, *, client: str = "") -> RequestError | None:
        """Take a broker that is down and holds nothing out of the cluster."""

    async def describe_quorum(self) -> QuorumView:
        """Say how the quorum is, as its leader sees it. Raises `RequestError`."""
