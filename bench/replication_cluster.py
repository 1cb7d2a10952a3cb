"""Three nodes for the bench of replication, with their topics, and what they cost, from outside.

Processor time and memory are read from /proc, of all threads, also of those that have ended.
Not here: what is asked of the cluster (`replication_cases.py`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, Self

from bench.measure import say, warm_memory
from ottla.clients.connection import Connection
from ottla.node.clock import Clock
from ottla.node.local.cluster import START_MS, LocalCluster
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import CREATE_TOPICS, DELETE_TOPICS, METADATA
from ottla.proto.kafka.uuids import ZERO_UUID

NODES: Final = 3
# Files of removed topics go soon: their memory is warm, and any other may be ten times dearer.
_OPTIONS: Final = {"log.retention.check.interval.ms": "200"}
_TIMEOUT_MS: Final = 30_000
_SETTLE_S_MAX: Final = 20.0
_POLL_S: Final = 0.02
_SAMPLE_S: Final = 0.05
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# Of /proc/PID/stat, counted from the field after the program's name.
_USER_TICKS, _SYSTEM_TICKS = 11, 12


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Processor time of some processes, in seconds."""

    user_s: float
    system_s: float

    @property
    def all_s(self) -> float:
        return self.user_s + self.system_s

    def since(self, before: CpuTime) -> CpuTime:
        return CpuTime(self.user_s - before.user_s, self.system_s - before.system_s)

    def times(self, part: float) -> CpuTime:
        return CpuTime(self.user_s * part, self.system_s * part)


def cpu_of(pids: Sequence[int]) -> CpuTime:
    user = system = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        user += int(fields[_USER_TICKS])
        system += int(fields[_SYSTEM_TICKS])
    return CpuTime(user / _TICKS_PER_S, system / _TICKS_PER_S)


def memory_mb(pid: int) -> tuple[float, float]:
    """Return all memory of a process that is in RAM, and the part that is its own."""
    kilobytes = dict[str, int]()
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        name, _, rest = line.partition(":")
        if name in ("VmRSS", "RssAnon"):
            kilobytes[name] = int(rest.split()[0])
    return kilobytes["VmRSS"] * 1024 / 1e6, kilobytes["RssAnon"] * 1024 / 1e6


def names(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]


class MemoryPeak:
    """Remembers the most memory that any one of some processes had while the watch was on."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids: Final = pids
        self._task: asyncio.Task[None] | None = None
        self.rss_mb = 0.0
        self.anon_mb = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _watch(self) -> None:
        while True:
            for pid in self._pids:
                rss_mb, anon_mb = memory_mb(pid)
                self.rss_mb = max(self.rss_mb, rss_mb)
                self.anon_mb = max(self.anon_mb, anon_mb)
            await asyncio.sleep(_SAMPLE_S)


class Cluster:
    """Three nodes that are ready."""

    def __init__(self, local: LocalCluster, connection: Connection) -> None:
        self._connection: Final = connection
        record = local.place.require()
        processes = [one.process for one in record.nodes.values()]
        # By node: the node with id 1 is the first.
        self.pids: Final = [one.pid for one in processes if one is not None]
        self.addresses: Final = [str(plan.listeners["CLIENT"]) for plan in record.plans]
        self.bootstrap: Final = ",".join(self.addresses)
        self._places: Final = [local.place.data_dir(node_id) for node_id in record.nodes]

    def cpu(self) -> CpuTime:
        return cpu_of(self.pids)

    def warm(self, size_bytes: int) -> None:
        """Touch as much memory as is about to be written.

        A virtual machine gives free memory back to its host within seconds, and the page cache then
        pays for every page of it again: up to seven times the price of a write, by chance.
        """
        warm_memory(str(self._places[0].parent), size_bytes)

    async def create(
        self, topic: str, *, partitions: int, copies: int, configs: Mapping[str, str]
    ) -> None:
        """Make a topic whose leaders go round the nodes, and wait until all copies are in sync."""
        assignments = [
            {
                "partition_index": index,
                "broker_ids": [(index + number) % NODES + 1 for number in range(copies)],
            }
            for index in range(partitions)
        ]
        row = {
            "name": topic,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        fields = {"topics": [row], "timeout": _TIMEOUT_MS, "validate_only": False}
        (result,) = (await self._connection.call(CREATE_TOPICS, fields)).topics
        if result.error_code:
            code = ErrorCode(result.error_code).name
            raise SystemExit(f"{topic} was not made: {code} {result.error_message}")
        end = time.perf_counter() + _SETTLE_S_MAX
        while await self.in_sync(topic, partitions) < partitions * copies:
            if time.perf_counter() > end:
                raise SystemExit(f"the copies of {topic} were not in sync in {_SETTLE_S_MAX:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def in_sync(self, topic: str, partitions: int) -> int:
        """Return how many copies of all partitions are in sync; 0 if one has no leader."""
        fields: dict[str, Any] = {
            "topics": [{"name": topic, "topic_id": ZERO_UUID}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        }
        (found,) = (await self._connection.call(METADATA, fields)).topics
        led = [one for one in found.partitions if one.leader_id >= 0 and not one.error_code]
        return sum(len(one.isr_nodes) for one in led) if len(led) == partitions else 0

    async def delete(self, topic: str) -> None:
        """Remove a topic and wait until its files are gone."""
        fields = {
            "topic_names": [topic],
            "topics": [{"name": topic, "topic_id": ZERO_UUID}],
            "timeout": _TIMEOUT_MS,
        }
        (result,) = (await self._connection.call(DELETE_TOPICS, fields)).responses
        if result.error_code:
            raise SystemExit(f"{topic} was not removed: {ErrorCode(result.error_code).name}")
        end = time.perf_counter() + _SETTLE_S_MAX
        while any(name.startswith(f"{topic}-") for place in self._places for name in names(place)):
            if time.perf_counter() > end:
                say(f"files of {topic} are still there after {_SETTLE_S_MAX:.0f} s")
                return
            await asyncio.sleep(_POLL_S)


@asynccontextmanager
async def started(
    root: Path, *, tree: Path | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Cluster]:
    """Yield a new cluster in `root`, with the code of `tree`; stop it after the block."""
    # A node must not be configured by whoever runs the bench.
    around = {name: text for name, text in os.environ.items() if name[:6] != "OTTLA_"}
    around |= environment or {}
    if tree is not None:
        paths = [str(tree), around.get("PYTHONPATH", "")]
        around["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    # As everybody's Python does.
    around.pop("PYTHONDONTWRITEBYTECODE", None)
    local = LocalCluster(root, around, Clock(), SystemRandom())
    try:
        record = await local.launch(NODES, 0, _OPTIONS)
        await local.until_ready(list(record.nodes), START_MS, lambda _: None)
        address = record.plans[0].listeners["CLIENT"]
        async with await Connection.open(
            address.host, address.port, request_timeout_s=_TIMEOUT_MS / 1000
        ) as connection:
            yield Cluster(local, connection)
    finally:
        if local.place.read() is not None:
            await local.stop()
