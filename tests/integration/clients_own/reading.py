"""What is in a topic, read by librdkafka: nobody who wrote the producer has a say in it."""

from __future__ import annotations

import uuid
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

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


def _seen(message: Message) -> Seen:
    told: Any = message.headers() or ()
    headers = tuple((str(name), content) for name, content in told)
    where = (message.partition() or 0, message.offset() or 0)
    return Seen(*where, message.key(), message.value(), headers, message.timestamp()[1])


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
                seen.append(_seen(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition() or 0)
        return len(ended) == partitions

    try:
        consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
        wait_until(take, _DEADLINE_S, f"all of {topic} is read")
    finally:
        consumer.close()
    return sorted(seen)
