"""Ottla as a peer: `ottla cluster start --nodes 3`, without the command around it.

Not here: its topics (`topics.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import Final

from bench.peers.peer import NODES, Peer
from ottla.node.clock import Clock
from ottla.node.local.cluster import LocalCluster
from ottla.node.local.states import State, state_of


class OttlaPeer(Peer):
    """Three nodes, each broker and controller."""

    name = "ottla"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        # A node must not be configured by whoever runs the bench.
        around = {key: text for key, text in os.environ.items() if key[:6] != "OTTLA_"}
        # As everybody's Python does.
        around.pop("PYTHONDONTWRITEBYTECODE", None)
        self._local: Final = LocalCluster(directory, around, Clock(), SystemRandom())

    @property
    def version(self) -> str:
        return f"Ottla {version('ottla')}"

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            "options": "all at their defaults",
            "topics": "3 copies, min.insync.replicas=2; ottla.durability fsync (the default) or "
            "pagecache",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(str(plan.listeners["CLIENT"]) for plan in self._local.place.require().plans)

    @property
    def pids(self) -> Mapping[int, int]:
        nodes = self._local.place.require().nodes
        return {node: one.process.pid for node, one in nodes.items() if one.process is not None}

    def data_dir(self, node: int) -> Path:
        return self._local.place.data_dir(node)

    def spawn(self) -> None:
        is_new = self._local.place.read() is None
        nodes, port = (len(NODES), 0) if is_new else (None, None)
        asyncio.run(self._local.launch(nodes, port, {}))

    def is_ready(self) -> bool:
        async def ready() -> bool:
            nodes = self._local.place.require().nodes
            found = await asyncio.gather(*(state_of(one) for one in nodes.values()))
            return all(one.state is State.READY for one in found)

        return asyncio.run(ready())

    def kill(self, node: int) -> None:
        self._remember_cpu(self.pids[node])
        asyncio.run(self._local.kill(node))
        record = self._local.place.require()
        self._local.place.write(record.with_process(node, None))

    def end(self) -> None:
        self._local.is_hurried = True
        self.stop()

    def stop(self) -> None:
        record = self._local.place.read()
        if record is None:
            return
        for one in record.nodes.values():
            if one.process is not None and one.is_alive:
                self._remember_cpu(one.process.pid)
        asyncio.run(self._local.stop())
