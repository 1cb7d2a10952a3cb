"""Read, transform, write, exactly once: Streams, a Java program and librdkafka, on three nodes.

Each is killed in the middle of it, and what it had begun is neither lost nor done twice.
"""

from __future__ import annotations

import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.clients.producer.client import Producer
from tests.integration.clients_own.consuming import write
from tests.integration.transactions.ledger_clients import producer_of, read
from tests.interop.broker import wait_until
from tests.interop.java_programs import Copier, word_count
from tests.interop.target import Target, start_target
from tests.interop.tools import CONSUMER_GROUPS, TOPICS, TRANSACTIONS, Tools, start_tools

pytestmark = pytest.mark.interop

DEADLINE_S = 180.0
REPLICAS = ("--replication-factor", "3")


@pytest.fixture(scope="module")
def target(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("exactly-once")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(target: Target) -> Iterator[Tools]:
    with start_tools(target.bootstrap) as running:
        yield running


@pytest.fixture(scope="module")
def producer(target: Target) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 0}) as made:
        yield made


def create(tools: Tools, *names: str, partitions: int = 1) -> None:
    for name in names:
        options = ("--topic", name, "--partitions", str(partitions), *REPLICAS)
        tools.ask(TOPICS, "--create", *options)


# Kafka Streams

INPUT = "streams-plaintext-input"
OUTPUT = "streams-wordcount-output"
LINES = ("all streams lead to kafka", "hello kafka streams", "join kafka summit")
ROUNDS = 4
EXACTLY_ONCE = {"processing.guarantee": "exactly_once_v2"}


@contextmanager
def counts(target: Target) -> Iterator[Callable[[], dict[str, list[int]]]]:
    """Yield a function that reads on, and returns every count of every word that was committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": "not-a-member",
            "isolation.level": "read_committed",
        }
    )
    found: dict[str, list[int]] = defaultdict(list)

    def read_on() -> dict[str, list[int]]:
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                word, number = message.key() or b"", message.value() or b""
                found[word.decode()] += struct.unpack(">q", number)
        return found

    consumer.assign([TopicPartition(OUTPUT, 0, 0)])
    try:
        yield read_on
    finally:
        consumer.close()


def test_streams_counts_every_word_exactly_once_although_it_is_killed(
    tools: Tools, target: Target, producer: Producer, tmp_path: Path
) -> None:
    create(tools, INPUT, OUTPUT)
    expected: Counter[str] = Counter()
    process: subprocess.Popen[bytes]
    with counts(target) as read_on:

        def is_counted() -> bool:
            # Whoever counts a line twice is found by a number too many, or out of order.
            found = read_on()
            for word, numbers in found.items():
                assert numbers == list(range(1, len(numbers) + 1)), word
            return {word: len(numbers) for word, numbers in found.items()} == expected

        def count() -> int:
            return sum(map(len, read_on().values()))

        def has_more(before: int) -> bool:
            return count() > before

        for number in range(ROUNDS):
            with word_count(target.bootstrap, tmp_path, EXACTLY_ONCE) as process:
                for line in LINES * 20:
                    producer.send(INPUT, line.encode())
                    expected.update(line.split())
                producer.flush(DEADLINE_S)
                if number % 2:
                    wait_until(is_counted, DEADLINE_S, "all words are counted")
                else:
                    # While it counts.
                    before = count()
                    wait_until(partial(has_more, before), DEADLINE_S, "it has begun")
                    process.kill()
        assert is_counted()
    listed = tools.ask(TRANSACTIONS, "list").out
    assert "CompleteCommit" in listed, "it has written in transactions"


# A Java program, and librdkafka after it


def offset_of(tools: Tools, group: str) -> int:
    """Return how far a group has come, in all partitions together."""
    ran = tools.ask(CONSUMER_GROUPS, "--describe", "--group", group)
    rows = [line.split() for line in ran.lines if line.startswith(group)]
    return sum(int(row[3]) for row in rows)


def values_of(target: Target, topic: str) -> list[int]:
    found = read(target.bootstrap, topic)
    return [int(one) for index in sorted(found) for one in found[index]]


@pytest.mark.parametrize("mode", ["assigned", "member"])
def test_java_copies_exactly_once_and_librdkafka_goes_on_where_it_was_killed(
    tools: Tools, target: Target, producer: Producer, mode: str
) -> None:
    source, copy, group = f"{mode}-source", f"{mode}-copy", f"{mode}-copiers"
    create(tools, source, copy, partitions=2)
    write(producer, source, 800, partitions=2)
    options = (
        *("--input-topic", source, "--input-partition", "0", "--output-topic", copy),
        *("--consumer-group", group, "--transactional-id", group, "--transaction-size", "25"),
        *("--enable-random-aborts", "--use-group-metadata"),
        *(["--group-mode"] if mode == "member" else []),
    )
    with Copier(target.bootstrap, *options) as copier:
        for said in copier.told():
            if said["totalProcessed"] > 100:
                copier.kill()
    assert 0 < len(values_of(target, copy)) < 800
    if mode == "assigned":
        # The same program, again: it goes on, and ends when it has copied this partition.
        with Copier(target.bootstrap, *options) as copier:
            copier.run()
        assert values_of(target, copy) == list(range(0, 800, 2))
    go_on(target, source, copy, group)
    found = values_of(target, copy)
    assert sorted(found) == list(range(800))
    assert found == [*range(0, 800, 2), *range(1, 800, 2)], "in their order"
    assert offset_of(tools, group) == 800


def go_on(target: Target, source: str, copy: str, name: str) -> None:
    """Copy the rest with librdkafka, as a member of the group and under the same id."""
    writer = producer_of(target.bootstrap, name)
    reader = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    reader.subscribe([source])

    def is_copied() -> bool:
        records = [one for one in reader.consume(100, 0.5) if one.error() is None]
        if records:
            writer.begin_transaction()
            for record in records:
                writer.produce(copy, record.value(), partition=record.partition() or 0)
            offsets, member = reader.position(reader.assignment()), reader.consumer_group_metadata()
            writer.send_offsets_to_transaction(
                [one for one in offsets if one.offset >= 0], member, DEADLINE_S
            )
            writer.commit_transaction(DEADLINE_S)
        return len(values_of(target, copy)) >= 800

    try:
        wait_until(is_copied, DEADLINE_S, "the rest is copied")
    finally:
        reader.close()
