"""What it costs a node to be scraped by Prometheus, with a thousand partitions or more.

    python -m bench.scrape                               100 topics of 10 partitions, 3 nodes
    python -m bench.scrape --topics 1000 --partitions 1

series    lines of `/metrics` that hold a value
a scrape  processor time of the node, measured over many scrapes less what it takes when nobody asks
share     that, of one core, with a scrape every 15 seconds
longest   how long the longest scrape took from outside
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import os
import time
from pathlib import Path
from typing import Final

from bench.cluster_nodes import Started, started
from bench.cluster_partitions import create_all
from bench.machine import machine_of
from bench.measure import say, table, workspace

SHARE_MAX: Final = 0.01
INTERVAL_S: Final = 15.0
_FREE_BYTES: Final = 2_000_000_000
_QUIET_S: Final = 10.0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Scraper:
    """Asks one node for `/metrics`, over one connection as Prometheus does."""

    def __init__(self, cluster: Started, node_id: int) -> None:
        address = cluster.node(node_id).plan.listeners["HTTP"]
        process = cluster.node(node_id).process
        assert process is not None
        self.pid: Final = process.pid
        self._connection: Final = http.client.HTTPConnection(address.host, address.port)

    def text(self) -> str:
        self._connection.request("GET", "/metrics")
        return self._connection.getresponse().read().decode()

    def series(self) -> int:
        return sum(not line.startswith("#") for line in self.text().splitlines())

    def measure(self, scrapes: int) -> tuple[float, float]:
        """Return processor seconds of one scrape, and how long the longest took."""
        cpu, began = _cpu_s(self.pid), time.perf_counter()
        time.sleep(_QUIET_S)
        idle = (_cpu_s(self.pid) - cpu) / (time.perf_counter() - began)
        # It does not keep a connection for a client that is silent for so long.
        self._connection.close()
        cpu, began, longest = _cpu_s(self.pid), time.perf_counter(), 0.0
        for _ in range(scrapes):
            one = time.perf_counter()
            self.text()
            longest = max(longest, time.perf_counter() - one)
        spent = _cpu_s(self.pid) - cpu - idle * (time.perf_counter() - began)
        return spent / scrapes, longest


async def _measure(root: Path, given: argparse.Namespace) -> list[list[str]]:
    names = [f"topic-{number:04}" for number in range(given.topics)]
    async with started(root, given.nodes) as cluster:
        say(f"create {len(names) * given.partitions:,} partitions …")
        await create_all(cluster, names, given)
        rows = list[list[str]]()
        for node_id in cluster.record.nodes:
            say(f"scrape node {node_id} …")
            scraper = _Scraper(cluster, node_id)
            series = await asyncio.to_thread(scraper.series)
            spent, longest = await asyncio.to_thread(scraper.measure, given.scrapes)
            share = spent / INTERVAL_S
            told = "PASS" if share < SHARE_MAX else f"above {SHARE_MAX:.0%}"
            rows.append(
                [
                    f"node {node_id}",
                    f"{series:,}",
                    f"{spent * 1000:.1f} ms",
                    f"{share:.3%} {told}",
                    f"{longest * 1000:.0f} ms",
                ]
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--topics", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--dir", help="where to write; default $TMPDIR, else target/")
    given = parser.parse_args()
    with workspace(given.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), end="\n\n", flush=True)
        rows = asyncio.run(_measure(Path(directory) / "cluster", given))
    what = f"{given.topics} × {given.partitions} partitions, {given.replicas} replicas"
    print(table([what, "series", "a scrape", "share", "longest"], rows))


if __name__ == "__main__":
    main()
