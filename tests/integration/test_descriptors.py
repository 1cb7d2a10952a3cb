"""A node with very few descriptors: it says no for a while, and loses nothing.

Without anybody's ill will there are too few of them for all the logs that are written; with it,
strangers hold connections and send nothing. Neither may take a partition away, or hide a record
that was acknowledged.
"""

from __future__ import annotations

import socket
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.nodes import RunningNode, running_node, wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
DESCRIPTORS = 256
OFTEN = {"log.flush.offset.checkpoint.interval.ms": "50"}
NEVER = {"log.flush.offset.checkpoint.interval.ms": "3600000"}


def admin_of(node: RunningNode) -> AdminClient:
    return AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 0})


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    made.result(DEADLINE_S)


class Writer:
    """Writes one record to each partition, and counts what was answered."""

    def __init__(self, node: RunningNode, *, is_patient: bool = False) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "enable.idempotence": is_patient,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "log_level": 0,
                **({} if is_patient else {"retries": 0}),
            }
        )
        self.answers: Counter[str] = Counter()

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        self.answers["done" if error is None else str(error.name())] += 1

    def write(self, topic: str, partitions: int) -> Counter[str]:
        self.answers.clear()
        for index in range(partitions):
            self.producer.produce(topic, b"x", partition=index, on_delivery=self._on_delivery)
        self.producer.flush(DEADLINE_S)
        return Counter(self.answers)


def ends(node: RunningNode, topic: str, partitions: int) -> set[int]:
    """Return the offsets at which consumers see the partitions end."""
    consumer = Consumer({"bootstrap.servers": node.bootstrap, "group.id": "g", "log_level": 0})
    try:
        return {
            consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=DEADLINE_S)[1]
            for index in range(partitions)
        }
    finally:
        consumer.close()


def metric(node: RunningNode, beginning: str) -> float:
    lines = [line for line in node.get("/metrics")[1].splitlines() if line.startswith(beginning)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_more_partitions_are_written_than_a_checkpoint_could_open_at_once(tmp_path: Path) -> None:
    # Each has its file open, and a checkpoint of all of them at once would open two more for each.
    count = 120
    with running_node(tmp_path, options=OFTEN, descriptors_max=DESCRIPTORS) as node:
        create(admin_of(node), "t", count)
        writer = Writer(node)
        for _ in range(5):
            assert writer.write("t", count) == {"done": count}
        assert ends(node, "t", count) == {5}
        assert "offline" not in node.log_tail()


def test_more_partitions_are_written_than_there_are_descriptors(tmp_path: Path) -> None:
    count = 400
    with running_node(tmp_path, options=OFTEN, descriptors_max=DESCRIPTORS) as node:
        create(admin_of(node), "t", count)
        writer = Writer(node, is_patient=True)
        for _ in range(2):
            assert writer.write("t", count) == {"done": count}
        assert ends(node, "t", count) == {2}


@pytest.mark.long
def test_what_was_acknowledged_is_visible_after_a_crash(tmp_path: Path) -> None:
    count = 150
    with running_node(tmp_path, options=NEVER, descriptors_max=DESCRIPTORS) as node:
        create(admin_of(node), "t", count)
        assert Writer(node).write("t", count) == {"done": count}
        node.kill()
    for number in (2, 3):
        with running_node(tmp_path, options=NEVER, descriptors_max=DESCRIPTORS) as node:
            assert ends(node, "t", count) == {number - 1}
            assert Writer(node).write("t", count) == {"done": count}
            assert ends(node, "t", count) == {number}
            node.kill()


def test_strangers_that_hold_connections_take_nothing_from_those_who_are_here(
    tmp_path: Path,
) -> None:
    with (
        running_node(tmp_path, options=OFTEN, descriptors_max=DESCRIPTORS) as node,
        ExitStack() as strangers,
    ):
        admin = admin_of(node)
        for topic in ("a", "gone"):
            create(admin, topic, 10)
        writer = Writer(node)
        assert writer.write("gone", 10) == {"done": 10}
        host, _, port = node.bootstrap.rpartition(":")
        for _ in range(DESCRIPTORS):
            strangers.enter_context(socket.create_connection((host, int(port))))
        refused = 'ottla_connections_refused_total{reason="descriptors"}'
        wait_until(lambda: metric(node, refused) > 0, DEADLINE_S, "some of them are refused")
        assert writer.write("a", 10) == {"done": 10}
        create(admin, "new", 10)
        assert writer.write("new", 10) == {"done": 10}
        (deleted,) = admin.delete_topics(["gone"]).values()
        deleted.result(DEADLINE_S)
        strangers.close()
        assert writer.write("a", 10) == {"done": 10}
        assert ends(node, "a", 10) == {2}
