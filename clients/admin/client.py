"""`AsyncAdmin`: makes, changes and describes topics, options, groups, offsets and transactions.

    async with AsyncAdmin({"bootstrap.servers": "localhost:9092"}) as admin:
        await admin.create_topics([NewTopic("orders", partitions=3, replication_factor=3)])

Methods that do something to several things return one outcome for each: None or a value if it was
done, a `RequestError` if it was refused. Methods that only look raise.

N1  what only looks is tried again until default.api.timeout.ms is over
N2  a change is tried again only if it was surely not done: it never left, or was refused because
    another broker has to be asked. Otherwise `OutcomeUnknownError` says so

Not here: the same for threads (`blocking.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from ottla.clients import options as rows
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
from ottla.clients.admin.asking import Asker, Outcome, refusal_of
from ottla.clients.admin.groups import Groups
from ottla.clients.admin.offsets import Offsets
from ottla.clients.admin.transactions import Transactions
from ottla.clients.cluster import ClusterClient
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.errors import ClientClosedError
from ottla.clients.metadata import BrokerInfo, MetadataCache, TopicInfo
from ottla.clients.options import Role, read_options
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
)
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID

_BY_DEFAULT: Final = -1
_TOPIC: Final = 2
_BROKER: Final = 4
_SET: Final = 0
_UNSET: Final = 1
_DEFAULT_SOURCE: Final = 5
_RESOURCES: Final = {"topic": _TOPIC, "broker": _BROKER}


class AsyncAdmin:
    """An admin client on one event loop, until `close`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Take options under Kafka's names, or raise `ConfigError`; nothing is connected yet."""
        self._options: Final = read_options(Role.ADMIN, config)
        self._asker: Asker | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._is_closed = True
        if self._asker is not None:
            await self._asker.cluster.close()

    def metrics(self) -> dict[str, float]:
        """Return what the client has counted and measured of itself."""
        return {} if self._asker is None else self._asker.cluster.metrics.snapshot()

    # --- topics ---

    async def create_topics(
        self, topics: Iterable[NewTopic | str], *, validate_only: bool = False
    ) -> dict[str, CreatedTopic | RequestError]:
        """Make topics; or only find out whether they could be made."""
        wanted = [NewTopic(one) if isinstance(one, str) else one for one in topics]
        fields = {
            "topics": [
                {
                    "name": one.name,
                    "num_partitions": one.partitions or _BY_DEFAULT,
                    "replication_factor": one.replication_factor or _BY_DEFAULT,
                    "assignments": [],
                    "configs": [{"name": k, "value": v} for k, v in one.configs.items()],
                }
                for one in wanted
            ],
            "validate_only": validate_only,
        }
        answer = await self._asking().change(CREATE_TOPICS, fields, "topics")
        return {one.name: refusal_of(one) or _created(one) for one in answer.topics}

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Delete topics, with all their records."""
        wanted = list(names)
        fields = {
            # Versions up to 5, and from 6 on.
            "topic_names": wanted,
            "topics": [{"name": name, "topic_id": ZERO_UUID} for name in wanted],
        }
        answer = await self._asking().change(DELETE_TOPICS, fields, "responses")
        return {one.name: refusal_of(one) for one in answer.responses}

    async def create_partitions(
        self, counts: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        """Give topics more partitions: topic → how many there shall be."""
        fields = {
            "topics": [
                {"name": name, "count": count, "assignments": None}
                for name, count in counts.items()
            ],
            "validate_only": validate_only,
        }
        answer = await self._asking().change(CREATE_PARTITIONS, fields, "results")
        return {one.name: refusal_of(one) for one in answer.results}

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted."""
        cache = await self._metadata(None)
        return sorted(one.name for one in cache.topics.values() if internal or not one.is_internal)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo | RequestError]:
        """Return each topic with its partitions, leaders and replicas."""
        wanted = list(names)
        cache = await self._metadata(wanted)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {
            name: cache.topic(name) or RequestError(cache.errors.get(name, unknown))
            for name in wanted
        }

    async def _metadata(self, names: Sequence[str] | None) -> MetadataCache:
        fields = {
            "topics": None
            if names is None
            else [{"name": n, "topic_id": ZERO_UUID} for n in names],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = await self._asking().look(METADATA, fields)
        cache = MetadataCache(max_age_ms=0, backoff_ms=0)
        cache.update(answer, 0, whole=names is None)
        return cache

    # --- the cluster ---

    async def describe_cluster(self) -> ClusterInfo:
        """Return the cluster's id, its controller and its brokers."""
        fields = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        answer = await self._asking().look(DESCRIBE_CLUSTER, fields)
        refusal = refusal_of(answer)
        if refusal is not None:
            raise refusal
        brokers = [BrokerInfo(o.broker_id, o.host, o.port, o.get("rack")) for o in answer.brokers]
        brokers.sort(key=lambda one: one.node_id)
        return ClusterInfo(answer.cluster_id, answer.controller_id, tuple(brokers))

    # --- options ---

    async def describe_configs(self, kind: str, name: str) -> dict[str, ConfigEntry]:
        """Return the options of a "topic" or a "broker"; a broker's name is its id."""
        fields = {
            "resources": [
                {
                    "resource_type": _RESOURCES[kind],
                    "resource_name": name,
                    "configuration_keys": None,
                }
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        node_id = int(name) if kind == "broker" and name else None
        answer = await self._asking().look(DESCRIBE_CONFIGS, fields, node_id=node_id)
        (found,) = answer.results
        refusal = refusal_of(found)
        if refusal is not None:
            raise refusal
        return {one.name: _entry(one) for one in found.configs}

    async def alter_configs(
        self,
        kind: str,
        name: str,
        changes: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set options of a "topic" or a "broker"; None takes one back to its default."""
        fields = {
            "resources": [
                {
                    "resource_type": _RESOURCES[kind],
                    "resource_name": name,
                    "configs": [
                        {
                            "name": key,
                            "config_operation": _UNSET if value is None else _SET,
                            "value": value,
                        }
                        for key, value in changes.items()
                    ],
                }
            ],
            "validate_only": validate_only,
        }
        answer = await self._asking().change(INCREMENTAL_ALTER_CONFIGS, fields, "responses")
        (found,) = answer.responses
        refusal = refusal_of(found)
        if refusal is not None:
            raise refusal

    # --- offsets and groups ---

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int | str]
    ) -> dict[TopicPartition, OffsetInfo | RequestError]:
        """Return offsets: "earliest", "latest", "max_timestamp", or the first since a time."""
        return await Offsets(self._asking()).at(wanted)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | RequestError]:
        """Delete what is before an offset (-1: all that is committed); return the new start."""
        return await Offsets(self._asking()).delete_before(before)

    async def list_groups(self) -> list[GroupListing]:
        """Return the groups of all coordinators, sorted."""
        return await Groups(self._asking()).all()

    async def describe_groups(self, names: Iterable[str]) -> dict[str, GroupInfo | RequestError]:
        """Return each group with its members."""
        return await Groups(self._asking()).describe(list(names))

    async def delete_groups(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups that have no members, with their offsets."""
        return await Groups(self._asking()).delete(list(names))

    async def list_group_offsets(self, name: str) -> dict[TopicPartition, CommittedOffset]:
        """Return everything that a group has committed."""
        return await Groups(self._asking()).offsets(name)

    async def alter_group_offsets(
        self, name: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        """Set where a group without members goes on; one that is not there is made."""
        wanted = {one: _offset(one, offset) for one, offset in offsets.items()}
        return await Groups(self._asking()).alter_offsets(name, wanted)

    async def delete_group_offsets(
        self, name: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Forget where a group was, in topics that none of its members reads."""
        return await Groups(self._asking()).delete_offsets(name, list(partitions))

    # --- transactions ---

    async def list_transactions(
        self, *, states: Iterable[str] = (), open_for_ms: int | None = None
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, sorted; by Kafka's names of states."""
        return await Transactions(self._asking()).all(list(states), open_for_ms)

    async def describe_transactions(
        self, names: Iterable[str]
    ) -> dict[str, TransactionInfo | RequestError]:
        """Return each transactional id with its transaction."""
        return await Transactions(self._asking()).describe(list(names))

    async def describe_producers(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerInfo] | RequestError]:
        """Return the producers that the leaders of partitions remember."""
        return await Transactions(self._asking()).producers(list(partitions))

    async def hanging_transactions(
        self, partitions: Iterable[TopicPartition], *, older_than_ms: int = 900_000
    ) -> list[HangingTransaction]:
        """Return what is open in these partitions, and no coordinator will end."""
        asking = Transactions(self._asking())
        return await asking.hanging(list(partitions), older_than_ms)

    async def complete_transaction(
        self, prepared: PreparedTransaction, *, commit: bool, take_over: bool = False
    ) -> None:
        """Decide a prepared transaction: whoever prepared it. Asking twice is harmless.

        With `take_over` also one that a successor has kept, and did not decide; it is fenced.
        """
        asking = Transactions(self._asking())
        await asking.complete(prepared, commit=commit, take_over=take_over)

    async def terminate_transaction(self, transactional_id: str) -> None:
        """Abort what is open under a transactional id, prepared or not, and fence its producer."""
        await Transactions(self._asking()).terminate(transactional_id)

    async def abort_transaction(self, partition: TopicPartition, producer: ProducerInfo) -> None:
        """Write the marker of an abort into one partition: for a hanging transaction only."""
        await Transactions(self._asking()).abort(partition, producer)

    def _asking(self) -> Asker:
        if self._is_closed:
            raise ClientClosedError("the client is closed.")
        if self._asker is None:
            timeout_s = self._options.value_of(rows.DEFAULT_API_TIMEOUT_MS) / 1000
            self._asker = Asker(ClusterClient(self._options), timeout_s)
        return self._asker


def _offset(partition: TopicPartition, offset: int | OffsetAndMetadata) -> OffsetAndMetadata:
    whole = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
    if whole.offset < 0:
        raise ConfigError(f"{partition}: an offset is 0 or more, not {whole.offset}.")
    return whole


def _created(told: Message) -> CreatedTopic:
    topic_id = told.get("topic_id", ZERO_UUID)
    partitions, copies = told.get("num_partitions", -1), told.get("replication_factor", -1)
    return CreatedTopic(
        told.name,
        None if topic_id == ZERO_UUID else topic_id,
        partitions if partitions >= 0 else None,
        copies if copies >= 0 else None,
    )


def _entry(told: Any) -> ConfigEntry:
    return ConfigEntry(
        told.name,
        told.value,
        told.get("config_source", -1) == _DEFAULT_SOURCE,
        told.read_only,
        told.is_sensitive,
    )
