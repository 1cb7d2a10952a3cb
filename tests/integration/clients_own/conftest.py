"""One cluster for all tests of our own clients: three nodes of ours, or Apache Kafka.

`TEST_BOOTSTRAP=host:port` takes a cluster that runs already.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.clients.admin.answers import CreatedTopic, NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.client import Producer
from tests.integration.clients_own.transacting import (
    FIRST_DIALECT,
    Cluster,
    MakeProducer,
    new_name,
)
from tests.integration.clients_own.transacting import make_topic as make_txn_topic
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.nodes import wait_until
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

DEADLINE_S = 30.0
# Kafka 4.3 has two phases, and does not show them by itself.
TWO_PHASES = {
    "unstable.api.versions.enable": "true",
    "transaction.two.phase.commit.enable": "true",
}
MakeTopic = Callable[..., str]
# Partitions, and a name if it matters.
NamedTopic = Callable[..., str]


@pytest.fixture(scope="package")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    options = {
        "default.replication.factor": "3",
        "auto.create.topics.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }
    with running_cluster(tmp_path_factory.mktemp("own"), options=options) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    settings = {"auto.create.topics.enable": "true"}
    with start_broker(tmp_path_factory.mktemp("apache"), settings) as broker:
        yield broker.address


@pytest.fixture(
    scope="package",
    params=["ottla", pytest.param("apache-kafka", marks=pytest.mark.interop)],
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    given = os.environ.get("TEST_BOOTSTRAP")
    if given:
        return given
    if request.param == "ottla":
        cluster: RunningCluster = request.getfixturevalue("three_nodes")
        return cluster.bootstrap
    address: str = request.getfixturevalue("apache")
    return address


@pytest.fixture(scope="package")
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as made:
        yield made


@pytest.fixture
def make_topic(admin: Admin) -> MakeTopic:
    def make(partitions: int = 1, **configs: str) -> str:
        name = f"own-{uuid.uuid4().hex[:12]}"
        options = {key.replace("_", "."): value for key, value in configs.items()}
        (made,) = admin.create_topics([NewTopic(name, partitions, None, options)]).values()
        assert isinstance(made, CreatedTopic), made

        def is_known() -> bool:
            return isinstance(admin.describe_topics([name])[name], TopicInfo)

        # Apache Kafka answers before its brokers have applied it: about one in 150 does not know.
        wait_until(is_known, DEADLINE_S, f"{name} is known")
        return name

    return make


@pytest.fixture
def groups(bootstrap: str) -> str:
    """Return the broker, which serves groups."""
    return bootstrap


@pytest.fixture
def name() -> str:
    return f"own-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(admin: Admin) -> NamedTopic:
    def make(partitions: int = 1, topic: str | None = None) -> str:
        chosen = topic or f"own-{uuid.uuid4().hex[:12]}"
        (made,) = admin.create_topics([NewTopic(chosen, partitions)]).values()
        assert isinstance(made, CreatedTopic), made
        return chosen

    return make


@pytest.fixture
def producer(bootstrap: str) -> Iterator[Producer]:
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}) as made:
        yield made


# --- transactions ---------------------------------------------------------------------------------


@pytest.fixture(
    scope="package",
    params=[
        "ottla",
        pytest.param("apache-kafka", marks=pytest.mark.interop),
        pytest.param(FIRST_DIALECT, marks=pytest.mark.interop),
    ],
)
def transactional(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    if request.param == "ottla":
        nodes: RunningCluster = request.getfixturevalue("three_nodes")
        yield Cluster(request.param, nodes.bootstrap)
        return
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    settings, features = dict(TWO_PHASES), dict[str, int]()
    if request.param == FIRST_DIALECT:
        features = {"transaction.version": 0}
        # So that a transaction can be made to hang.
        settings["transaction.partition.verification.enable"] = "false"
    folder = tmp_path_factory.mktemp(request.param)
    with start_broker(folder, settings, features) as broker:
        yield Cluster(request.param, broker.address)


@pytest.fixture(scope="package")
def txn_admin(transactional: Cluster) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": transactional.bootstrap}) as made:
        yield made


@pytest.fixture
def topic(txn_admin: Admin) -> str:
    return make_txn_topic(txn_admin, 2)


@pytest.fixture
def producer_of(transactional: Cluster) -> Iterator[MakeProducer]:
    """Return what makes producers that are closed at the end of the test."""
    made = list[Producer]()

    def make(name: str | None = None, **options: object) -> Producer:
        given = {key.replace("_", "."): value for key, value in options.items()}
        chosen = name or new_name()
        config = {"bootstrap.servers": transactional.bootstrap, "linger.ms": 0, **given}
        made.append(Producer({**config, "transactional.id": chosen}))
        return made[-1]

    yield make
    for one in made:
        one.close()
