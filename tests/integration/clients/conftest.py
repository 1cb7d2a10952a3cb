"""What the tests of foreign clients share: one broker for each module, and all the clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Final

import pytest

from tests.integration.clients.aio import AioKafka, AioKafkaAdmin
from tests.integration.clients.brokers import RUNNING, broker
from tests.integration.clients.confluent import ConfluentAdmin, ConfluentKafka
from tests.integration.clients.kafka_python import KafkaPython, KafkaPythonAdmin
from tests.integration.clients.kcat import Kcat
from tests.integration.clients.port import (
    DEADLINE_S,
    Admin,
    Client,
    IncrementalAdmin,
    NewTopic,
)
from tests.integration.kcat import KcatMissingError
from tests.integration.nodes import wait_until

_PYTHON_CLIENTS: Final[dict[str, Callable[[str], Client]]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [("the node's log", node.log_tail()) for node in RUNNING]
    return report


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker(tmp_path_factory.mktemp("node")) as address:
        yield address


@pytest.fixture(params=[*_PYTHON_CLIENTS, "kcat"])
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    name = str(request.param)
    return _kcat(bootstrap) if name == "kcat" else _PYTHON_CLIENTS[name](bootstrap)


@pytest.fixture
def kcat(bootstrap: str) -> Kcat:
    return _kcat(bootstrap)


def _kcat(bootstrap: str) -> Kcat:
    try:
        return Kcat(bootstrap)
    except KcatMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def readers(bootstrap: str) -> list[Client]:
    """Return every client that can be had: what one wrote, all must read alike."""
    found = [make(bootstrap) for make in _PYTHON_CLIENTS.values()]
    # Where there is none, the tests of kcat itself are skipped and say so.
    with suppress(KcatMissingError):
        found.append(Kcat(bootstrap))
    return found


@pytest.fixture(scope="module")
def setup_admin(bootstrap: str) -> ConfluentAdmin:
    """Return the one that prepares what a test needs."""
    return ConfluentAdmin(bootstrap)


@pytest.fixture(params=["confluent-kafka", "kafka-python", "aiokafka"])
def admin(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Admin]:
    with ExitStack() as stack:
        if request.param == "kafka-python":
            yield stack.enter_context(closing(KafkaPythonAdmin(bootstrap)))
        elif request.param == "aiokafka":
            yield AioKafkaAdmin(bootstrap)
        else:
            yield ConfluentAdmin(bootstrap)


@pytest.fixture(params=["confluent-kafka", "kafka-python"])
def incremental_admin(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[IncrementalAdmin]:
    with ExitStack() as stack:
        if request.param == "kafka-python":
            yield stack.enter_context(closing(KafkaPythonAdmin(bootstrap)))
        else:
            yield ConfluentAdmin(bootstrap)


@pytest.fixture
def name() -> str:
    """Return a name that no other test, and no earlier run, has used."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def new_topic(setup_admin: ConfluentAdmin) -> NewTopic:
    def create(*, partitions: int = 1, **configs: str) -> str:
        topic = f"t-{uuid.uuid4().hex[:12]}"
        chosen = {option.replace("_", "."): value for option, value in configs.items()}
        setup_admin.create_topic(topic, partitions=partitions, configs=chosen)
        wait_until(lambda: _is_led(setup_admin, topic), DEADLINE_S, f"{topic} has leaders")
        return topic

    return create


def _is_led(admin: Admin, topic: str) -> bool:
    # Kafka may say that it was created before every broker knows it.
    return topic in admin.topics() and all(
        partition.leader >= 0 for partition in admin.describe_topic(topic)
    )
