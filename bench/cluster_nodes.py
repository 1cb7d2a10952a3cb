"""A local cluster for a bench: started, timed, looked at from outside, and ended.

Not here: what is measured (`cluster_start.py`, `cluster_partitions.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

from ottla.node.clock import Clock
from ottla.node.local.ask import ask
from ottla.node.local.cluster import START_MS, LocalCluster
from ottla.node.local.record import NodeRecord, Record
from ottla.node.local.states import active_controller, states_of


@dataclass(slots=True)
class Started:
    """A cluster of which every node is ready."""

    local: LocalCluster
    # From the first process to the last ready node.
    seconds: float

    @property
    def record(self) -> Record:
        return self.local.place.require()

    def node(self, node_id: int) -> NodeRecord:
        return self.record.nodes[node_id]

    def rss_anon_mb(self, node_id: int) -> float:
        """Return the memory that is the process's own: not files, not shared libraries."""
        process = self.node(node_id).process
        assert process is not None
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0

    async def active(self) -> int:
        """Return the active controller."""
        found = active_controller(await states_of(self.record))
        if found is None:
            raise SystemExit("no node says who is the active controller")
        return found

    async def metadata_version(self, node_id: int) -> int | None:
        answer = await ask(self.node(node_id).plan.listeners["HTTP"], "/status")
        broker: Mapping[str, Any] = {} if answer is None else answer.body.get("broker") or {}
        return broker.get("metadata_version")


@asynccontextmanager
async def started(
    root: Path, nodes: int | None, options: Mapping[str, str] | None = None
) -> AsyncIterator[Started]:
    """Yield a cluster in `root`, new or as it was left there; stop it after the block."""
    # A node must not be configured by whoever runs the bench.
    surroundings = {name: text for name, text in os.environ.items() if name[:6] != "OTTLA_"}
    local = LocalCluster(root, surroundings, Clock(), SystemRandom())
    began = time.perf_counter()
    try:
        record = await local.launch(nodes, 0 if nodes is not None else None, options or {})
        await local.until_ready(list(record.nodes), START_MS, lambda _: None)
        yield Started(local, time.perf_counter() - began)
    finally:
        if local.place.read() is not None:
            await local.stop()
