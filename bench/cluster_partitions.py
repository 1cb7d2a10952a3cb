"""A cluster with thousands of partitions: how long to make them, to move them, and what they cost.

    python -m bench.cluster_partitions                       100 topics of 50 partitions, 3 nodes
    python -m bench.cluster_partitions --topics 10 --partitions 20

create    one CreateTopics for each topic, one after the other, until all nodes know all of them
fence     a broker that leads a third is killed with SIGKILL; from there until every other node
          tells clients the new leaders, and by how many versions the metadata went on meanwhile
memory    RssAnon of each node before and after, by partition
back      the killed node again, until it is ready
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench.cluster_nodes import Started, started
from bench.machine import machine_of
from bench.measure import say, table, workspace
from ottla.clients.connection import Connection
from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.apis import CREATE_TOPICS, METADATA
from ottla.proto.kafka.uuids import ZERO_UUID

CREATE_S_MAX: Final = 20.0
FENCE_S_MAX: Final = 1.0
_FREE_BYTES: Final = 4_000_000_000
_POLL_S: Final = 0.005
_DEADLINE_S: Final = 60.0
_TIMEOUT_MS: Final = 60_000
_RESTART_MS: Final = 120_000


async def _open(cluster: Started, node_id: int) -> Connection:
    address = cluster.node(node_id).plan.listeners["CLIENT"]
    return await Connection.open(address.host, address.port, request_timeout_s=_DEADLINE_S)


async def _leaders(connection: Connection, topics: list[str] | None) -> Counter[int]:
    """Return how many partitions each broker leads, as one node tells its clients."""
    named = [{"name": name, "topic_id": ZERO_UUID} for name in topics or ()]
    fields: dict[str, Any] = {
        "topics": None if topics is None else named,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }
    answer = await connection.call(METADATA, fields)
    return Counter(one.leader_id for topic in answer.topics for one in topic.partitions)


async def _create(connection: Connection, name: str, partitions: int, factor: int) -> None:
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": factor,
        "assignments": [],
        "configs": [],
    }
    fields = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
    (result,) = (await connection.call(CREATE_TOPICS, fields)).topics
    if result.error_code:
        raise SystemExit(f"{name}: {ErrorCode(result.error_code).name} {result.error_message}")


async def _until(holds: Any, what: str) -> float:
    """Return the moment at which a condition first held."""
    end = time.perf_counter() + _DEADLINE_S
    while not await holds():
        if time.perf_counter() > end:
            raise SystemExit(f"waited {_DEADLINE_S:.0f} s for this to hold: {what}")
        await asyncio.sleep(_POLL_S)
    return time.perf_counter()


async def create_all(cluster: Started, names: list[str], given: argparse.Namespace) -> float:
    total: int = len(names) * given.partitions
    began = time.perf_counter()
    async with await _open(cluster, 1) as connection:
        for name in names:
            await _create(connection, name, given.partitions, given.replicas)

    async def is_known(node_id: int) -> bool:
        async with await _open(cluster, node_id) as connection:
            leaders = await _leaders(connection, None)
        return leaders.total() == total

    for node_id in cluster.record.nodes:
        await _until(lambda node_id=node_id: is_known(node_id), f"node {node_id} knows all topics")
    return time.perf_counter() - began


async def _fence(cluster: Started, victim: int, topic: str) -> tuple[float, int | None]:
    """Kill a broker; return when the others told new leaders, and how far the metadata went."""
    others = [node_id for node_id in cluster.record.nodes if node_id != victim]
    before = await cluster.metadata_version(others[0])
    connections = [await _open(cluster, node_id) for node_id in others]
    began = time.perf_counter()
    await cluster.local.kill(victim)

    async def moved(connection: Connection) -> bool:
        return (await _leaders(connection, [topic]))[victim] == 0

    moments = await asyncio.gather(
        *(_until(lambda one=one: moved(one), "the leaders moved") for one in connections)
    )
    for connection in connections:
        if (await _leaders(connection, None))[victim]:
            raise SystemExit("some partitions have the dead leader still: it was not one command")
        await connection.close()
    after = await cluster.metadata_version(others[0])
    went = None if before is None or after is None else after - before
    return max(moments) - began, went


async def _measure(root: Path, given: argparse.Namespace) -> list[list[str]]:
    names = [f"topic-{number:03}" for number in range(given.topics)]
    total: int = len(names) * given.partitions
    rows = list[list[str]]()
    async with started(root, given.nodes) as cluster:
        nodes = list(cluster.record.nodes)
        idle_mb = {node_id: cluster.rss_anon_mb(node_id) for node_id in nodes}
        say(f"create {total:,} partitions …")
        seconds = await create_all(cluster, names, given)
        told = "PASS" if seconds < CREATE_S_MAX else f"above {CREATE_S_MAX:.0f} s"
        rows.append([f"create {given.topics} × {given.partitions}", f"{seconds:.2f} s", told])
        for node_id in nodes:
            grown_kb = (cluster.rss_anon_mb(node_id) - idle_mb[node_id]) * 1000 / total
            told = f"{idle_mb[node_id]:.0f} MB idle"
            rows.append([f"memory per partition, node {node_id}", f"{grown_kb:.1f} kB", told])
        active = await cluster.active()
        victim = next(node_id for node_id in nodes if node_id != active)
        async with await _open(cluster, active) as connection:
            led = (await _leaders(connection, None))[victim]
        say(f"kill node {victim}, which leads {led:,} …")
        seconds, went = await _fence(cluster, victim, names[-1])
        told = "PASS" if seconds < FENCE_S_MAX else f"above {FENCE_S_MAX:.0f} s"
        rows.append([f"fence a leader of {led:,}", f"{seconds:.3f} s", told])
        rows.append(["metadata versions for that", str(went), ""])
        began = time.perf_counter()
        await cluster.local.restart([victim])
        await cluster.local.until_ready([victim], _RESTART_MS, lambda _: None)
        rows.append(["the dead node is ready again", f"{time.perf_counter() - began:.2f} s", ""])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--dir", help="where to write; default $TMPDIR, else target/")
    given = parser.parse_args()
    with workspace(given.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), end="\n\n", flush=True)
        rows = asyncio.run(_measure(Path(directory) / "cluster", given))
    print(table([f"{given.nodes} nodes, {given.replicas} replicas", "", ""], rows))


if __name__ == "__main__":
    main()
