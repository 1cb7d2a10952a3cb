"""Nodes that do not belong to a cluster, and what a cluster must be while they try.

Not here: what they try (`test_cluster_refusals.py`).
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.integration.admin_stream import TopicSeen, make_topics, new_topic, read_topics
from tests.integration.clusters import ClusterNode, RunningCluster, make_cluster
from tests.integration.nodes import wait_until

DEADLINE_S: Final = 30.0
LOG_LINES: Final = 1000
_names: Final = (f"made-{number}" for number in itertools.count())


def office(cluster: RunningCluster) -> tuple[int, int, int]:
    """Return who is active, in which term, and how many commands there are."""
    active = cluster.active_controller()
    told = active.status()["quorum"]
    return active.node_id, told["term"], told["last_index"]


def contents(cluster: RunningCluster) -> tuple[dict[str, TopicSeen], dict[int, int]]:
    """Return the topics, and the epochs of the brokers."""
    epochs = {node.node_id: node.status()["broker"]["broker_epoch"] for node in cluster.running}
    return read_topics(cluster.running[0].bootstrap), epochs


def is_calm() -> bool:
    """Return whether this machine has time for its nodes.

    Without it they may elect by themselves.
    """
    return os.getloadavg()[0] <= 2 * (os.cpu_count() or 1)


@contextmanager
def undisturbed(cluster: RunningCluster) -> Iterator[None]:
    """Nothing that is done in the block has an effect on the cluster."""
    before, had = office(cluster), contents(cluster)
    yield
    assert contents(cluster) == had
    assert office(cluster) == before or not is_calm(), (before, office(cluster))
    require_commits(cluster)


def require_commits(cluster: RunningCluster) -> None:
    name = next(_names)
    make_topics(cluster.running[0].bootstrap, new_topic(name))
    for node in cluster.running:
        wait_until(partial(knows, node, name), DEADLINE_S, f"node {node.node_id} knows {name}")


def knows(node: ClusterNode, topic: str) -> bool:
    return topic in read_topics(node.bootstrap)


def says(node: ClusterNode, sentence: str) -> bool:
    """Return whether it is not ready for this reason."""
    return sentence in node.get("/health/ready")[1]


def stranger(
    cluster: RunningCluster, folder: Path, node_id: int = 9, **options: str
) -> ClusterNode:
    """Return a broker that is not running, with the voters of the cluster and ports of its own."""
    made = make_cluster(folder, 1)[1]
    made.options["node.id"] = str(node_id)
    made.options["process.roles"] = "broker"
    made.options["controller.quorum.voters"] = cluster[1].options["controller.quorum.voters"]
    made.options.update({name.replace("_", "."): value for name, value in options.items()})
    return made


def pin(node: ClusterNode, cluster_id: str, directories: Mapping[int, str] | None = None) -> None:
    """Tell a node's data directory which cluster it belongs to."""
    node.directory.mkdir(parents=True, exist_ok=True)
    voters = [f"--voter-directory={key}={one}" for key, one in (directories or {}).items()]
    options = [f"{name}={value}" for name, value in node.options.items()]
    command = [sys.executable, "-m", "ottla", "format", "--cluster-id", cluster_id, *voters]
    subprocess.run([*command, *options], check=True, capture_output=True, timeout=DEADLINE_S)


@contextmanager
def alive(node: ClusterNode) -> Iterator[ClusterNode]:
    """Yield a node that was started, and kill it in the end; nobody expects it to serve."""
    node.start()
    node.is_expected = False
    try:
        yield node
    except BaseException as error:
        error.add_note(f"--- the log of node {node.node_id} ends:\n{node.log_tail()}")
        raise
    finally:
        if node.is_running:
            node.kill()


def wait_for_log(node: ClusterNode, sentence: str) -> None:
    wait_until(
        lambda: sentence in node.log_tail(LOG_LINES), DEADLINE_S, f"its log says: {sentence}"
    )


def ends_with(node: ClusterNode, sentence: str) -> None:
    """Wait until it has ended by itself, and said why."""
    wait_until(lambda: not node.is_running, DEADLINE_S, "it ends")
    assert node.exit_code not in (0, None)
    assert sentence in node.log_tail(), node.log_tail()
