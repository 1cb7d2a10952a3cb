"""Containers are killed, restarted and stopped, and lose their volumes: nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.containers import stranger
from tests.containers.engine import NODES, ContainerCluster
from tests.integration.nodes import wait_until

PARTITIONS: Final = 3
BATCH: Final = 200
IN_SYNC_S: Final = 60


class Notebook:
    """A topic, and everything that was acknowledged to a client of it."""

    def __init__(self, cluster: ContainerCluster, topic: str) -> None:
        self._cluster: Final = cluster
        self.topic: Final = topic
        self._next = 0
        stranger.create(cluster.bootstrap, topic, PARTITIONS)

    def write(self) -> None:
        wanted = [f"{number:06}" for number in range(self._next, self._next + BATCH)]
        self._next += BATCH
        assert sorted(stranger.write(self._cluster.bootstrap, self.topic, wanted)) == wanted

    def check(self) -> None:
        """Everything is there, once, on every node."""
        wait_until(self._is_in_sync, IN_SYNC_S, f"all replicas of {self.topic} are in sync")
        everything = [f"{number:06}" for number in range(self._next)]
        assert sorted(stranger.read(self._cluster.bootstrap, self.topic)) == everything
        self._compare()

    def leader(self, partition: int = 0) -> int:
        told = stranger.look(self._cluster.bootstrap, self.topic).topics[self.topic]
        return int(told.partitions[partition].leader)

    def _is_in_sync(self) -> bool:
        told = stranger.look(self._cluster.bootstrap, self.topic).topics[self.topic]
        return all(len(one.isrs) == len(NODES) for one in told.partitions.values())

    def _compare(self) -> None:
        """Let `ottla replicas verify` compare what lies on the three disks."""
        cluster = self._cluster
        http = [f"{node}=127.0.0.1:{cluster.ports[f'NODE{node}_HTTP_PORT']}" for node in NODES]
        words = ("replicas", "verify", self.topic, "--http", ",".join(http))
        told = ("--bootstrap-server", cluster.bootstrap.split(",")[0])
        ran = subprocess.run(
            (str(Path(sys.executable).with_name("ottla")), *words, *told),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_leader_that_is_killed_loses_nothing(cluster: ContainerCluster) -> None:
    notebook = Notebook(cluster, "killed")
    notebook.write()
    leader = notebook.leader()
    cluster.engine("kill", cluster.container(leader))
    notebook.write()
    cluster.engine("start", cluster.container(leader))
    cluster.wait_until_ready()
    notebook.write()
    notebook.check()


def _restart(cluster: ContainerCluster) -> None:
    cluster.engine("restart", *map(cluster.container, NODES))


def _kill_all(cluster: ContainerCluster) -> None:
    cluster.engine("kill", *map(cluster.container, NODES))
    cluster.engine("start", *map(cluster.container, NODES))


def _stop(cluster: ContainerCluster) -> None:
    cluster.compose("stop")
    for node in NODES:
        assert cluster.engine.inspect(cluster.container(node), ".State.ExitCode") == 0
        assert '"node_stopped"' in cluster.log_lines(node)[-1]
    cluster.compose("start")


@pytest.mark.parametrize(
    ("name", "happen"), [("restarted", _restart), ("killed-all", _kill_all), ("stopped", _stop)]
)
def test_a_whole_cluster_that_ends_loses_nothing_and_is_healthy_again(
    cluster: ContainerCluster, name: str, happen: Callable[[ContainerCluster], None]
) -> None:
    notebook = Notebook(cluster, name)
    notebook.write()
    happen(cluster)
    cluster.wait_until_ready()
    notebook.write()
    notebook.check()


def test_a_node_whose_volume_is_gone_comes_back_and_gets_everything_again(
    cluster: ContainerCluster,
) -> None:
    notebook = Notebook(cluster, "emptied")
    notebook.write()
    cluster.compose("rm", "--stop", "--force", "node3")
    cluster.engine("volume", "rm", cluster.volume(3))
    notebook.write()
    cluster.compose("up", "--detach", "--no-build", "node3")
    cluster.wait_until_ready()
    notebook.check()
    assert any('"joining"' in line for line in cluster.log_lines(3))
