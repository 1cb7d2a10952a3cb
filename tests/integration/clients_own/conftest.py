"""One broker for each module: a node of ours, and, marked interop, Apache Kafka.

With `TEST_KAFKA=host:port` the latter is one that runs already.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from ottla.clients.producer.client import Producer
from ottla.proto.kafka.apis import JOIN_GROUP
from tests.integration.clients.confluent import ConfluentAdmin
from tests.integration.nodes import running_node, wait_until
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

DEADLINE_S = 30.0
NewTopic = Callable[..., str]


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.interop)])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("broker")
    if request.param == "ottla":
        with running_node(folder) as node:
            yield node.bootstrap
        return
    named = os.environ.get("TEST_KAFKA")
    if named:
        yield named
        return
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    with start_broker(folder) as broker:
        yield broker.address


@pytest.fixture
def groups(bootstrap: str, request: pytest.FixtureRequest) -> str:
    """Return the broker if it serves groups."""
    if not JOIN_GROUP.served and "ottla" in request.node.callspec.id:
        pytest.skip("nodes do not serve groups yet")
    return bootstrap


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(bootstrap: str) -> NewTopic:
    admin = ConfluentAdmin(bootstrap)

    def create(partitions: int = 1, topic: str | None = None) -> str:
        chosen = topic or f"t-{uuid.uuid4().hex[:12]}"
        admin.create_topic(chosen, partitions=partitions, configs={})
        told = AdminClient({"bootstrap.servers": bootstrap})
        wait_until(
            lambda: _is_led(told, chosen, partitions), DEADLINE_S, f"{chosen} has its leaders"
        )
        return chosen

    return create


def _is_led(admin: AdminClient, topic: str, partitions: int) -> bool:
    found = admin.list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions
    return len(found) == partitions and all(one.leader >= 0 for one in found.values())


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}) as made:
        yield made
