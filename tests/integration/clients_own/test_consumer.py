"""Our consumer without a group: assigned partitions, positions, pauses, errors."""

from __future__ import annotations

import asyncio
import time

import pytest
from confluent_kafka import Producer as ConfluentProducer

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.errors import ConsumerError, NoOffsetError
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.errors import BootstrapError, DeserializationError
from ottla.clients.producer.client import Producer
from ottla.proto.errors import ConfigError, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from tests.integration.clients_own.conftest import NamedTopic
from tests.integration.clients_own.consuming import DEADLINE_S, read, settings, write

pytestmark = pytest.mark.integration


def test_what_was_written_is_read_in_order(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic(3)
    write(producer, topic, 3000, partitions=3)
    partitions = [TopicPartition(topic, number) for number in range(3)]
    with Consumer(settings(bootstrap)) as consumer:
        consumer.assign(partitions)
        records = read(consumer, 3000)
        for number in range(3):
            values = [int(one.value) for one in records if one.partition == number]
            assert values == list(range(number, 3000, 3))
        assert [consumer.position(one) for one in partitions] == [1000] * 3
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 1000)
        assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
        assert consumer.metrics()["records.consumed"] == 3000
        assert consumer.poll(0.05) is None


def test_the_same_in_asyncio(bootstrap: str, producer: Producer, new_topic: NamedTopic) -> None:
    topic = new_topic(2)
    write(producer, topic, 100, partitions=2)

    async def consume() -> list[int]:
        found = []
        async with AsyncConsumer(settings(bootstrap)) as consumer:
            await consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
            async with asyncio.timeout(DEADLINE_S):
                async for record in consumer:
                    found.append(int(record.value))
                    if len(found) == 100:
                        break
        return found

    assert sorted(asyncio.run(consume())) == list(range(100))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_another_client_is_read(
    bootstrap: str, new_topic: NamedTopic, codec: str
) -> None:
    topic = new_topic()
    other = ConfluentProducer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(200):
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number), ("empty", None)]
        other.produce(
            topic, b"v" * 200 + b"%d" % number, key=b"k", headers=headers if number % 2 else None
        )
    assert other.flush(DEADLINE_S) == 0
    with Consumer(settings(bootstrap)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = read(consumer, 200)
    assert [one.value for one in records] == [b"v" * 200 + b"%d" % n for n in range(200)]
    assert records[1].headers == (("n", b"1"), ("empty", None))
    assert records[1].header("n") == b"1"
    assert records[0].headers == ()


def test_seeking(bootstrap: str, producer: Producer, new_topic: NamedTopic) -> None:
    topic, partition = new_topic(), None
    partition = TopicPartition(topic, 0)
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0, timestamp_ms=1_700_000_000_000 + number)
    producer.flush(DEADLINE_S)
    with Consumer(settings(bootstrap)) as consumer:
        consumer.assign([partition])
        read(consumer, 10)
        consumer.seek(partition, 4)
        assert read(consumer, 1)[0].offset == 4
        consumer.seek_to_beginning()
        assert read(consumer, 1)[0].offset == 0
        consumer.seek_to_end()
        assert consumer.position(partition) == 10
        assert consumer.poll(0.1) is None
        consumer.seek_to_time(1_700_000_000_007)
        assert read(consumer, 1)[0].offset == 7
        consumer.seek_to_time(1_800_000_000_000)
        assert consumer.position(partition) == 10
        found = consumer.offsets_for_times({partition: 1_700_000_000_003})[partition]
        assert found is not None
        assert found[:2] == (3, 1_700_000_000_003)
        with pytest.raises(ConsumerError, match="0 or more"):
            consumer.seek(partition, -5)
        with pytest.raises(RequestError, match="is not assigned"):
            consumer.seek(TopicPartition(topic, 9), 0)


def test_times_may_be_the_first_thing_that_a_consumer_is_asked_for(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    partition = TopicPartition(new_topic(), 0)
    producer.send(partition.topic, b"x", partition=0, timestamp_ms=1_700_000_000_000)
    producer.flush(DEADLINE_S)
    with Consumer({**settings(bootstrap), "default.api.timeout.ms": 10_000}) as consumer:
        found = consumer.offsets_for_times({partition: 1_700_000_000_000})[partition]
    assert found is not None
    assert found.offset == 0


def test_what_is_paused_waits_and_the_rest_goes_on(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic(2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(producer, topic, 20, partitions=2)
    with Consumer(settings(bootstrap)) as consumer:
        consumer.assign([first, second])
        consumer.pause([first])
        assert consumer.paused() == {first}
        assert {one.partition for one in read(consumer, 10)} == {1}
        assert consumer.poll(0.1) is None
        consumer.resume([first])
        assert {one.partition for one in read(consumer, 10)} == {0}


def test_latest_reads_only_what_comes_later(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic()
    write(producer, topic, 5)
    with Consumer(settings(bootstrap) | {"auto.offset.reset": "latest"}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.position(TopicPartition(topic, 0)) == 5
        write(producer, topic, 1, start=77)
        assert read(consumer, 1)[0].value == b"77"


def test_an_offset_that_is_not_there_is_reset_or_told(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic()
    partition = TopicPartition(topic, 0)
    write(producer, topic, 3)
    with Consumer(settings(bootstrap)) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        assert read(consumer, 1)[0].offset == 0
    with Consumer(settings(bootstrap) | {"auto.offset.reset": "none"}) as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffsetError, match=r"auto\.offset\.reset is none"):
            consumer.poll(DEADLINE_S)
        consumer.seek(partition, 2)
        assert read(consumer, 1)[0].offset == 2


def test_a_record_that_cannot_be_read_is_told_and_does_not_end_the_consumer(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic()
    for value in (b'{"n":1}', b"{broken", b'{"n":3}'):
        producer.send(topic, value, partition=0)
    producer.flush(DEADLINE_S)
    chosen = settings(bootstrap) | {"value.deserializer": "json"}
    told: list[OttlaError] = []
    with Consumer(chosen, on_error=told.append) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [one.value for one in read(consumer, 2)] == [{"n": 1}, {"n": 3}]
        assert consumer.metrics()["records.unreadable"] == 1
    (error,) = told
    assert isinstance(error, DeserializationError)
    assert (error.topic, error.partition, error.offset) == (topic, 0, 1)
    with Consumer(chosen, strict=True) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert read(consumer, 1)[0].value == {"n": 1}
        with pytest.raises(DeserializationError, match="offset 1"):
            consumer.consume(1, DEADLINE_S)
        assert read(consumer, 1)[0].value == {"n": 3}


def test_small_limits_slow_down_and_lose_nothing(
    bootstrap: str, producer: Producer, new_topic: NamedTopic
) -> None:
    topic = new_topic(2)
    write(producer, topic, 400, partitions=2)
    limits = {"fetch.max.bytes": 900, "max.partition.fetch.bytes": 300, "max.poll.records": 7}
    with Consumer(settings(bootstrap) | limits) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        assert len(consumer.consume(timeout=DEADLINE_S)) <= 7
        consumer.seek_to_beginning()
        assert sorted(int(one.value) for one in read(consumer, 400)) == list(range(400))


def test_wrong_options_and_wrong_addresses_say_what_to_change(bootstrap: str) -> None:
    with pytest.raises(ConfigError, match=r"is group\.id meant"):
        Consumer({"bootstrap.servers": bootstrap, "group.idd": "g"})
    alone = {"bootstrap.servers": bootstrap}
    with Consumer(alone) as consumer, pytest.raises(ConfigError, match=r"group\.id is needed"):
        consumer.subscribe("a")
    nobody = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": 300, "group.id": "g"}
    began = time.monotonic()
    with Consumer(nobody) as consumer, pytest.raises(BootstrapError, match=r"127\.0\.0\.1:1"):
        consumer.subscribe("a")
    assert time.monotonic() - began < DEADLINE_S
