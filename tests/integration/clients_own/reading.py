"""What is in a topic, read by librdkafka: nobody who wrote the producer has a say in it."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.integration.nodes import wait_until

_DEADLINE_S: Final = 30.0


class Seen(NamedTuple):
    """A record as a stranger read it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Seen]:
    """Return every record, partition by partition, in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reads-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    seen, ended = list[Seen](), set[int]()

    def take() -> bool:
        for message in consumer.consume(1000, 0.2):
            error = message.error()
            if error is None:
                headers = tuple(message.headers() or ())
                place = (message.partition(), message.offset(), message.key(), message.value())
                seen.append(Seen(*place, headers, message.timestamp()[1]))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return len(ended) == partitions

    try:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
        wait_until(take, _DEADLINE_S, f"all of {topic} is read")
    finally:
        consumer.close()
    return sorted(seen)
