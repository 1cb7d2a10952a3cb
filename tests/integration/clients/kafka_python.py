"""kafka-python in the words of `port.py`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, Final

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

with warnings.catch_warnings():
    # It reads its message schemas with functions that newer Pythons advise against.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import AlterConfigOp, ConfigResource
    from kafka.errors import BrokerResponseError, for_code

_ACKS: Final[dict[str, int | str]] = {"0": 0, "1": 1, "all": "all"}
_DEADLINE_MS: Final = int(DEADLINE_S * 1000)


class KafkaPython:
    """Produces and consumes with kafka-python."""

    name: Final = "kafka-python"
    sample: Final = SAMPLE

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap: Final = bootstrap

    @contextmanager
    def producing(self, sending: Sending) -> Iterator[Producing]:
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks=_ACKS[sending.acks],
            enable_idempotence=sending.idempotent,
            compression_type=None if sending.codec == "none" else sending.codec,
            linger_ms=10,
            delivery_timeout_ms=_DEADLINE_MS,
            request_timeout_ms=_DEADLINE_MS // 2,
            max_block_ms=_DEADLINE_MS,
            # A node that comes back is found again soon.
            reconnect_backoff_max_ms=200,
        )

        def send(topic: str, records: Sequence[Record], *, partition: int = 0) -> list[int] | None:
            told = _send(producer, topic, records, partition)
            return None if sending.acks == "0" else [each.offset for each in told]

        with closing(producer), _refusals():
            yield send

    def consume(
        self, topic: str, start: Start, *, partitions: Sequence[int] = (0,)
    ) -> list[ReadRecord]:
        places = [TopicPartition(topic, index) for index in partitions]
        with closing(self._consumer()) as consumer, _refusals():
            consumer.assign(places)
            _seek(consumer, places, start)
            ends = consumer.end_offsets(places)
            records: list[ReadRecord] = []
            deadline = time.monotonic() + DEADLINE_S
            while any(consumer.position(place) < ends[place] for place in places):
                records += _poll(consumer)
                _require_before(deadline)
        return records

    @contextmanager
    def follow(self, topic: str) -> Iterator[Following]:
        place = TopicPartition(topic, 0)
        with closing(self._consumer()) as consumer, _refusals():
            consumer.assign([place])
            consumer.seek_to_end(place)
            # Asked for, it is looked up at once and not with the first poll.
            consumer.position(place)

            def read(count: int) -> list[ReadRecord]:
                records: list[ReadRecord] = []
                deadline = time.monotonic() + DEADLINE_S
                while len(records) < count:
                    records += _poll(consumer)
                    _require_before(deadline)
                return records

            yield read

    def _consumer(self) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=FETCH_WAIT_MS,
        )


def _send(producer: Any, topic: str, records: Sequence[Record], partition: int) -> list[Any]:
    futures = [
        producer.send(
            topic,
            value=record.value,
            key=record.key,
            headers=list(record.headers),
            partition=partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    producer.flush(DEADLINE_S)
    return [future.get(DEADLINE_S) for future in futures]


def _seek(consumer: Any, places: Sequence[Any], start: Start) -> None:
    match start:
        case AtBeginning():
            consumer.seek_to_beginning(*places)
        case AtOffset(offset):
            for place in places:
                consumer.seek(place, offset)
        case AtTime(timestamp_ms):
            found = consumer.offsets_for_times(dict.fromkeys(places, timestamp_ms))
            for place in places:
                consumer.seek(place, found[place].offset)


def _poll(consumer: Any) -> list[ReadRecord]:
    return [
        ReadRecord(
            partition=told.partition,
            offset=told.offset,
            timestamp_ms=told.timestamp,
            key=told.key,
            value=told.value,
            headers=tuple((name, value) for name, value in told.headers),
        )
        for of_partition in consumer.poll(timeout_ms=100).values()
        for told in of_partition
    ]


def _require_before(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("kafka-python did not read to the end in time")


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except BrokerResponseError as error:
        raise RefusedError(error.errno, str(error)) from None


class KafkaPythonAdmin:
    """Looks after topics and options with kafka-python."""

    name: Final = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._admin: Final = KafkaAdminClient(bootstrap_servers=bootstrap)

    def close(self) -> None:
        self._admin.close()

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        new = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(configs or {}),
        }
        with _refusals():
            self._admin.create_topics({topic: new}, validate_only=validate_only)

    def topics(self) -> set[str]:
        return set(self._admin.list_topics())

    def describe_topic(self, topic: str) -> list[PartitionView]:
        (told,) = self._admin.describe_topics([topic])
        _require_none(told["error_code"], topic)
        return [
            PartitionView(
                index=partition["partition_index"],
                leader=partition["leader_id"],
                replicas=tuple(partition["replica_nodes"]),
                in_sync=tuple(partition["isr_nodes"]),
            )
            for partition in told["partitions"]
        ]

    def describe_cluster(self) -> ClusterView:
        told = self._admin.describe_cluster()
        brokers = frozenset(
            (broker["broker_id"], f"{broker['host']}:{broker['port']}")
            for broker in told["brokers"]
        )
        return ClusterView(told["controller_id"], brokers)

    def add_partitions(self, topic: str, total: int) -> None:
        with _refusals():
            self._admin.create_partitions({topic: total})

    def delete_records(self, topic: str, before: int) -> int:
        place = TopicPartition(topic, 0)
        with _refusals():
            return int(self._admin.delete_records({place: before})[place]["low_watermark"])

    def delete_topic(self, topic: str) -> None:
        with _refusals():
            self._admin.delete_topics([topic])

    def topic_configs(self, topic: str) -> dict[str, ConfigView]:
        return self._configs("topic", topic)

    def broker_configs(self, broker: int) -> dict[str, ConfigView]:
        return self._configs("broker", str(broker))

    def _configs(self, kind: str, name: str) -> dict[str, ConfigView]:
        told = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
        return {
            option: ConfigView(
                entry["value"], entry["config_source"] == f"DYNAMIC_{kind.upper()}_CONFIG"
            )
            for option, entry in told[kind][name].items()
        }

    def replace_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        # It keeps what is set already by sending that again.
        self._alter("topic", topic, configs, incremental=False)

    def change_topic_configs(self, topic: str, changes: Mapping[str, str | None]) -> None:
        self._alter("topic", topic, changes, incremental=True)

    def change_broker_configs(self, broker: int, changes: Mapping[str, str | None]) -> None:
        self._alter("broker", str(broker), changes, incremental=True)

    def _alter(
        self, kind: str, name: str, changes: Mapping[str, str | None], *, incremental: bool
    ) -> None:
        entries = {
            option: (AlterConfigOp.DELETE if value is None else AlterConfigOp.SET, value)
            for option, value in changes.items()
        }
        told = self._admin.alter_configs(
            [ConfigResource(kind, name, entries)], raise_on_unknown=False, incremental=incremental
        )
        outcome = told[kind][name]
        if outcome != "OK":
            # "[Error 40] InvalidConfigurationError: …", and no other word of the code.
            raise RefusedError(int(outcome.split("]")[0].split()[-1]), outcome)


def _require_none(code: int, what: str) -> None:
    if code:
        raise RefusedError(code, f"{what}: {for_code(code).__name__}")
