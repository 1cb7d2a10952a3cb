"""A foreign client (librdkafka): it writes records, reads a topic whole, and prints what it saw.

Tests import it on this machine, and give its text to a Python in another container, where none of
our tests are. So it imports nothing of ours.

    python stranger.py BOOTSTRAP TOPIC FIRST COUNT
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

DEADLINE_S = 60.0


def look(bootstrap: str, topic: str | None = None) -> ClusterMetadata:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    return admin.list_topics(topic, timeout=DEADLINE_S)


def brokers(bootstrap: str) -> dict[int, str]:
    """Return where this client is told to find the brokers."""
    told = look(bootstrap).brokers.values()
    return {one.id: f"{one.host}:{one.port}" for one in told}


def create(bootstrap: str, topic: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(topic, partitions, 3)]).values():
        made.result(DEADLINE_S)


def write(bootstrap: str, topic: str, texts: list[str]) -> list[str]:
    """Write all of them with acks=all; return those that were acknowledged."""
    acknowledged: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append((message.value() or b"").decode())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "delivery.timeout.ms": int(DEADLINE_S * 1000),
        }
    )
    for text in texts:
        producer.produce(topic, text.encode(), on_delivery=on_delivery)
    producer.flush(DEADLINE_S)
    return acknowledged


def read(bootstrap: str, topic: str, partitions: int = 3) -> list[str]:
    """Return all records there are, up to where the topic ended when it was asked."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "stranger", "enable.auto.commit": False}
    )
    texts: list[str] = []
    with closing(consumer):
        ends = {}
        for number in range(partitions):
            where = TopicPartition(topic, number)
            start, end = consumer.get_watermark_offsets(where, timeout=DEADLINE_S)
            if start < end:
                ends[number] = end
        consumer.assign([TopicPartition(topic, number, 0) for number in ends])
        until = time.monotonic() + DEADLINE_S
        while ends and time.monotonic() < until:
            for message in consumer.consume(500, 0.2):
                if message.error():
                    continue
                texts.append((message.value() or b"").decode())
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if offset + 1 >= ends.get(partition, 0):
                    ends.pop(partition, None)
    assert not ends, f"these partitions were not read to their ends: {ends}"
    return texts


def main(bootstrap: str, topic: str, first: int, count: int) -> None:
    wanted = [f"{number:06}" for number in range(first, first + count)]
    acknowledged = write(bootstrap, topic, wanted)
    told = {
        "brokers": brokers(bootstrap),
        "acknowledged": acknowledged,
        "read": read(bootstrap, topic),
    }
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
