"""`Admin`: what `AsyncAdmin` does, for threads. Any of them may use it.

Not here: what is done (`client.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Self

from ottla.clients.admin.answers import (
    ClusterInfo,
    CommittedOffset,
    ConfigEntry,
    CreatedTopic,
    GroupInfo,
    GroupListing,
    HangingTransaction,
    NewTopic,
    OffsetInfo,
    ProducerInfo,
    TransactionInfo,
    TransactionListing,
)
from ottla.clients.admin.asking import Outcome
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.loop_thread import LoopThread
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import RequestError
from ottla.proto.ids import TopicPartition


class Admin:
    """An admin client with a thread of its own, until `close`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Take options under Kafka's names, or raise `ConfigError`; nothing is connected yet."""
        self._admin: Final = AsyncAdmin(config)
        self._thread: Final = LoopThread("ottla-admin")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._thread.loop.is_closed():
            self._thread.run(self._admin.close())
            self._thread.stop()

    def metrics(self) -> dict[str, float]:
        return self._admin.metrics()

    def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | RequestError]:
        work = self._admin.create_topics(topics, validate_only=validate_only)
        return self._thread.run(work)

    def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        return self._thread.run(self._admin.delete_topics(names))

    def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        work = self._admin.create_partitions(counts, validate_only=validate_only)
        return self._thread.run(work)

    def list_topics(self, *, internal: bool = False) -> list[str]:
        return self._thread.run(self._admin.list_topics(internal=internal))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo | RequestError]:
        return self._thread.run(self._admin.describe_topics(names))

    def describe_cluster(self) -> ClusterInfo:
        return self._thread.run(self._admin.describe_cluster())

    def describe_configs(self, kind: str, name: str) -> dict[str, ConfigEntry]:
        return self._thread.run(self._admin.describe_configs(kind, name))

    def alter_configs(
        self,
        kind: str,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        work = self._admin.alter_configs(kind, name, changes, validate_only=validate_only)
        self._thread.run(work)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, OffsetInfo | RequestError]:
        return self._thread.run(self._admin.list_offsets(wanted))

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | RequestError]:
        return self._thread.run(self._admin.delete_records(before))

    def list_groups(self) -> list[GroupListing]:
        return self._thread.run(self._admin.list_groups())

    def describe_groups(self, names: Iterable[str]) -> dict[str, GroupInfo | RequestError]:
        return self._thread.run(self._admin.describe_groups(names))

    def delete_groups(self, names: Iterable[str]) -> dict[str, Outcome]:
        return self._thread.run(self._admin.delete_groups(names))

    def list_group_offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        return self._thread.run(self._admin.list_group_offsets(name))

    def alter_group_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        return self._thread.run(self._admin.alter_group_offsets(name, offsets))

    def delete_group_offsets(
        self, name: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        return self._thread.run(self._admin.delete_group_offsets(name, partitions))

    def list_transactions(
        self, *, states: Iterable[str] = (), open_for_ms: int | None = None
    ) -> list[TransactionListing]:
        work = self._admin.list_transactions(states=states, open_for_ms=open_for_ms)
        return self._thread.run(work)

    def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionInfo | RequestError]:
        return self._thread.run(self._admin.describe_transactions(names))

    def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerInfo] | RequestError]:
        return self._thread.run(self._admin.describe_producers(partitions))

    def hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int = 900_000
    ) -> list[HangingTransaction]:
        work = self._admin.hanging_transactions(partitions, older_than_ms=older_than_ms)
        return self._thread.run(work)

    def complete_transaction(
        self, prepared: PreparedTransaction, *, commit: bool, take_over: bool = False
    ) -> None:
        work = self._admin.complete_transaction(prepared, commit=commit, take_over=take_over)
        self._thread.run(work)

    def terminate_transaction(self, transactional_id: str) -> None:
        self._thread.run(self._admin.terminate_transaction(transactional_id))

    def abort_transaction(self, partition: TopicPartition, producer: ProducerInfo) -> None:
        self._thread.run(self._admin.abort_transaction(partition, producer))
