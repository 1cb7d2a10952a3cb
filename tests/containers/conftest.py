"""One cluster of containers for all tests of this folder. Every test leaves it healthy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import ContainerCluster, Engine

HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # All items come by here, also those of other folders: ten thousand, in every worker.
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.containers)


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine.found()


@pytest.fixture(scope="session")
def running(engine: Engine) -> Iterator[ContainerCluster]:
    """Three nodes and a Prometheus, from an image that is built before (NODE_IMAGE: from that)."""
    cluster = ContainerCluster(engine)
    if "NODE_IMAGE" not in os.environ:
        cluster.compose("build", "--quiet")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def cluster(running: ContainerCluster) -> Iterator[ContainerCluster]:
    yield running
    running.wait_until_ready()
