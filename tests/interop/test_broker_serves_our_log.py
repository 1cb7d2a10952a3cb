"""A Kafka broker takes over segments that we wrote, and serves them as if they were its own.

The broker stopped cleanly before, so it trusts the files: it reads through *our* indexes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.broker import Broker, start_broker, wait_until
from tests.interop.our_log import NAMES, OurLog
from tests.interop.wire import Connection

pytestmark = pytest.mark.interop

OurLogs = dict[str, OurLog]
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def serving(
    kafka: None, our_logs: OurLogs, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("serving")
    with start_broker(folder) as first, Connection(first.port) as connection:
        for name in NAMES:
            connection.create_topic(name)
        wait_until(
            lambda: all((first.log_dir / f"{name}-0").exists() for name in NAMES),
            DEADLINE_S,
            "the partitions have directories",
        )
    for name in NAMES:
        target = first.log_dir / f"{name}-0"
        for file in (*target.glob("*.log"), *target.glob("*index")):
            file.unlink()
        for file in our_logs[name].directory.iterdir():
            shutil.copy(file, target / file.name)
    with start_broker(folder) as second:
        yield second


@pytest.fixture
def consumer(serving: Broker) -> Iterator[Consumer]:
    settings = {
        "bootstrap.servers": serving.address,
        "group.id": "interop",
        "enable.auto.commit": "false",
        "auto.offset.reset": "error",
        "check.crcs": "true",
    }
    consumer = Consumer(settings)
    yield consumer
    consumer.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_kafka_client_reads_our_records_from_a_kafka_broker(
    name: str, consumer: Consumer, our_logs: OurLogs
) -> None:
    expected = our_logs[name].records
    consumer.assign([TopicPartition(name, 0, 0)])
    records: list[tuple[object, ...]] = []

    def all_read() -> bool:
        for one in consumer.consume(num_messages=len(expected), timeout=0.5):
            assert one.error() is None, one.error()
            headers = tuple(one.headers() or ())
            records.append((one.offset(), one.timestamp()[1], one.key(), one.value(), headers))
        return len(records) >= len(expected)

    wait_until(all_read, DEADLINE_S, "all records are read")
    assert records == [tuple(one) for one in expected]


@pytest.mark.parametrize("name", ["none", "zstd", "append-time", "truncated", "recovered"])
def test_a_kafka_broker_finds_times_through_our_time_index(
    name: str, consumer: Consumer, our_logs: OurLogs
) -> None:
    records = our_logs[name].records
    for target in sorted({one.timestamp for one in records})[::97]:
        first = next(one.offset for one in records if one.timestamp >= target)
        found = consumer.offsets_for_times([TopicPartition(name, 0, target)], timeout=DEADLINE_S)
        assert (found[0].error, found[0].offset) == (None, first)
