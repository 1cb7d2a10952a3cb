"""aiokafka in the words of `port.py`. Each question has an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from tests.integration.clients.cases import SAMPLE
from tests.integration.clients.port import (
    DEADLINE_S,
    FETCH_WAIT_MS,
    AtBeginning,
    AtOffset,
    AtTime,
    ClusterView,
    ConfigView,
    Following,
    PartitionView,
    Producing,
    ReadRecord,
    Record,
    RefusedError,
    Sending,
    Start,
)

_Told = TypeVar("_Told")
_ACKS: Final[dict[str, int | str]] = {"0": 0, "1": 1, "all": "all"}
# Where DescribeConfigs says that a value comes from.
_DYNAMIC_TOPIC, _DYNAMIC_BROKER = 1, 2


class AioKafka:
    """Produces and consumes with aiokafka."""

    name: Final = "aiokafka"
    sample: Final = SAMPLE

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap

    @contextmanager
    def producing(self, sending: Sending) -> Iterator[Producing]:
        with asyncio.Runner() as runner:
            producer = runner.run(self._started(sending))

            def send(
                topic: str, records: Sequence[Record], *, partition: int = 0
            ) -> list[int] | None:
                told = runner.run(_within(_send(producer, topic, records, partition)))
                return None if sending.acks == "0" else [each.offset for each in told]

            try:
                yield send
            finally:
                runner.run(producer.stop())

    async def _started(self, sending: Sending) -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=_ACKS[sending.acks],
            enable_idempotence=sending.idempotent,
            compression_type=None if sending.codec == "none" else sending.codec,
            linger_ms=10,
        )
        await producer.start()
        return producer

    def consume(
        self, topic: str, start: Start, *, partitions: Sequence[int] = (0,)
    ) -> list[ReadRecord]:
        return _run(self._consume([TopicPartition(topic, index) for index in partitions], start))

    async def _consume(self, places: list[Any], start: Start) -> list[ReadRecord]:
        async with self._consumer(places) as consumer:
            await _seek(consumer, places, start)
            ends = await consumer.end_offsets(places)
            records: list[ReadRecord] = []
            for place in places:
                while await consumer.position(place) < ends[place]:
                    records += await _poll(consumer)
        return records

    @contextmanager
    def follow(self, topic: str) -> Iterator[Following]:
        place = TopicPartition(topic, 0)
        with asyncio.Runner() as runner:
            following = self._at_end(place)
            consumer = runner.run(following.__aenter__())
            try:
                yield lambda count: runner.run(_within(_read(consumer, count)))
            finally:
                runner.run(following.__aexit__(None, None, None))

    @asynccontextmanager
    async def _at_end(self, place: Any) -> AsyncIterator[Any]:
        async with self._consumer([place]) as consumer:
            await consumer.seek_to_end(place)
            await consumer.position(place)
            yield consumer

    @asynccontextmanager
    async def _consumer(self, places: list[Any]) -> AsyncIterator[Any]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )
        async with consumer:
            consumer.assign(places)
            yield consumer


async def _send(producer: Any, topic: str, records: Sequence[Record], partition: int) -> list[Any]:
    futures = [
        await producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    await producer.flush()
    return [await future for future in futures]


async def _seek(consumer: Any, places: Sequence[Any], start: Start) -> None:
    match start:
        case AtBeginning():
            await consumer.seek_to_beginning(*places)
        case AtOffset(offset):
            for place in places:
                consumer.seek(place, offset)
        case AtTime(timestamp_ms):
            found = await consumer.offsets_for_times(dict.fromkeys(places, timestamp_ms))
            for place in places:
                consumer.seek(place, found[place].offset)


async def _read(consumer: Any, count: int) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    while len(records) < count:
        records += await _poll(consumer)
    return records


async def _poll(consumer: Any) -> list[ReadRecord]:
    return [
        ReadRecord(
            partition=told.partition,
            offset=told.offset,
            timestamp_ms=told.timestamp,
            key=told.key,
            value=told.value,
            headers=tuple((name, value) for name, value in told.headers),
        )
        for of_partition in (await consumer.getmany(timeout_ms=100)).values()
        for told in of_partition
    ]


def _run(question: Coroutine[Any, Any, _Told]) -> _Told:
    return asyncio.run(_within(question))


async def _within(question: Coroutine[Any, Any, _Told]) -> _Told:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await question
    except KafkaError as error:
        raise RefusedError(error.errno, str(error)) from None


class AioKafkaAdmin:
    """Looks after topics and options with aiokafka, which alters only in the old way."""

    name: Final = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap

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
            name=topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            topic_configs=dict(configs or {}),
        )
        told = self._ask(lambda admin: admin.create_topics([new], validate_only=validate_only))
        _require_none(told.topic_errors)

    def topics(self) -> set[str]:
        return set(self._ask(lambda admin: admin.list_topics()))

    def describe_topic(self, topic: str) -> list[PartitionView]:
        (told,) = self._ask(lambda admin: admin.describe_topics([topic]))
        _require_none([(topic, told["error_code"])])
        return [
            PartitionView(
                index=partition["partition"],
                leader=partition["leader"],
                replicas=tuple(partition["replicas"]),
                in_sync=tuple(partition["isr"]),
            )
            for partition in told["partitions"]
        ]

    def describe_cluster(self) -> ClusterView:
        told = self._ask(lambda admin: admin.describe_cluster())
        brokers = frozenset(
            (broker["node_id"], f"{broker['host']}:{broker['port']}") for broker in told["brokers"]
        )
        return ClusterView(told["controller_id"], brokers)

    def add_partitions(self, topic: str, total: int) -> None:
        self._ask(lambda admin: admin.create_partitions({topic: NewPartitions(total)}))

    def delete_records(self, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0)
        asked = {place: RecordsToDelete(before)}
        return int(self._ask(lambda admin: admin.delete_records(asked))[place])

    def delete_topic(self, topic: str) -> None:
        told = self._ask(lambda admin: admin.delete_topics([topic]))
        _require_none(told.topic_error_codes)

    def topic_configs(self, topic: str) -> dict[str, ConfigView]:
        return self._configs(ConfigResourceType.TOPIC, topic)

    def broker_configs(self, broker: int) -> dict[str, ConfigView]:
        return self._configs(ConfigResourceType.BROKER, str(broker))

    def _configs(self, kind: Any, name: str) -> dict[str, ConfigView]:
        resource = ConfigResource(kind, name)
        (told,) = self._ask(lambda admin: admin.describe_configs([resource]))
        ((code, text, _, _, entries),) = told.resources
        _require_none([(text, code)])
        return {
            option: ConfigView(value, source in (_DYNAMIC_TOPIC, _DYNAMIC_BROKER))
            for option, value, _read_only, source, *_rest in entries
        }

    def replace_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (told,) = self._ask(lambda admin: admin.alter_configs([resource]))
        _require_none([(text, code) for code, text, *_rest in told.resources])

    def _ask(self, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        async def asked() -> Any:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                return await question(admin)
            finally:
                await admin.close()

        return _run(asked())


def _require_none(outcomes: Sequence[Sequence[Any]]) -> None:
    for what, code, *text in outcomes:
        if code:
            raise RefusedError(code, f"{what}: {text}")
