"""How long a cluster takes from nothing to ready: every node serves clients.

    python -m bench.cluster_start              three nodes and five, 5 rounds each
    python -m bench.cluster_start --rounds 3

first     empty directories: the nodes form a quorum, elect, register, and serve
again     the same directories after a clean stop

The limit beside it is what the interpreter and its imports take, started as often at once: no
cluster of so many processes can be quicker on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from bench.cluster_nodes import started
from bench.machine import machine_of
from bench.measure import say, table, workspace

# What is asked of a cluster of so many nodes (issue 5).
SECONDS_MAX: Final = {3: 3.0, 5: 5.0}
_FREE_BYTES: Final = 1_000_000_000
_IMPORTS: Final = "import os, ottla.node.lifecycle; os._exit(0)"


def _imports_s(count: int) -> float:
    """Start so many interpreters at once that import a node and end."""
    began = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", _IMPORTS]) for _ in range(count)]
    for process in running:
        process.wait()
    return time.perf_counter() - began


async def _round(root: Path, nodes: int) -> tuple[float, float]:
    async with started(root, nodes) as first:
        pass
    async with started(root, None) as again:
        pass
    return first.seconds, again.seconds


def _row(name: str, figures: list[float], limit: float | None) -> list[str]:
    told = "" if limit is None else "PASS" if median(figures) < limit else f"above {limit:.0f} s"
    spread = f"{min(figures):.2f}–{max(figures):.2f}"
    return [name, f"{median(figures):.2f}", spread, told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 5])
    parser.add_argument("--dir", help="where to write; default $TMPDIR, else target/")
    given = parser.parse_args()
    rows = list[list[str]]()
    with workspace(given.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), end="\n\n", flush=True)
        for nodes in given.nodes:
            first, again, imports = list[float](), list[float](), list[float]()
            for number in range(given.rounds):
                say(f"{nodes} nodes, round {number + 1} …")
                root = Path(directory) / "cluster"
                imports.append(_imports_s(nodes))
                seconds = asyncio.run(_round(root, nodes))
                first.append(seconds[0])
                again.append(seconds[1])
                shutil.rmtree(root)
            rows.append(_row(f"{nodes} nodes, first", first, SECONDS_MAX.get(nodes)))
            rows.append(_row(f"{nodes} nodes, again", again, SECONDS_MAX.get(nodes)))
            rows.append(_row(f"{nodes} interpreters with its imports", imports, None))
    print(table(["from start to ready", "s", "rounds", ""], rows))


if __name__ == "__main__":
    main()
