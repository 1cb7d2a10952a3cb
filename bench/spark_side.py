"""The two sides of the Spark benches as child processes, and topics filled for them.

Not here: what is compared (`spark.py`, `spark_count.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.node_servers import Server
from bench.node_wire import batch, produce_frame, wire_to
from bench.spark_peer import Peer

TOP: Final = Path(__file__).resolve().parent.parent
PARTITIONS: Final = 12
_DEPTH: Final = 8
_BATCH_BYTES: Final = 100_000


class Side:
    """One Spark that waits for orders."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name: Final = name
        self._process: Final = process
        self.spark_version: Final = str(self._answer()["spark"])

    def turn(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # Spark's launcher has words of its own for standard output.
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        raise SystemExit(f"{self.name}: Spark has ended; what it says stands above.")


@contextmanager
def our_side() -> Iterator[Side]:
    command = [sys.executable, "-m", "bench.spark_reader", "ottla"]
    with _running("ottla", command, dict(os.environ)) as side:
        yield side


@contextmanager
def peer_side(peer: Peer) -> Iterator[Side]:
    program = str(TOP / "bench" / "spark_reader.py")
    command = [str(peer.python), program, "kafka", ",".join(peer.jars)]
    with _running("kafka", command, peer.environment()) as side:
        yield side


@contextmanager
def _running(name: str, command: list[str], environment: dict[str, str]) -> Iterator[Side]:
    process = subprocess.Popen(
        command,
        cwd=TOP,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if "OTTLA_BENCH_QUIET" in os.environ else None,
        text=True,
    )
    try:
        yield Side(name, process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def fill(server: Server, topic: str, size: int, count: int) -> int:
    """Make a topic of 12 partitions with about so many records in all; return how many."""
    per_batch = max(1, min(5_000, _BATCH_BYTES // (size + 10)))
    requests = max(1, count // per_batch // PARTITIONS) * PARTITIONS
    records = batch(size, per_batch)
    frames = [produce_frame(topic, index, records) for index in range(PARTITIONS)]
    with wire_to(server.host_and_port) as wire:
        wire.create_topics([topic], PARTITIONS)
        wire.stream(frames, len(topic), requests, _DEPTH)
    return requests * per_batch
