"""Clients that write, read, ask and blunder until they are stopped: something to see.

Not here: whether what they are answered is right (tests/integration).
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.integration.nodes import wait_until

DEADLINE_S: Final = 30.0
ANSWER_S: Final = 5
PAUSE_S: Final = 0.005
_JOIN_S: Final = 30.0


def admin_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create(
    admin: AdminClient, name: str, assignment: Sequence[Sequence[int]], **configs: str
) -> None:
    """Make a topic with these replicas, and options written with underscores."""
    wanted = NewTopic(
        name,
        len(assignment),
        replica_assignment=[list(one) for one in assignment],
        config={key.replace("_", "."): value for key, value in configs.items()},
    )
    admin.create_topics([wanted])[name].result(DEADLINE_S)


def set_option(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Change an option of a topic; asked again if a broker that is gone was asked."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

    def is_done() -> bool:
        asked = admin.incremental_alter_configs([resource], request_timeout=ANSWER_S)
        try:
            asked[resource].result(DEADLINE_S)
        except KafkaException:
            return False
        return True

    wait_until(is_done, DEADLINE_S, f"{name} of {topic} is {value}")


def blunder(address: str) -> None:
    """Say something at the port of Kafka that is none of its words."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        sock.recv(1)


def _write(bootstrap: str, topic: str, over: threading.Event) -> None:
    options: dict[str, str | int] = {
        "acks": "all",
        "linger.ms": 5,
        "message.timeout.ms": 5_000,
        # What is refused is tried again at once, as by a producer in a hurry.
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 50,
    }
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
    for number in count():
        if over.wait(PAUSE_S):
            break
        with suppress(BufferError):
            producer.produce(topic, b"x" * 200, key=b"%d" % (number % 100))
        producer.poll(0)
    producer.purge()
    producer.flush(1)


def _read(bootstrap: str, topic: str, partitions: int, over: threading.Event) -> None:
    options = {"group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    while not over.is_set():
        consumer.consume(100, 0.2)
    consumer.close()


def _read_in_group(bootstrap: str, topic: str, over: threading.Event) -> None:
    options: dict[str, str | int] = {"group.id": "readers", "auto.commit.interval.ms": 500}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
    consumer.subscribe([topic])
    while not over.is_set():
        consumer.consume(100, 0.2)
    consumer.close()


def commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Commit offsets of a group that has no members, asked again while nobody coordinates it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    wanted = [TopicPartition(one.topic, one.partition, at) for one, at in offsets.items()]

    def is_done() -> bool:
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return False
        return all(one.error is None for one in done)

    wait_until(is_done, DEADLINE_S, f"{group} has committed")
    consumer.close()


def ends_of(bootstrap: str, topic: str, partitions: int) -> dict[TopicPartition, int]:
    """Return where the partitions of a topic end."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0})
    places = [TopicPartition(topic, index) for index in range(partitions)]
    found = {one: consumer.get_watermark_offsets(one, timeout=DEADLINE_S)[1] for one in places}
    consumer.close()
    return found


def open_transaction(bootstrap: str, name: str, topic: str) -> Producer:
    """Return a producer that has written a record to the first partition, in a transaction."""
    options: dict[str, str | int] = {"transactional.id": name, "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    return producer


def _ask(bootstrap: str, topic: str, addresses: Sequence[str], over: threading.Event) -> None:
    """Ask for what is not there, change something, and speak HTTP, every half second."""
    admin = admin_of(bootstrap)
    for number in count():
        if over.wait(0.5):
            break
        with suppress(KafkaException):
            admin.list_topics("nobody-knows-it", timeout=5)
        with suppress(TimeoutError):
            set_option(admin, topic, "retention.ms", str(600_000_000 + number))
        blunder(addresses[number % len(addresses)])


@contextmanager
def load_on(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    also_write: Sequence[str] = (),
    blunders_at: Sequence[str] = (),
) -> Iterator[None]:
    """Write to the topics and read the first, for as long as the block lasts."""
    over = threading.Event()
    works: list[Callable[[], None]] = [
        lambda: _read(bootstrap, topic, partitions, over),
        lambda: _read_in_group(bootstrap, topic, over),
        *(lambda one=one: _write(bootstrap, one, over) for one in (topic, *also_write)),
    ]
    if blunders_at:
        works.append(lambda: _ask(bootstrap, topic, blunders_at, over))
    with ExitStack() as stack:
        for work in works:
            thread = threading.Thread(target=work, daemon=True)
            thread.start()
            stack.callback(thread.join, _JOIN_S)
        stack.callback(over.set)
        yield
