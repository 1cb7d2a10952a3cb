"""Our producer: what it says was written is there, once and in order, for whoever reads it."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections import Counter

import pytest

from ottla import AsyncProducer, DeliveryFailedError, Producer, Report
from ottla.chaos.backends.reserved import reserve_ports
from ottla.clients.errors import BootstrapError, BufferFullError, NoTopicError, SerdeError
from ottla.clients.producer.batch import State
from ottla.proto.errors import ErrorCode
from tests.integration.clients_own.conftest import MakeTopic
from tests.integration.clients_own.reading import read_all

pytestmark = pytest.mark.integration
DEADLINE_S = 30.0


def test_a_record_is_written_with_key_headers_and_time(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        headers = [("a", b"1"), ("a", None)]
        delivery = producer.send(
            topic, b"value", key=b"key", timestamp_ms=1_700_000_000_000, headers=headers
        )
        report = delivery.result(DEADLINE_S)
    assert report == Report(State.OK, topic, 0, 0, 1_700_000_000_000, None)
    (seen,) = read_all(bootstrap, topic, 1)
    assert (seen.key, seen.value, seen.timestamp_ms) == (b"key", b"value", 1_700_000_000_000)
    assert seen.headers == (("a", b"1"), ("a", None))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_many_records_are_there_once_and_in_order_with_every_codec(
    bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(3)
    told = list[Report]()
    with Producer({"bootstrap.servers": bootstrap, "compression.type": codec}) as producer:
        for at in range(5000):
            producer.send(topic, b"%d" % at, partition=at % 3, on_delivery=told.append)
        producer.flush(DEADLINE_S)
    assert Counter(report.state for report in told) == {State.OK: 5000}
    seen = read_all(bootstrap, topic, 3)
    for partition in range(3):
        values = [one.value for one in seen if one.partition == partition]
        assert values == [b"%d" % at for at in range(partition, 5000, 3)]


def test_keys_go_where_librdkafka_and_java_would_send_them(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    from confluent_kafka import Producer as Theirs

    topic = make_topic(7)
    keys = [b"key-%d" % at for at in range(60)]
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        ours = {key: producer.send(topic, b"v", key=key) for key in keys}
        placed = {key: one.result(DEADLINE_S).partition for key, one in ours.items()}
    theirs = Theirs({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce(topic, b"theirs", key=key)
    theirs.flush(DEADLINE_S)
    for seen in read_all(bootstrap, topic, 7):
        assert seen.key is not None
        assert placed[seen.key] == seen.partition


def test_round_robin_is_exact(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(4)
    with Producer({"bootstrap.servers": bootstrap, "partitioner": "round_robin"}) as producer:
        sent = [producer.send(topic, b"v") for _ in range(40)]
        where = Counter(one.result(DEADLINE_S).partition for one in sent)
    assert where == {0: 10, 1: 10, 2: 10, 3: 10}


def test_values_are_serialized_as_asked_for(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    config = {
        "bootstrap.servers": bootstrap,
        "key.serializer": "int64",
        "value.serializer": "json",
    }
    with Producer(config) as producer:
        producer.send(topic, {"a": [1, None]}, key=258).result(DEADLINE_S)
        with pytest.raises(SerdeError, match="int64"):
            producer.send(topic, {}, key="258")
    (seen,) = read_all(bootstrap, topic, 1)
    assert (seen.key, seen.value) == ((258).to_bytes(8), b'{"a":[1,null]}')


def test_with_acks_0_nobody_is_asked_and_nothing_is_claimed(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer({"bootstrap.servers": bootstrap, "acks": 0}) as producer:
        sent = [producer.send(topic, b"%d" % at) for at in range(100)]
        producer.flush(DEADLINE_S)
        reports = [one.result(DEADLINE_S) for one in sent]
        # A request with an answer behind them on the same connection shows that they arrived.
        producer.partitions_for(topic)
    assert {(report.state, report.offset) for report in reports} == {(State.UNKNOWN, None)}


def test_many_threads_may_send_at_once(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with Producer({"bootstrap.servers": bootstrap}) as producer:

        def work(who: int) -> None:
            for at in range(500):
                producer.send(topic, b"%d" % at, key=b"thread-%d" % who)

        threads = [threading.Thread(target=work, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    by_key: dict[bytes | None, list[bytes | None]] = {}
    for seen in read_all(bootstrap, topic, 3):
        by_key.setdefault(seen.key, []).append(seen.value)
    assert by_key == {b"thread-%d" % who: [b"%d" % at for at in range(500)] for who in range(4)}


def test_a_batch_too_large_for_the_topic_is_split_until_it_fits(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(max_message_bytes="3000")
    config = {"bootstrap.servers": bootstrap, "linger.ms": 100, "batch.size": 100_000}
    with Producer(config) as producer:
        sent = [producer.send(topic, b"x" * 1000) for _ in range(20)]
        offsets = [one.result(DEADLINE_S).offset for one in sent]
        with pytest.raises(DeliveryFailedError) as refused:
            producer.send(topic, b"x" * 5000).result(DEADLINE_S)
        after = producer.send(topic, b"after").result(DEADLINE_S)
    assert offsets == list(range(20))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert after.offset == 20


def test_memory_that_is_used_up_holds_the_sender_back(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    config = {"bootstrap.servers": bootstrap, "buffer.memory": 20_000, "linger.ms": 0}
    with Producer(config) as producer:
        sent = [producer.send(topic, b"x" * 3000) for _ in range(100)]
        producer.flush(DEADLINE_S)
    assert [one.result(0).offset for one in sent] == list(range(100))


def test_what_cannot_wait_for_room_is_told_after_max_block_ms(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    config = {
        "bootstrap.servers": bootstrap,
        "buffer.memory": 5000,
        "linger.ms": 20_000,
        "max.block.ms": 3000,
        "batch.size": 1_000_000,
    }
    with Producer(config) as producer:
        producer.send(topic, b"x" * 3000)
        with pytest.raises(BufferFullError, match=r"max\.block\.ms \(3000\)"):
            producer.send(topic, b"x" * 3000)


def test_awaiting_tells_what_became_of_a_record(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)

    async def main() -> list[Report]:
        async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
            assert len(await producer.partitions_for(topic)) == 2
            sent = [producer.send(topic, b"%d" % at, partition=at % 2) for at in range(10)]
            await producer.flush(DEADLINE_S)
            assert all(one.done() for one in sent)
            return [await one for one in sent]

    reports = asyncio.run(main())
    assert [(one.partition, one.offset) for one in reports] == [(n % 2, n // 2) for n in range(10)]


def test_a_record_for_a_topic_that_is_not_known_yet_waits_for_it(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()

    async def main() -> list[int | None]:
        async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
            # No await before: nothing is connected.
            sent = [producer.send(topic, b"v") for _ in range(3)]
            with pytest.raises(asyncio.InvalidStateError):
                sent[0].result()
            bad = producer.send(topic, b"v", partition=9)
            with pytest.raises(DeliveryFailedError, match="no partition 9"):
                await bad
            return [(await one).offset for one in sent]

    assert asyncio.run(main()) == [0, 1, 2]


def test_a_topic_is_made_where_the_cluster_allows_it(bootstrap: str) -> None:
    topic = f"made-{uuid.uuid4().hex[:12]}"
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        assert producer.send(topic, b"v").result(DEADLINE_S).offset == 0


def test_a_topic_that_is_not_made_is_told_within_max_block_ms(bootstrap: str) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "allow.auto.create.topics": False,
        "max.block.ms": 5000,
    }
    with Producer(config) as producer, pytest.raises(NoTopicError, match="`ottla topics create"):
        producer.send(f"never-{uuid.uuid4().hex}", b"v")


def test_metrics_count_what_was_sent(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for _ in range(10):
            producer.send(topic, b"v")
        producer.flush(DEADLINE_S)
        metrics = producer.metrics()
    assert metrics["records.ok"] == 10
    assert metrics["buffer.used.bytes"] == 0
    assert metrics["request.ms.p99"] > 0


@pytest.mark.parametrize(
    ("servers", "words"),
    [("nobody.invalid:9092", "the name is not known"), (None, "connection refused")],
)
def test_a_wrong_address_is_told_within_the_deadline(servers: str | None, words: str) -> None:
    servers = servers or f"127.0.0.1:{reserve_ports(1)[0]}"
    config = {"bootstrap.servers": servers, "max.block.ms": 500}
    with (
        Producer(config) as producer,
        pytest.raises(BootstrapError, match=rf"{words}.*bootstrap\.servers must name"),
    ):
        producer.send("t", b"v")
