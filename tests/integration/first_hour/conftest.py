"""One cluster of three nodes, started as people start it: `ottla cluster start --nodes 3`.

`TEST_CLUSTER=directory` takes one that was started there and runs already.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import Admin
from tests.integration.first_hour.typing_in import Shell

# So that a group forms in no time, and few partitions hold its offsets.
OPTIONS = ("offsets.topic.num.partitions=3", "group.initial.rebalance.delay.ms=100")


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A terminal in a directory, with a cluster that runs."""
    given = os.environ.get("TEST_CLUSTER")
    made = Shell(Path(given) if given else tmp_path_factory.mktemp("hour"))
    if not given:
        made.done("ottla cluster start --nodes 3 --detach --base-port 0", *OPTIONS)
    try:
        nodes = json.loads(made.done("ottla cluster status --json"))["nodes"]
        made.bootstrap = ",".join(one["client"] for one in nodes)
        yield made
    finally:
        if not given:
            made.run("ottla cluster stop")


@pytest.fixture(scope="module")
def bootstrap(shell: Shell) -> str:
    return shell.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": bootstrap}) as made:
        yield made


@pytest.fixture
def topic(shell: Shell) -> str:
    """Three partitions, three replicas."""
    name = f"hour-{uuid.uuid4().hex[:8]}"
    shell.done(f"ottla topics create {name} --partitions 3 --replication-factor 3")
    return name
