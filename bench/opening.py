"""One opening of a data directory in a process of its own, for `open.py`.

    python -m bench.opening ROOT [FDS]   prints what it took as JSON, and leaves without a farewell

With FDS it may have no more descriptors than that. It ends like a killed process: whatever opening
did not make durable by itself is lost.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.batches import NOW_MS
from ottla.replication.log.manager import LogManager
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.ports import StateStore


@dataclass(frozen=True, slots=True)
class Opened:
    """What one opening took."""

    # All of it, the state store included.
    seconds: float
    store_seconds: float
    partitions: int
    damaged: int
    checked_bytes: int
    # Memory that belongs to the process alone, without mapped files.
    anon_before_mb: float
    anon_mb: float
    descriptors: int

    def facts(self) -> dict[str, object]:
        return asdict(self)


def manager_of(root: str, store: StateStore) -> LogManager:
    """Return the logs of a data directory, not opened yet, with Kafka's default settings."""
    return LogManager(DiskFiles(), store, f"{root}/logs", lambda topic: LogSettings())


def anonymous_mb() -> float:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1e3
    return 0.0


def opening(root: str) -> Opened:
    anon_before_mb = anonymous_mb()
    start = time.perf_counter()
    store = LmdbStateStore(f"{root}/state")
    store_seconds = time.perf_counter() - start
    manager = manager_of(root, store)
    report = manager.open(now_ms=NOW_MS)
    return Opened(
        seconds=time.perf_counter() - start,
        store_seconds=store_seconds,
        partitions=len(manager.logs),
        damaged=len(report.damaged),
        checked_bytes=sum(found.checked_bytes for found in report.recovered.values()),
        anon_before_mb=anon_before_mb,
        anon_mb=anonymous_mb(),
        descriptors=len(os.listdir("/proc/self/fd")),
    )


def allow_descriptors(count_max: int) -> None:
    hard_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (count_max, hard_max))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        allow_descriptors(int(sys.argv[2]))
    print(json.dumps(opening(sys.argv[1]).facts()), flush=True)
    os._exit(0)
