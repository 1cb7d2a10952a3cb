"""librdkafka writes transactions, and who reads committed records sees all of one or nothing."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until
from tests.integration.transactions.ledger_clients import (
    DEADLINE_S,
    new_id,
    producer_of,
    read,
    words,
    write,
)

pytestmark = pytest.mark.integration

NewTopic = Callable[[int], str]


def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    cluster: RunningCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(6)
    producer = producer_of(cluster.bootstrap, new_id())
    for number in range(6):
        producer.begin_transaction()
        write(producer, topic, 6, f"w{number}")
        if number % 3 == 2:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    committed = {"w0", "w1", "w3", "w4"}
    wait_until(
        lambda: words(read(cluster.bootstrap, topic)) == [committed] * 6,
        DEADLINE_S,
        "every partition shows what was committed, and nothing else",
    )
    everything = words(read(cluster.bootstrap, topic, "read_uncommitted"))
    assert everything == [committed | {"w2", "w5"}] * 6


def test_an_open_transaction_is_not_seen_and_holds_back_what_comes_behind_it(
    cluster: RunningCluster, new_topic: NewTopic
) -> None:
    topic = new_topic(2)
    first, second = (producer_of(cluster.bootstrap, new_id()) for _ in range(2))
    first.begin_transaction()
    write(first, topic, 2, "open")
    second.begin_transaction()
    write(second, topic, 2, "behind")
    second.commit_transaction(DEADLINE_S)
    assert words(read(cluster.bootstrap, topic)) == [set(), set()]
    first.commit_transaction(DEADLINE_S)
    wait_until(
        lambda: words(read(cluster.bootstrap, topic)) == [{"open", "behind"}] * 2,
        DEADLINE_S,
        "both are seen",
    )


def test_a_successor_fences_who_had_the_id_before(
    cluster: RunningCluster, new_topic: NewTopic
) -> None:
    topic, name = new_topic(3), new_id()
    before = producer_of(cluster.bootstrap, name)
    before.begin_transaction()
    write(before, topic, 3, "zombie")
    after = producer_of(cluster.bootstrap, name)
    after.begin_transaction()
    write(after, topic, 3, "alive")
    after.commit_transaction(DEADLINE_S)
    with pytest.raises(KafkaException) as refused:
        before.commit_transaction(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    wait_until(
        lambda: words(read(cluster.bootstrap, topic)) == [{"alive"}] * 3,
        DEADLINE_S,
        "only the successor is seen",
    )


def test_a_transaction_that_takes_too_long_is_aborted_and_cannot_be_committed(
    cluster: RunningCluster, new_topic: NewTopic
) -> None:
    topic, name = new_topic(2), new_id()
    slow = producer_of(cluster.bootstrap, name, transaction_timeout_ms=1_000)
    slow.begin_transaction()
    write(slow, topic, 2, "slow")
    other = producer_of(cluster.bootstrap, new_id())
    other.begin_transaction()
    write(other, topic, 2, "other")
    other.commit_transaction(DEADLINE_S)
    wait_until(
        lambda: words(read(cluster.bootstrap, topic)) == [{"other"}] * 2,
        DEADLINE_S,
        "readers go on when the time of the slow one is up",
    )
    with pytest.raises(KafkaException):
        slow.commit_transaction(DEADLINE_S)
    assert words(read(cluster.bootstrap, topic)) == [{"other"}] * 2


def test_read_transform_write_is_done_once(cluster: RunningCluster, new_topic: NewTopic) -> None:
    source, target, group = new_topic(3), new_topic(3), new_id()
    feeder = producer_of(cluster.bootstrap, new_id())
    feeder.begin_transaction()
    for number in range(60):
        feeder.produce(source, str(number).encode(), partition=number % 3)
    feeder.commit_transaction(DEADLINE_S)

    name, tries = new_id(), 0
    done = set[str]()
    end = time.monotonic() + DEADLINE_S
    while len(done) < 60 and time.monotonic() < end:
        # Each worker dies half-way through, in the middle of a transaction, or after one.
        tries += 1
        producer = producer_of(cluster.bootstrap, name)
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": 6_000,
                "log_level": 0,
            }
        )
        consumer.subscribe([source])
        records: list[Message] = []
        while not records and time.monotonic() < end:
            records = [one for one in consumer.consume(10, 0.5) if one.error() is None]
        producer.begin_transaction()
        for record in records:
            producer.produce(target, record.value(), partition=record.partition() or 0)
        offsets = [
            TopicPartition(one.topic() or "", one.partition() or 0, (one.offset() or 0) + 1)
            for one in records
        ]
        last = {(one.topic, one.partition): one for one in offsets}
        producer.send_offsets_to_transaction(
            list(last.values()), consumer.consumer_group_metadata(), DEADLINE_S
        )
        if tries % 3 == 0:
            producer.flush(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
        consumer.close()
        done = {one for some in read(cluster.bootstrap, target).values() for one in some}
    # The transaction that its worker left open is aborted by the next one.
    producer_of(cluster.bootstrap, name)
    found = [one for some in read(cluster.bootstrap, target).values() for one in some]
    assert sorted(found, key=int) == [str(number) for number in range(60)]
    assert tries > 6
