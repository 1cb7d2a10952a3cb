"""Where the time of a leader and of a follower goes, under load.

    python -m bench.replication_profile                       1 KB, page cache, as fast as it goes
    python -m bench.replication_profile --durability fsync --rate 1000 --size 100
    python -m bench.replication_profile --copies 1            the same without replication

Three nodes, one partition, so that node 1 leads and nodes 2 and 3 follow. Python is looked at by a
sampler within the node (`replication_sampler.py`), and everything else by `perf`, if there is one:
by thread, and by function of C. Both look at the same seconds; neither slows a node by much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from bench.machine import machine_of
from bench.measure import say, table, warm_memory, workspace
from bench.node_servers import TOP
from bench.replication_cases import MIN_IN_SYNC, Load, driven
from bench.replication_cluster import NODES, Cluster, cpu_of, started
from bench.replication_sampler import OUTPUT_VARIABLE

_FREE_BYTES_MIN: Final = 6 << 30
_WARM_BYTES: Final = 1 << 30
_ROWS: Final = 28
_LINES: Final = 3
_WRITTEN_S_MAX: Final = 10.0
_POLL_S: Final = 0.02
_PERF_HZ: Final = 999
# Python imports a module of this name, if there is one, before anything else.
_HOOK: Final = "from bench.replication_sampler import install\n\ninstall()\n"


def _short(path: str) -> str:
    """Return a path without what stands before the code."""
    return re.sub(r".*/(site-packages|python3\.\d+|(?=ottla/))/?", "", path)


def show_python(name: str, told: dict[str, Any], cpu_s: float) -> str:
    """Return a table of functions: alone, with all they call, and their dearest lines."""
    own, lines = Counter[tuple[str, str]](), dict[tuple[str, str], Counter[int]]()
    for path, function, line, count in told["own"]:
        own[path, function] += count
        lines.setdefault((path, function), Counter())[line] += count
    below = {(path, function): count for path, function, count in told["below"]}
    total = own.total() or 1
    rows = []
    for place, count in own.most_common(_ROWS):
        dearest = lines[place].most_common(_LINES)
        told_lines = ", ".join(f"{line} ({hits / count:.0%})" for line, hits in dearest)
        rows.append(
            [
                f"{_short(place[0])} {place[1]}",
                f"{count / total:.1%}",
                f"{below[place] / total:.1%}",
                told_lines,
            ]
        )
    heading = [f"{name}: {total:,} samples, {cpu_s:.2f} s of CPU", "alone", "with calls", "lines"]
    return table(heading, rows)


def show_below(name: str, told: dict[str, Any]) -> str:
    """Return the functions of our own that cost most with all they call."""
    total = sum(count for *_, count in told["own"]) or 1
    rows = [
        [f"{_short(path)} {function}", f"{count / total:.1%}"]
        for path, function, count in sorted(told["below"], key=lambda row: -row[2])
        if "/ottla/" in path
    ]
    return table([f"{name}: ours, with calls", ""], rows[:_ROWS])


async def _perf_report(data: Path, *keys: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *("perf", "report", "-i", str(data), "--stdio", "--no-children", "-g", "none"),
        *("--percent-limit", "0.7", "--sort", ",".join(keys)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    lines = [line.rstrip() for line in output.decode(errors="replace").splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("#"))


async def profiled(
    cluster: Cluster, directory: Path, samples: Path, given: argparse.Namespace
) -> None:
    load = Load(given.durability, given.size, 1, given.count, given.rate)
    configs = {
        "ottla.durability": given.durability,
        "min.insync.replicas": str(min(MIN_IN_SYNC, given.copies)),
    }
    command = "produce" if given.rate is None else "pace"
    await cluster.create("warm-up", partitions=1, copies=given.copies, configs=configs)
    await driven(command, cluster.bootstrap, "warm-up", load)
    await cluster.delete("warm-up")
    await cluster.create("profiled", partitions=1, copies=given.copies, configs=configs)
    watched = cluster.pids[:2]
    perf = await _perf_of(watched, directory)
    before = [cpu_of([pid]) for pid in cluster.pids]
    for pid in watched:
        os.kill(pid, signal.SIGUSR1)
    told = await driven(command, cluster.bootstrap, "profiled", load)
    for pid in watched:
        os.kill(pid, signal.SIGUSR2)
    spent = [cpu_of([pid]).since(start) for pid, start in zip(cluster.pids, before, strict=True)]
    speed = load.megabytes / told["seconds"]
    print(f"{load.name}: {speed:,.1f} MB/s, {load.count / told['seconds']:,.0f} records/s")
    for number, one in enumerate(spent, 1):
        print(f"node {number}: {one.user_s:.2f} s user, {one.system_s:.2f} s system")
    print()
    for pid, name, cpu in zip(watched, ("leader", "follower"), spent, strict=False):
        seen = _samples_of(samples / f"{pid}.json")
        print(show_python(name, seen, cpu.all_s), end="\n\n")
        print(show_below(name, seen), end="\n\n")
    if perf is not None:
        await _show_perf(perf, watched, directory)


async def _perf_of(pids: Sequence[int], directory: Path) -> list[asyncio.subprocess.Process] | None:
    if shutil.which("perf") is None:
        say("there is no perf: only Python is shown")
        return None
    return [
        await asyncio.create_subprocess_exec(
            *("perf", "record", "-q", "-F", str(_PERF_HZ), "-o", str(directory / f"perf-{pid}")),
            *("-p", str(pid)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        for pid in pids
    ]


async def _show_perf(
    processes: Sequence[asyncio.subprocess.Process], pids: Sequence[int], directory: Path
) -> None:
    for process in processes:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.wait()
    for pid, name in zip(pids, ("leader", "follower"), strict=False):
        data = directory / f"perf-{pid}"
        for title, keys in (
            ("threads", ("comm",)),
            ("libraries", ("dso",)),
            ("functions of C", ("dso", "symbol")),
        ):
            print(f"{name}, by perf: {title}")
            print(await _perf_report(data, *keys), end="\n\n")


def _samples_of(path: Path) -> dict[str, Any]:
    end = time.perf_counter() + _WRITTEN_S_MAX
    while not path.exists():
        if time.perf_counter() > end:
            raise SystemExit(f"a node wrote no samples in {_WRITTEN_S_MAX:.0f} s")
        time.sleep(_POLL_S)
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


async def measure(directory: Path, given: argparse.Namespace) -> None:
    hook, samples = directory / "hook", directory / "samples"
    hook.mkdir()
    samples.mkdir()
    (hook / "sitecustomize.py").write_text(_HOOK, encoding="utf-8")
    environment = {
        OUTPUT_VARIABLE: str(samples),
        "PYTHONPATH": os.pathsep.join((str(hook), str(TOP))),
    }
    warm_memory(str(directory), _WARM_BYTES)
    async with started(directory / "cluster", tree=given.tree, environment=environment) as cluster:
        await profiled(cluster, directory, samples, given)


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(
        prog="python -m bench.replication_profile", description=summary
    )
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--durability", choices=("pagecache", "fsync"), default="pagecache")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--count", type=int)
    parser.add_argument("--rate", type=int, help="single records/s; as fast as it goes without")
    parser.add_argument("--copies", type=int, choices=range(1, NODES + 1), default=NODES)
    parser.add_argument("--tree", type=Path, help="another copy of the code, for the nodes")
    given = parser.parse_args()
    if given.count is None:
        given.count = (768 << 20) // given.size if given.rate is None else given.rate * 10
    with workspace(given.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        print(machine_of(directory).line(), end="\n\n", flush=True)
        asyncio.run(measure(Path(directory), given))


if __name__ == "__main__":
    main()
