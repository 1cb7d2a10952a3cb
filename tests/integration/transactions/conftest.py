"""Three nodes for all tests of a module, and topics on them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.transactions.ledger_clients import OPTIONS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("transactions"), options=OPTIONS) as running:
        yield running


@pytest.fixture
def new_topic(cluster: RunningCluster) -> Callable[[int], str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def create(partitions: int) -> str:
        name = f"t-{uuid.uuid4().hex[:8]}"
        for made in admin.create_topics([NewTopic(name, partitions, 3)]).values():
            made.result(30)
        return name

    return create
