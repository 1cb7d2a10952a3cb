"""What is asked of a broker while the clock runs, and what it cost.

An action is done by a driver process (librdkafka) or on a plain connection, and knows nothing of
the broker but its address; what the broker spent is read from outside.
Not here: in which order actions are taken (`node_plan.py`), and how they are shown.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.node_servers import TOP, MemoryWatch, Server
from bench.node_wire import batch, produce_frame, wire_to

_TURN_S_MAX: Final = 60


@dataclass(frozen=True, slots=True)
class Result:
    """One turn of one broker."""

    seconds: float
    # Processor time of the broker for this turn.
    server_cpu_s: float
    # How many cores the driver kept busy; None where it costs next to nothing.
    driver_cores: float | None = None
    peak_mb: float = 0.0
    # Of single writes.
    p50_us: float = 0.0
    p99_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Action:
    """Something that both brokers are asked for: so many operations of so many bytes."""

    name: str
    op_bytes: int
    ops: int
    run: Callable[[Server], Result]


def driven(command: str, name: str, *, partitions: int, size: int, count: int) -> Action:
    """Return what librdkafka does with `count` records of `size` bytes (`drive.py`)."""
    arguments = ["--topic", TOPIC, "--partitions", str(partitions)]
    arguments += ["--size", str(size), "--count", str(count)]
    return Action(name, size, count, partial(_drive, command, arguments))


# The topic of everybody here.
TOPIC: Final = "t"


def _drive(command: str, arguments: list[str], server: Server) -> Result:
    line = [sys.executable, "-m", "bench.drive", command, "--to", server.address, *arguments]
    cpu_start = server.cpu_s()
    with MemoryWatch(server) as memory:
        told = subprocess.run(
            line, cwd=TOP, stdout=subprocess.PIPE, check=True, timeout=_TURN_S_MAX
        )
    result = json.loads(told.stdout)
    # The driver warms up as well, and the broker works for that too.
    part = result["count"] / result["all_count"]
    return Result(
        seconds=result["seconds"],
        server_cpu_s=(server.cpu_s() - cpu_start) * part,
        driver_cores=result["cpu_s"] / result["seconds"],
        peak_mb=memory.peak_mb,
        p50_us=result.get("p50_us", 0.0),
        p99_us=result.get("p99_us", 0.0),
    )


def streamed(
    record_size: int, record_count: int, requests: int, depth: int, topics: tuple[str, ...] = ()
) -> Action:
    """Return prepared Produce requests, `depth` of them unanswered, to the topics in turn.

    The topics must have names of one length. Nobody packs records while the clock runs: what is
    seen is the broker.
    """
    records = batch(record_size, record_count)
    frames = [produce_frame(topic, 0, records) for topic in topics or (TOPIC,)]
    topic_size = len((topics or (TOPIC,))[0])

    def run(server: Server) -> Result:
        cpu_start = server.cpu_s()
        with wire_to(server.host_and_port) as wire:
            seconds = wire.stream(frames, topic_size, requests, depth)
        return Result(seconds, server.cpu_s() - cpu_start)

    name = f"{record_count} × {record_size} B, {depth} in flight"
    return Action(name, len(records), requests, run)
