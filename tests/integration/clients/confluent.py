"""confluent-kafka (librdkafka) in the words of `port.py`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from tests.integration.clients.cases import SAMPLE
from tests.integration.clients.port import (
    DEADLINE_S,
    FETCH_WAIT_MS,
    REQUEST_BYTES_MAX,
    AtBeginning,
    AtOffset,
    AtTime,
    ClusterView,
    ConfigView,
    Following,
    Headers,
    PartitionView,
    Producing,
    ReadRecord,
    Record,
    RefusedError,
    Sending,
    Start,
)

_OVERRIDES: Final = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.DYNAMIC_BROKER_CONFIG,
}


class ConfluentKafka:
    """Produces and consumes with librdkafka."""

    name: Final = "confluent-kafka"
    sample: Final = SAMPLE

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap

    @contextmanager
    def producing(self, sending: Sending) -> Iterator[Producing]:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": sending.acks,
                "enable.idempotence": sending.idempotent,
                "compression.type": sending.codec,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                # A node that comes back is found again soon.
                "reconnect.backoff.max.ms": 200,
            }
        )
        # One that does not know the node yet waits half a second before it asks for its id.
        producer.list_topics(timeout=DEADLINE_S)

        def send(topic: str, records: Sequence[Record], *, partition: int = 0) -> list[int] | None:
            told = _send(producer, topic, records, partition)
            return None if sending.acks == "0" else [_known(each.offset()) for each in told]

        yield send

    def consume(
        self, topic: str, start: Start, *, partitions: Sequence[int] = (0,)
    ) -> list[ReadRecord]:
        with closing(self._consumer(topic)) as consumer:
            consumer.assign(_places(consumer, topic, partitions, start))
            return _read(consumer, partitions=len(partitions))

    @contextmanager
    def follow(self, topic: str) -> Iterator[Following]:
        with closing(self._consumer(topic)) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
            before = _read(consumer)
            assert before == [], "a consumer at the end was given older records"
            yield lambda count: _read(consumer, count)

    def _consumer(self, topic: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                # It must have one, though nothing here joins a group.
                "group.id": "assigned",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": FETCH_WAIT_MS,
            }
        )
        # One that does not know the leader yet when it is assigned waits half a second first.
        consumer.list_topics(topic, timeout=DEADLINE_S)
        return consumer


def _send(
    producer: Producer, topic: str, records: Sequence[Record], partition: int
) -> list[Message]:
    reports: list[tuple[KafkaError | None, Message]] = []
    for record in records:
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition,
            # 0 is librdkafka's word for "now".
            timestamp=record.timestamp_ms or 0,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    if producer.flush(DEADLINE_S):
        raise TimeoutError("librdkafka could not deliver everything in time")
    for error, _ in reports:
        if error is not None:
            raise RefusedError(error.code(), error.str())
    return [told for _, told in reports]


def _places(
    consumer: Consumer, topic: str, partitions: Sequence[int], start: Start
) -> list[TopicPartition]:
    match start:
        case AtBeginning():
            return [TopicPartition(topic, index, OFFSET_BEGINNING) for index in partitions]
        case AtOffset(offset):
            return [TopicPartition(topic, index, offset) for index in partitions]
        case AtTime(timestamp_ms):
            asked = [TopicPartition(topic, index, timestamp_ms) for index in partitions]
            return consumer.offsets_for_times(asked, timeout=DEADLINE_S)


def _read(consumer: Consumer, count: int | None = None, partitions: int = 1) -> list[ReadRecord]:
    """Return so many records, or all up to the ends."""
    records: list[ReadRecord] = []
    ended: set[int | None] = set()
    deadline = time.monotonic() + DEADLINE_S
    while len(ended) < partitions if count is None else len(records) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"librdkafka read {len(records)} of {count or 'all'} records")
        message = consumer.poll(0.1)
        if message is None:
            continue
        error = message.error()
        if error is None:
            records.append(_record(message))
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise RefusedError(error.code(), error.str())
    return records


def _record(message: Message) -> ReadRecord:
    headers: Any = message.headers() or []
    _, timestamp_ms = message.timestamp()
    return ReadRecord(
        partition=_known(message.partition()),
        offset=_known(message.offset()),
        timestamp_ms=timestamp_ms,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=_headers(headers),
    )


def _headers(headers: Sequence[tuple[str, Any]]) -> Headers:
    return tuple((name, _bytes(value)) for name, value in headers)


def _bytes(told: Any) -> bytes | None:
    return None if told is None else bytes(told)


def _known(number: int | None) -> int:
    assert number is not None
    return number


class ConfluentAdmin:
    """Looks after topics and options with librdkafka."""

    name: Final = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._admin: Final = AdminClient({"bootstrap.servers": bootstrap})

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(configs or {}),
        )
        _only(self._admin.create_topics([new], validate_only=validate_only))

    def topics(self) -> set[str]:
        return set(self._admin.list_topics(timeout=DEADLINE_S).topics)

    def describe_topic(self, topic: str) -> list[PartitionView]:
        told = _only(self._admin.describe_topics(TopicCollection([topic])))
        return [
            PartitionView(
                index=partition.id,
                leader=partition.leader.id,
                replicas=tuple(node.id for node in partition.replicas),
                in_sync=tuple(node.id for node in partition.isr),
            )
            for partition in told.partitions
        ]

    def describe_cluster(self) -> ClusterView:
        told = _result(self._admin.describe_cluster(request_timeout=DEADLINE_S))
        brokers = frozenset((node.id, f"{node.host}:{node.port}") for node in told.nodes)
        return ClusterView(told.controller.id, brokers)

    def add_partitions(self, topic: str, total: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, total)]))

    def delete_records(self, topic: str, before: int) -> int:
        asked = [TopicPartition(topic, 0, before)]
        return int(_only(self._admin.delete_records(asked)).low_watermark)

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def topic_configs(self, topic: str) -> dict[str, ConfigView]:
        return self._configs(ConfigResource(ResourceType.TOPIC, topic))

    def broker_configs(self, broker: int) -> dict[str, ConfigView]:
        return self._configs(ConfigResource(ResourceType.BROKER, str(broker)))

    def _configs(self, resource: ConfigResource) -> dict[str, ConfigView]:
        told: dict[str, ConfigEntry] = _only(self._admin.describe_configs([resource]))
        return {
            name: ConfigView(entry.value, ConfigSource(entry.source) in _OVERRIDES)
            for name, entry in told.items()
        }

    def replace_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        with warnings.catch_warnings():
            # librdkafka still has it, and so have those who did not read the advice.
            warnings.filterwarnings("ignore", "alter_configs has been deprecated")
            futures = self._admin.alter_configs([resource])
        _only(futures)

    def change_topic_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._change(ResourceType.TOPIC, topic, changes)

    def change_broker_configs(self, broker: int, changes: Mapping[str, str | None]) -> None:
        self._change(ResourceType.BROKER, str(broker), changes)

    def _change(self, kind: ResourceType, name: str, changes: Mapping[str, str | None]) -> None:
        entries = [
            ConfigEntry(
                option,
                value,
                incremental_operation=(
                    AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
                ),
            )
            for option, value in changes.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        _only(self._admin.incremental_alter_configs([resource]))


def _only(futures: Mapping[Any, Future[Any]]) -> Any:
    (future,) = futures.values()
    return _result(future)


def _result(future: Future[Any]) -> Any:
    try:
        return future.result(DEADLINE_S)
    except KafkaException as error:
        cause = error.args[0]
        raise RefusedError(cause.code(), cause.str()) from None
