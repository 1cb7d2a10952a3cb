"""What each client sends, every client reads: codecs, sizes, keys, headers, timestamps, acks."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.clients.aio import AioKafka
from tests.integration.clients.cases import (
    CODECS,
    MOMENT_MS,
    ODD_HEADERS,
    assert_same,
    numbered,
)
from tests.integration.clients.confluent import ConfluentKafka
from tests.integration.clients.kafka_python import KafkaPython
from tests.integration.clients.port import (
    DEADLINE_S,
    AtBeginning,
    Client,
    NewTopic,
    Record,
    Sending,
    produce,
)
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_client_sends_with_a_codec_every_client_reads(
    client: Client, codec: str, readers: list[Client], new_topic: NewTopic
) -> None:
    topic = new_topic()

    offsets = produce(client, topic, client.sample, Sending(codec=codec))

    assert offsets in (None, list(range(len(client.sample))))
    for reader in readers:
        assert_same(reader.consume(topic, AtBeginning()), client.sample)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_an_idempotent_producer_sends(client: Client, codec: str, new_topic: NewTopic) -> None:
    topic = new_topic()

    produce(client, topic, client.sample, Sending(codec=codec, idempotent=True))

    assert_same(client.consume(topic, AtBeginning()), client.sample)


@pytest.mark.parametrize("writer", [ConfluentKafka, AioKafka])
def test_a_header_may_lack_a_value_or_a_name(
    writer: Callable[[str], Client], bootstrap: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    produce(writer(bootstrap), topic, ODD_HEADERS)

    for reader in (ConfluentKafka(bootstrap), KafkaPython(bootstrap), AioKafka(bootstrap)):
        assert_same(reader.consume(topic, AtBeginning()), ODD_HEADERS)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_whatever_acknowledgement_was_asked_for(
    client: Client, acks: str, new_topic: NewTopic
) -> None:
    topic = new_topic()

    offsets = produce(client, topic, client.sample, Sending(acks=acks))

    assert offsets in (None, list(range(len(client.sample))))
    # With acks=0 nobody says when they are there.
    wait_until(
        lambda: len(client.consume(topic, AtBeginning())) == len(client.sample),
        DEADLINE_S,
        "all records have arrived",
    )
    assert_same(client.consume(topic, AtBeginning()), client.sample)


def test_partitions_are_apart(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)

    for partition in range(3):
        records = [Record(f"{partition}-{i}".encode()) for i in range(partition + 1)]
        produce(client, topic, records, partition=partition)

    for partition in range(3):
        read = client.consume(topic, AtBeginning(), partitions=[partition])
        assert [each.value for each in read] == [
            f"{partition}-{i}".encode() for i in range(partition + 1)
        ]


def test_a_record_without_a_timestamp_has_the_time_of_its_client(
    client: Client, new_topic: NewTopic
) -> None:
    topic = new_topic()
    before = int(time.time() * 1000)

    produce(client, topic, [Record(b"now")])

    (read,) = client.consume(topic, AtBeginning())
    assert before <= read.timestamp_ms <= int(time.time() * 1000)


def test_log_append_time_replaces_what_the_producer_said(
    client: Client, readers: list[Client], new_topic: NewTopic
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)

    produce(client, topic, [Record(b"old", timestamp_ms=MOMENT_MS)])

    for reader in readers:
        (read,) = reader.consume(topic, AtBeginning())
        assert before <= read.timestamp_ms <= int(time.time() * 1000)


@pytest.mark.parametrize("codec", ["uncompressed", *CODECS[1:]])
def test_a_topic_with_a_codec_of_its_own_is_read_by_every_client(
    codec: str, readers: list[Client], new_topic: NewTopic
) -> None:
    topic = new_topic(compression_type=codec)
    writer = readers[0]

    produce(writer, topic, writer.sample, Sending(codec="lz4"))

    for reader in readers:
        assert_same(reader.consume(topic, AtBeginning()), writer.sample)


def test_producers_one_after_the_other_append(client: Client, new_topic: NewTopic) -> None:
    topic = new_topic()
    records = numbered(3)

    for _ in range(2):
        produce(client, topic, records, Sending(idempotent=True))

    read = client.consume(topic, AtBeginning())
    assert [each.offset for each in read] == list(range(6))
    assert [each.value for each in read] == [each.value for each in records * 2]
