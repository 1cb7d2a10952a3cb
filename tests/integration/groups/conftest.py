"""Three nodes for all tests of a module, and topics on them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.nodes import wait_until

# Few partitions of __consumer_offsets: a cluster that lives for seconds needs no more.
OPTIONS = {"offsets.topic.num.partitions": "6", "group.initial.rebalance.delay.ms": "100"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("groups"), options=OPTIONS) as running:
        yield running


@pytest.fixture
def new_topic(cluster: RunningCluster) -> Callable[[int], str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def create(partitions: int) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        for made in admin.create_topics([NewTopic(name, partitions, 3)]).values():
            made.result(30)
        return name

    return create


def _count(producer: Producer, topic: str) -> int:
    return len(producer.list_topics(topic, timeout=30).topics[topic].partitions)


@pytest.fixture
def write(cluster: RunningCluster) -> Callable[[str, int, int], None]:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})

    def send(topic: str, partitions: int, count: int) -> None:
        """Write so many records to each of the partitions, new ones too."""
        wait_until(lambda: _count(producer, topic) >= partitions, 30.0, "it knows of all of them")
        for number in range(count):
            for index in range(partitions):
                producer.produce(topic, str(number).encode(), partition=index)
        assert producer.flush(30) == 0

    return send
