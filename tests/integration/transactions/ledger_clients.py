"""Producers and readers of transactions, and who coordinates and leads what."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.proto.kafka import apis
from ottla.proto.kafka.apis import ApiRow
from ottla.proto.kafka.message import Message
from tests.hostile.stage import Closed, Wire
from tests.integration.clusters import RunningCluster

DEADLINE_S: Final = 60.0
# Few partitions of the topics of coordinators: a cluster that lives for seconds needs no more.
OPTIONS: Final = {
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.two.phase.commit.enable": "true",
}


def new_id() -> str:
    return f"tx-{uuid.uuid4().hex[:8]}"


def producer_of(bootstrap: str, transactional_id: str, **changes: Any) -> Producer:
    """Return a producer that holds a transactional id."""
    options = {key.replace("_", "."): value for key, value in changes.items()}
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **options,
        }
    )
    producer.init_transactions(DEADLINE_S)
    return producer


def write(producer: Producer, topic: str, partitions: int, word: str, count: int = 3) -> None:
    """Write words to each partition, and wait until they are there."""
    for number in range(count):
        for index in range(partitions):
            producer.produce(topic, f"{word}/{number}".encode(), partition=index)
    assert producer.flush(DEADLINE_S) == 0


def patiently(step: Any, *args: Any) -> None:
    """Do a step of a transaction, again for as long as the client says that it may help."""
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            step(*args)
        except KafkaException as failure:
            if not failure.args[0].retriable() or time.monotonic() > end:
                raise
        else:
            return


def read(bootstrap: str, topic: str, isolation: str = "read_committed") -> dict[int, list[str]]:
    """Return everything that can be read now, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4().hex[:8]}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    told = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(
        topic, DEADLINE_S
    )
    indexes = set(told.topics[topic].partitions)
    found: dict[int, list[str]] = {index: [] for index in indexes}
    consumer.assign([TopicPartition(topic, index, 0) for index in indexes])
    end = time.monotonic() + DEADLINE_S
    while indexes:
        assert time.monotonic() < end, f"{topic} is not read to its end"
        for record in consumer.consume(500, 0.2):
            partition = record.partition()
            assert partition is not None
            if record.error() is None:
                found[partition].append((record.value() or b"").decode())
            else:
                indexes.discard(partition)
    consumer.close()
    return found


def words(found: Mapping[int, list[str]]) -> list[set[str]]:
    """Return, for each partition, which transactions can be seen there."""
    return [{one.partition("/")[0] for one in found[index]} for index in sorted(found)]


# ── The wire ──────────────────────────────────────────────────────────────────────────────────


def ask(bootstrap: str, row: ApiRow, version: int, **fields: Any) -> Message:
    with Wire(bootstrap) as wire:
        answer = wire.ask(row, version, fields)
    assert not isinstance(answer, Closed)
    return answer


def coordinator_of(cluster: RunningCluster, key: str, key_type: int = 1) -> int:
    """Wait until somebody coordinates an id (or a group), and return who."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        node = cluster.running[0]
        answer = ask(
            node.bootstrap, apis.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[key]
        )
        (told,) = answer.coordinators
        if told.error_code == 0:
            return int(told.node_id)
        time.sleep(0.05)
    raise AssertionError(f"nobody coordinates {key}")


def leader_of(cluster: RunningCluster, topic: str, index: int) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.running[0].bootstrap, "log_level": 0})
    told = admin.list_topics(topic, DEADLINE_S)
    return int(told.topics[topic].partitions[index].leader)
