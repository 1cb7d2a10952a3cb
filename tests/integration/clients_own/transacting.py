"""Clusters with transactions, and what their topics hold.

Not here: the fixtures (`conftest.py`).
"""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from ottla.clients.admin.answers import CreatedTopic, NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.client import Producer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.ids import TopicPartition
from tests.integration.nodes import wait_until

DEADLINE_S = 30.0
FIRST_DIALECT = "apache-kafka-first-dialect"
MakeProducer = Callable[..., Producer]


@dataclass(frozen=True)
class Cluster:
    """A cluster with transactions, and what it is."""

    kind: str
    bootstrap: str

    @property
    def is_ours(self) -> bool:
        return self.kind == "ottla"


def make_topic(admin: Admin, partitions: int, **configs: str) -> str:
    name = f"txn-{uuid.uuid4().hex[:12]}"
    options = {key.replace("_", "."): value for key, value in configs.items()}
    (made,) = admin.create_topics([NewTopic(name, partitions, None, options)]).values()
    assert isinstance(made, CreatedTopic), made
    wait_until(
        lambda: isinstance(admin.describe_topics([name])[name], TopicInfo), DEADLINE_S, "a topic"
    )
    return name


def read_all(cluster: Cluster, topic: str, level: str = "read_committed") -> list[bytes]:
    """Return the values that can be read now, partition by partition."""
    config = {"bootstrap.servers": cluster.bootstrap, "isolation.level": level}
    found = list[tuple[int, int, bytes]]()
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        places = [TopicPartition(topic, one.partition) for one in consumer.partitions_for(topic)]
        consumer.assign(places)
        ends = consumer.end_offsets(places)
        end_s = time.monotonic() + DEADLINE_S
        while any(consumer.position(one) < ends[one] for one in places):
            assert time.monotonic() < end_s, (ends, found)
            found += [(r.partition, r.offset, r.value) for r in consumer.consume(100, 0.1)]
    return [value for _, _, value in sorted(found)]


def require_read(cluster: Cluster, topic: str, wanted: list[bytes]) -> None:
    """Return when what is committed is this: markers come soon after the answer to a commit."""
    end_s = time.monotonic() + DEADLINE_S
    while (found := read_all(cluster, topic)) != wanted:
        assert {*found} <= {*wanted}, found
        assert time.monotonic() < end_s, found


def prepare(cluster: Cluster, topic: str, name: str) -> PreparedTransaction:
    """Prepare a transaction in a process that ends at once; return its name."""
    program = f"""
import os, sys
from ottla import Producer
producer = Producer({{
    "bootstrap.servers": {cluster.bootstrap!r},
    "transactional.id": {name!r},
    "transaction.two.phase.commit.enable": True,
}})
producer.init_transactions()
producer.begin()
producer.send({topic!r}, b"of " + {name!r}.encode(), partition=0)
print(producer.prepare())
sys.stdout.flush()
os._exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return PreparedTransaction.parse(done.stdout.strip())


def new_name() -> str:
    return f"txn-{uuid.uuid4().hex[:12]}"
