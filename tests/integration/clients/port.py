"""What every foreign client is asked to do, in one language, so that one test can ask them all.

An adapter says it in the words of its client and hides nothing: a refusal comes out as
`RefusedError` with the code on the wire, and a client that takes too long raises `TimeoutError`.

Not here: groups, which a node does not serve yet. Every consumer is assigned its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol

DEADLINE_S: Final = 20.0
# The longest a consumer lets a fetch wait: short, or a test that reads to the end waits for it.
FETCH_WAIT_MS: Final = 20
# Above the largest value in the tests, and below what a node takes by default.
REQUEST_BYTES_MAX: Final = 1_040_000

Headers = tuple[tuple[str, bytes | None], ...]


class RefusedError(Exception):
    """The node refused, with this code; the text is what the client made of it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code: Final = code


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send; without a timestamp the client takes its own clock."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record that a consumer got."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class AtBeginning:
    """Read from the first record there is."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """Read from this offset on; if it is gone, from the first record there is."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """Read from the first record that is at least this young."""

    timestamp_ms: int


Start = AtBeginning | AtOffset | AtTime


@dataclass(frozen=True, slots=True)
class Sending:
    """How a producer sends."""

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as a client describes it."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as a client describes it."""

    controller: int
    # Id and address of each broker.
    brokers: frozenset[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The value of an option as a client describes it, and whether somebody set it right there."""

    value: str | None
    is_override: bool


# Takes a number of records, and returns them when they have come.
Following = Callable[[int], list[ReadRecord]]


class Producing(Protocol):
    """A producer that stays open. It sends to a topic and a partition."""

    def __call__(
        self, topic: str, records: Sequence[Record], *, partition: int = 0
    ) -> list[int] | None:
        """Return the offsets when all are acknowledged, or None if the client is not told them."""
        ...


class NewTopic(Protocol):
    """Creates a topic with a name of its own, and returns the name when it can be used."""

    def __call__(self, *, partitions: int = 1, **configs: str) -> str: ...


class Client(Protocol):
    """Produces and consumes."""

    @property
    def name(self) -> str: ...

    @property
    def sample(self) -> Sequence[Record]:
        """Return records of every kind that this client can send."""
        ...

    def producing(self, sending: Sending) -> AbstractContextManager[Producing]:
        """Yield a producer that stays open for as long as the block lasts."""
        ...

    def consume(
        self, topic: str, start: Start, *, partitions: Sequence[int] = (0,)
    ) -> list[ReadRecord]:
        """Return what is between `start` and the end, of all partitions at once."""
        ...

    def follow(self, topic: str) -> AbstractContextManager[Following]:
        """Yield when the consumer stands at the end of partition 0: what comes later is read."""
        ...


class Admin(Protocol):
    """Looks after topics and options."""

    @property
    def name(self) -> str: ...

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None: ...

    def topics(self) -> set[str]: ...

    def describe_topic(self, topic: str) -> list[PartitionView]: ...

    def describe_cluster(self) -> ClusterView: ...

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_records(self, topic: str, before: int) -> int:
        """Delete from partition 0, and return the offset where it begins now."""
        ...

    def delete_topic(self, topic: str) -> None: ...

    def topic_configs(self, topic: str) -> dict[str, ConfigView]: ...

    def broker_configs(self, broker: int) -> dict[str, ConfigView]: ...

    def replace_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Alter in the old way: what is not named goes back to its default."""
        ...


class IncrementalAdmin(Admin, Protocol):
    """One that can also alter in the new way: what is not named stays."""

    def change_topic_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        """Set options, or with None take them back to their defaults."""
        ...

    def change_broker_configs(self, broker: int, changes: Mapping[str, str | None]) -> None: ...


def produce(
    client: Client,
    topic: str,
    records: Sequence[Record],
    sending: Sending | None = None,
    *,
    partition: int = 0,
) -> list[int] | None:
    """Send with a producer that lives no longer than this call."""
    with client.producing(sending or Sending()) as send:
        return send(topic, records, partition=partition)
