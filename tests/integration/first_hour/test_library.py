"""The client library as people use it in their first hour: every call, against three nodes."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pytest

from ottla import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CommitError,
    Consumer,
    OffsetAndMetadata,
    Producer,
    Record,
    Report,
    TopicPartition,
)
from ottla.proto.errors import OttlaError

pytestmark = pytest.mark.integration
DEADLINE_S = 60.0


def _settings(bootstrap: str, group: str = "", **more: Any) -> dict[str, object]:
    chosen: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
    }
    if group:
        chosen["group.id"] = group
    return chosen | {name.replace("_", "."): value for name, value in more.items()}


def _read(consumer: Consumer, count: int) -> list[Record]:
    end = time.monotonic() + DEADLINE_S
    found: list[Record] = []
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records came"
        found += consumer.consume(count - len(found), 0.5)
    return found


def _write(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition)


def test_a_producer_does_all_that_it_says(bootstrap: str, topic: str) -> None:
    reports: list[Report] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    assert len(producer.partitions_for(topic)) == 3
    delivery = producer.send(
        topic,
        b"value",
        key=b"key",
        partition=1,
        timestamp_ms=1_700_000_000_000,
        headers=[("a", b"1")],
        on_delivery=reports.append,
    )
    report = delivery.result()
    assert (report.partition, report.offset) == (1, 0)
    producer.flush(timeout=DEADLINE_S)
    assert [one.offset for one in reports] == [0]
    assert producer.metrics()["records.ok"] == 1
    producer.close()
    with Consumer(_settings(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 1)])
        (record,) = _read(consumer, 1)
    assert (record.key, record.value, record.headers) == (b"key", b"value", (("a", b"1"),))
    assert record.timestamp_ms == 1_700_000_000_000


@pytest.mark.parametrize(
    ("name", "value", "raw"),
    [
        ("string", "ä", "ä".encode()),
        ("int32", -2, b"\xff\xff\xff\xfe"),
        ("int64", 258, b"\0\0\0\0\0\0\1\2"),
        ("float64", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
        ("bytes", b"raw", b"raw"),
        ("json", {"id": 7}, b'{"id":7}'),
    ],
)
def test_values_are_written_as_java_writes_them(
    bootstrap: str, topic: str, name: str, value: Any, raw: bytes
) -> None:
    with Producer({"bootstrap.servers": bootstrap, "value.serializer": name}) as producer:
        producer.send(topic, value, partition=0)
    with Consumer(_settings(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert _read(consumer, 1)[0].value.replace(b" ", b"") == raw
    with Consumer(_settings(bootstrap, value_deserializer=name)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert _read(consumer, 1)[0].value == value


class Shout:
    """Any object with `serialize` will do."""

    def serialize(self, topic: str, value: str) -> bytes:
        return f"{topic}: {value.upper()}".encode()


def test_an_object_of_ones_own_serializes(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "value.serializer": Shout()}) as producer:
        producer.send(topic, "hello", partition=0)
    with Consumer(_settings(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert _read(consumer, 1)[0].value == f"{topic}: HELLO".encode()


def test_a_partitioner_that_takes_turns_does_so_exactly(bootstrap: str, topic: str) -> None:
    with Producer({"bootstrap.servers": bootstrap, "partitioner": "round_robin"}) as producer:
        sent = [producer.send(topic, b"x") for _ in range(9)]
        assert sorted(one.result().partition for one in sent) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_subscription_replaces_the_one_before_and_an_empty_one_ends_it(
    bootstrap: str, topic: str, admin: Admin
) -> None:
    other = f"{topic}-other"
    admin.create_topics([other])
    _write(bootstrap, topic, 3)
    _write(bootstrap, other, 2)
    with Consumer(_settings(bootstrap, f"{topic}-subs")) as consumer:
        consumer.subscribe(topic)
        assert {one.topic for one in _read(consumer, 3)} == {topic}
        consumer.subscribe([other])
        assert {one.topic for one in _read(consumer, 2)} == {other}
        consumer.subscribe(f"^{topic}.*")
        assert consumer.subscription() == {topic, other}
        consumer.subscribe([])
        assert (consumer.subscription(), consumer.assignment()) == (set(), set())
        consumer.subscribe([topic, other])
        consumer.unsubscribe()
        assert consumer.assignment() == set()


def test_a_consumer_goes_where_it_is_told_to(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for number in range(10):
            time_ms = 1_700_000_000_000 + number * 1000
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=time_ms)
    with Consumer(_settings(bootstrap)) as consumer:
        assert len(consumer.partitions_for(topic)) == 3
        consumer.assign([first])

        def next_value() -> bytes:
            value: bytes = _read(consumer, 1)[0].value
            return value

        assert next_value() == b"0"
        assert consumer.position(first) == 1
        consumer.seek(first, 7)
        assert next_value() == b"7"
        consumer.seek_to_beginning()
        assert next_value() == b"0"
        consumer.seek_to_time(1_700_000_004_500)
        assert next_value() == b"5"
        consumer.seek_to_end()
        assert consumer.position(first) == 10
        assert consumer.poll(0.2) is None
        consumer.seek(first, 0)
        consumer.pause([first])
        assert consumer.consume(5, 0.2) == []
        consumer.resume([first])
        assert [one.value for one in consumer.consume(2, DEADLINE_S)] == [b"0", b"1"]
        assert consumer.metrics()["records.consumed"] >= 6


def test_a_consumer_is_iterated(bootstrap: str, topic: str) -> None:
    _write(bootstrap, topic, 5)
    values = []
    with Consumer(_settings(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        for record in consumer:
            values.append(record.value)
            if len(values) == 5:
                break
    assert values == [b"0", b"1", b"2", b"3", b"4"]


def test_commits_are_kept_both_kinds(bootstrap: str, topic: str) -> None:
    first = TopicPartition(topic, 0)
    _write(bootstrap, topic, 5)
    told: list[OttlaError | None] = []
    with Consumer(_settings(bootstrap, f"{topic}-g", enable_auto_commit=False)) as consumer:
        consumer.subscribe(topic)
        _read(consumer, 5)
        consumer.commit({first: 2})
        assert consumer.committed([first]) == {first: OffsetAndMetadata(2)}
        consumer.commit()
        found = consumer.committed([first])[first]
        assert found is not None
        assert found.offset == 5
        consumer.commit({first: 3}, asynchronous=True, callback=lambda _, error: told.append(error))
        end = time.monotonic() + DEADLINE_S
        while not told and time.monotonic() < end:
            consumer.poll(0.1)
        assert told == [None]
        with pytest.raises(CommitError):
            consumer.commit({first: -5})


def test_all_of_it_on_an_event_loop(bootstrap: str) -> None:
    asyncio.run(_on_an_event_loop(bootstrap))


async def _on_an_event_loop(bootstrap: str) -> None:
    topic = f"hour-{uuid.uuid4().hex[:8]}"
    group, first = f"{topic}-g", TopicPartition(topic, 0)
    async with AsyncAdmin({"bootstrap.servers": bootstrap}) as admin:
        await admin.create_topics([topic])
        async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
            assert (await producer.send(topic, b"a")).offset == 0
            producer.send(topic, b"b")
            await producer.flush()
            assert len(await producer.partitions_for(topic)) == 1
            assert producer.metrics()["records.ok"] == 2
        async with AsyncConsumer(_settings(bootstrap, group)) as consumer:
            await consumer.subscribe(topic)
            values = []
            async for record in consumer:
                values.append(record.value)
                if len(values) == 2:
                    break
            assert values == [b"a", b"b"]
            await consumer.seek_to_beginning()
            assert await consumer.position(first) == 0
            await consumer.seek_to_end()
            await consumer.commit()
            committed = await consumer.committed([first])
            assert committed[first] is not None
            await consumer.unsubscribe()
        assert group in [one.group_id for one in await admin.list_groups()]
        assert (await admin.list_group_offsets(group))[first].offset == 2
        assert await admin.delete_groups([group]) == {group: None}
        assert topic in await admin.list_topics()
        assert await admin.delete_topics([topic]) == {topic: None}
