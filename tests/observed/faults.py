"""What is done to nodes so that alerts fire: small disks, logs that nobody takes, strangers.

Not here: which alert needs what (`test_alerts.py`).
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from tests.integration.clusters import ClusterNode, RunningCluster

MOUNT_S: Final = 20.0


class DeafNode(ClusterNode):
    """A node whose log goes where nothing can be written."""

    program = "tests.observed.deaf"


def deaf(cluster: RunningCluster) -> RunningCluster:
    """Return the same cluster of nodes whose logs are lost."""
    made = dict[int, ClusterNode]()
    for node in cluster.nodes.values():
        made[node.node_id] = DeafNode(
            node.node_id, node.directory, node.options, node.environment, node.ports
        )
    return RunningCluster(made)


@contextmanager
def small_room(place: Path, size_mb: int) -> Iterator[Path]:
    """Yield a directory with so much room and no more; skips where nothing may be mounted."""
    place.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, timeout=MOUNT_S, check=False)
    except OSError as error:
        pytest.skip(f"NOT OBSERVED: no small disk can be made here: {error}")
    if done.returncode:
        pytest.skip(f"NOT OBSERVED: no small disk can be made here: {done.stderr.decode()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], timeout=MOUNT_S, check=False)


def fill(path: Path, size: int, *, free_share: float) -> None:
    """Make a file larger, unless less than this share of its disk is free."""
    told = os.statvfs(path.parent)
    if told.f_bavail > free_share * told.f_blocks:
        with path.open("ab") as file:
            file.write(bytes(size))


def limit_descriptors(node: ClusterNode, share: float) -> int:
    """Leave a running node so many descriptors that this share is in use; return the old limit."""
    used = len(list(Path(f"/proc/{node.pid}/fd").iterdir()))
    return set_descriptors(node, int(used / share))


def set_descriptors(node: ClusterNode, limit: int) -> int:
    before, hard = resource.prlimit(node.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.pid, resource.RLIMIT_NOFILE, (limit, hard))
    return before


@contextmanager
def crowd(address: str, count: int) -> Iterator[None]:
    """Hold so many connections; those that are refused are gone at once."""
    host, _, port = address.rpartition(":")
    with ExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):
                stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
        yield
