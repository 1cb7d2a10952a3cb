"""What the slowest acknowledgements have in common: who was on the processors just then.

    python -m bench.slowest          1,000 synced records a second for 20 s, to one partition
    python -m bench.slowest --rate 300 --durability pagecache

Three nodes and a writer. Records that took longest (the slowest 1.5 %) are joined to moments;
`perf` (Debian's linux-perf), if there is one, looks at the whole machine meanwhile, and its samples
within those moments are held against all others: by process, and by function. What has a larger
share there than elsewhere is what was waited for, or what was in the way.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import shutil
import subprocess
import threading
import time
from bisect import bisect
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.replication_cluster import Cluster, started

_FREE_BYTES_MIN: Final = 2 << 30
_SLOW_SHARE: Final = 0.015
_WARM_S: Final = 2.0
_FLUSH_S: Final = 20.0
_PERF_HZ: Final = 4000
_ROWS: Final = 16
_SHOWN_MOMENTS: Final = 30
_SAMPLE: Final = re.compile(r"\s*(.+?)\s+(\d+)/(\d+)\s+([\d.]+):\s+[0-9a-f]+\s+(.*)")


@dataclass(slots=True)
class Moments:
    """Stretches of time in which a slow record was under way, by the clock of this machine."""

    spans: list[list[float]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def add(self, begin: float, end: float) -> None:
        if self.spans and begin <= self.spans[-1][1]:
            self.spans[-1][1] = max(self.spans[-1][1], end)
            self.counts[-1] += 1
        else:
            self.spans.append([begin, end])
            self.counts.append(1)

    def hold(self, at: float) -> bool:
        index = bisect(self.spans, at, key=lambda span: span[0]) - 1
        return index >= 0 and at <= self.spans[index][1]


def pace(bootstrap: str, topic: str, rate: int, seconds: float) -> list[tuple[float, float]]:
    """Return of each record when it was due and when it was acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "socket.nagle.disable": True,
        }
    )
    told: list[tuple[float, float]] = []
    failures: list[str] = []
    is_over = threading.Event()

    def listen() -> None:
        while not is_over.is_set():
            producer.poll(0.1)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    start = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = start + number / rate
        wait = due - time.perf_counter()
        if wait > 0:
            time.sleep(wait)

        def acknowledged(error: object, _: object, due: float = due) -> None:
            # It is called on the other thread, where nobody would hear of what is raised.
            if error is None:
                told.append((due, time.perf_counter()))
            else:
                failures.append(str(error))

        producer.produce(topic, b"x" * 100, partition=0, on_delivery=acknowledged)
    left = producer.flush(_FLUSH_S)
    is_over.set()
    listener.join()
    if left or failures:
        why = f"; {len(failures)} failed, the first: {failures[0]}" if failures else ""
        raise SystemExit(f"{left} records were not acknowledged in {_FLUSH_S:.0f} s{why}")
    return sorted(told)


def moments_of(told: list[tuple[float, float]]) -> Moments:
    waits = sorted(end - due for due, end in told)
    slow_s = waits[int(len(waits) * (1 - _SLOW_SHARE))]
    found = Moments()
    for due, end in told:
        if end - due >= slow_s:
            found.add(due, end)
    return found


def show_waits(told: list[tuple[float, float]], found: Moments) -> None:
    waits = sorted((end - due) * 1000 for due, end in told)
    parts = (0.5, 0.9, 0.99, 0.999)
    print(", ".join(f"p{part * 100:g} {waits[int(len(waits) * part)]:.2f} ms" for part in parts))
    print(f"{sum(found.counts)} slow ones in {len(found.spans)} moments, after the start, records:")
    began = told[0][0]
    shown = zip(found.spans[:_SHOWN_MOMENTS], found.counts, strict=False)
    print(" ".join(f"{span[0] - began:.3f}×{count}" for span, count in shown), end="\n\n")


def show_samples(data: Path, told: list[tuple[float, float]], found: Moments, own: Cluster) -> None:
    names = {pid: f"node {number}" for number, pid in enumerate(own.pids, 1)}
    command = ("perf", "script", "-i", str(data), "-F", "comm,pid,tid,time,ip,sym")
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    places, functions = (Counter[str](), Counter[str]()), (Counter[str](), Counter[str]())
    for line in script.splitlines():
        sample = _SAMPLE.match(line)
        if sample is None or not told[0][0] <= float(sample[4]) <= told[-1][1]:
            continue
        pid, tid = int(sample[2]), int(sample[3])
        place = names.get(pid, sample[1] if pid else "nobody")
        place += ", other threads" if pid in names and pid != tid else ""
        is_slow = found.hold(float(sample[4]))
        places[is_slow][place] += 1
        functions[is_slow][f"{place}: {sample[5]}"] += 1
    for title, counts in (("who was on the processors", places), ("in which function", functions)):
        print(table([title, "while slow", "else"], _compared(counts)), end="\n\n")


def _compared(counts: tuple[Counter[str], Counter[str]]) -> list[list[str]]:
    """Return rows of what has more of the slow moments than of the rest, most of all first."""
    els, slow = counts
    shares = {
        name: (count / slow.total(), els[name] / max(1, els.total()))
        for name, count in slow.items()
    }
    ordered = sorted(shares.items(), key=lambda row: row[1][1] - row[1][0])
    return [[name, f"{own:.1%}", f"{other:.1%}"] for name, (own, other) in ordered[:_ROWS]]


async def measure(directory: Path, given: argparse.Namespace) -> None:
    configs = {"ottla.durability": given.durability, "min.insync.replicas": "2"}
    async with started(directory / "cluster", tree=given.tree) as cluster:
        await cluster.create("slowest", partitions=1, copies=3, configs=configs)
        gc.disable()
        await asyncio.to_thread(pace, cluster.bootstrap, "slowest", given.rate, _WARM_S)
        data = directory / "perf.data"
        perf = _perf(data, given.seconds + 1.0)
        told = await asyncio.to_thread(
            pace, cluster.bootstrap, "slowest", given.rate, given.seconds
        )
        found = moments_of(told)
        show_waits(told, found)
        if perf is not None:
            await asyncio.to_thread(perf.wait)
            show_samples(data, told, found, cluster)


def _perf(data: Path, seconds: float) -> subprocess.Popen[bytes] | None:
    if shutil.which("perf") is None:
        say("there is no perf: only the moments are shown")
        return None
    command = ("perf", "record", "-q", "-a", "-k", "CLOCK_MONOTONIC", "-e", "cpu-clock")
    more = ("-F", str(_PERF_HZ), "-o", str(data), "--", "sleep", str(seconds))
    return subprocess.Popen([*command, *more], stderr=subprocess.DEVNULL)


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.slowest", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--durability", choices=("pagecache", "fsync"), default="fsync")
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--tree", type=Path, help="another copy of the code, for the nodes")
    given = parser.parse_args()
    with workspace(given.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        print(machine_of(directory).line(), end="\n\n", flush=True)
        asyncio.run(measure(Path(directory), given))


if __name__ == "__main__":
    main()
