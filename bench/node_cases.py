"""One turn of each kind: what is asked of a broker while the clock runs, and what it cost.

Every turn is a new driver process (librdkafka) or a new connection (plain requests), so that the
two brokers that are compared never have a client at the same time.
Not here: which turns are taken, and how they are shown (`node.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from bench.measure import Case
from bench.node_servers import TOP, MemoryWatch, Server
from bench.node_wire import batch, produce_frame, wire_to

_TURN_S_MAX: Final = 60


@dataclass(slots=True)
class Turns:
    """A case and what its broker and its driver spent, one entry per turn, the warm-up first."""

    case: Case
    server_cpu_s: list[float] = field(default_factory=list)
    driver_cpu_s: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    peak_mb: float = 0.0

    def spread(self) -> str:
        """Return slowest and fastest round in MB/s."""
        size = self.case.op_bytes
        slow, fast = max(self.case.rounds), min(self.case.rounds)
        return f"{size / slow / 1e6:,.0f}–{size / fast / 1e6:,.0f}"

    @property
    def records_per_s(self) -> float:
        return 1e6 / self.case.median_us

    @property
    def cpu_s_per_gb(self) -> float:
        per_op = median(self.server_cpu_s[1:]) / self.case.ops_per_turn
        return per_op / self.case.op_bytes * 1e9

    @property
    def cpu_us_per_op(self) -> float:
        return median(self.server_cpu_s[1:]) / self.case.ops_per_turn * 1e6

    @property
    def driver_share(self) -> float:
        """Return how many cores the driver kept busy: near 1 or above it, it was the limit."""
        took = [seconds * self.case.ops_per_turn for seconds in self.case.rounds]
        pairs = zip(self.driver_cpu_s[1:], took, strict=True)
        return median(cpu / seconds for cpu, seconds in pairs)

    def facts(self) -> dict[str, object]:
        facts = self.case.facts()
        facts["server_cpu_us_per_op"] = round(self.cpu_us_per_op, 3)
        facts["rounds_us"] = [round(seconds * 1e6, 3) for seconds in self.case.rounds]
        if self.driver_cpu_s:
            facts["driver_cores"] = round(self.driver_share, 2)
        if self.p50_us:
            facts["p50_us"] = round(median(self.p50_us[1:]), 1)
            facts["p99_us"] = round(median(self.p99_us[1:]), 1)
        if self.peak_mb:
            facts["peak_anon_mb"] = round(self.peak_mb, 1)
        return facts


def driven(
    server: Server, command: str, *, topic: str, partitions: int, size: int, count: int
) -> Turns:
    """Return a case in which librdkafka does `count` records of `size` bytes a turn."""
    arguments = ["--topic", topic, "--partitions", str(partitions)]
    arguments += ["--size", str(size), "--count", str(count)]

    def run() -> float:
        line = [sys.executable, "-m", "bench.drive", command, "--to", server.address, *arguments]
        cpu_start = server.cpu_s()
        with MemoryWatch(server) as memory:
            told = subprocess.run(
                line, cwd=TOP, stdout=subprocess.PIPE, check=True, timeout=_TURN_S_MAX
            )
        result = json.loads(told.stdout)
        # The driver warms up as well, and the broker works for that too.
        part = result["count"] / result["all_count"]
        turns.server_cpu_s.append((server.cpu_s() - cpu_start) * part)
        turns.peak_mb = max(turns.peak_mb, memory.peak_mb)
        for name, figures in (
            ("cpu_s", turns.driver_cpu_s),
            ("p50_us", turns.p50_us),
            ("p99_us", turns.p99_us),
        ):
            if name in result:
                figures.append(result[name])
        return float(result["seconds"])

    turns = Turns(Case(f"{command}, {server.name}", size, count, run))
    return turns


@dataclass(frozen=True, slots=True)
class Stream:
    """Plain Produce requests: so many records of one size in each, so many unanswered."""

    record_size: int
    record_count: int
    requests: int
    depth: int

    @property
    def name(self) -> str:
        return f"{self.record_count} × {self.record_size} B, {self.depth} in flight"


def streamed(server: Server, topics: Callable[[], list[str]], stream: Stream) -> Turns:
    """Return a case in which prepared requests are sent, to the topics in turn.

    The topics must have names of one length. Nobody packs records while the clock runs: what is
    seen is the broker.
    """
    records = batch(stream.record_size, stream.record_count)

    def run() -> float:
        names = topics()
        frames = [produce_frame(name, 0, records) for name in names]
        cpu_start = server.cpu_s()
        with wire_to(server.host_and_port) as wire:
            seconds = wire.stream(names[0], frames, stream.requests, stream.depth)
        turns.server_cpu_s.append(server.cpu_s() - cpu_start)
        return seconds

    turns = Turns(Case(f"{stream.name}, {server.name}", len(records), stream.requests, run))
    return turns
