"""What a node asks of the controller, whoever that is: itself alone, or a quorum.

Every answer comes after the change is durable and every listener has seen the image that holds it,
so a client that was told "created" finds what it created on the node that told it.

Lists of wishes are answered one by one, in order: a refused wish does not spoil its neighbours. A
`RequestError` in an answer refuses one wish; `StorageError` out of any of these calls means that
the outcome of the whole call is unknown and that this controller is at its end.

Not here: the names and numbers that Kafka's requests use (`ottla.node.kafka`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.proto.errors import RequestError
from ottla.proto.ids import BrokerId

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

    def watch(self, listener: Listener) -> None:
        """Have `listener` awaited with each new image before the change is answered."""

    async def create_topics(
        self, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicInfo | RequestError]:
        """Make topics. With `validate_only`, say what would happen and change nothing."""

    async def delete_topics(self, topics: Sequence[str]) -> list[RequestError | None]: ...

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[RequestError | None]: ...

    async def change_configs(
        self, changes: Sequence[ConfigChange], *, validate_only: bool
    ) -> list[RequestError | None]: ...

    async def take_producer_ids(self) -> range:
        """Return ids that nobody was given before and nobody else will be given."""
