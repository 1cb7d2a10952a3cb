"""One Spark and one node for all of these tests: both take seconds to start."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clients.admin.answers import CreatedTopic, NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.producer.client import Producer
from ottla.clients.spark.session import start_session
from tests.integration.nodes import running_node

MakeTopic = Callable[..., str]
# A reader or writer of Spark with the address set, and more options by name.
Options = dict[str, str]


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_node(tmp_path_factory.mktemp("spark-node")) as node:
        yield node.bootstrap


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_session("ottla-tests", url="local[2]")
    session.sparkContext.setLogLevel("OFF")
    # The database of some tests would write its log where pytest was started.
    log = tmp_path_factory.mktemp("derby") / "derby.log"
    session._jvm.java.lang.System.setProperty("derby.stream.error.file", str(log))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as made:
        yield made


@pytest.fixture
def make_topic(admin: Admin, bootstrap: str) -> MakeTopic:
    """Make a topic, with so many records in each partition: p0-0, p0-1, …"""

    def make(partitions: int = 1, records: int = 0, *, name: str = "") -> str:
        name = name or f"spark-{uuid.uuid4().hex[:12]}"
        (made,) = admin.create_topics([lasting(name, partitions)]).values()
        assert isinstance(made, CreatedTopic), made
        fill(bootstrap, name, partitions, records)
        return name

    return make


def lasting(name: str, partitions: int) -> NewTopic:
    """Return a topic for `fill`, whose records are years old: retention would remove them."""
    return NewTopic(name, partitions, configs={"retention.ms": "-1"})


def fill(bootstrap: str, topic: str, partitions: int, records: int, first: int = 0) -> None:
    if not records:
        return
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        for partition in range(partitions):
            for number in range(first, first + records):
                producer.send(
                    topic,
                    b"p%d-%d" % (partition, number),
                    key=b"k%d" % number,
                    partition=partition,
                    timestamp_ms=1_700_000_000_000 + number * 1000,
                    headers=[("n", b"%d" % number)] if number % 2 else (),
                )
