"""How long a data directory takes to open: after a clean stop, after a crash, with many partitions.

    python -m bench.open                  10 GB and 2,000 partitions; a few minutes
    python -m bench.open --gb 2           a quick run
    python -m bench.open --only log       one part of it: log, partitions

log         a log of so many GB, closed cleanly, then opened; and the same left with so many MB
            after its recovery point, as a crash leaves it: the work must follow those, not the size
partitions  so many small logs: seconds, memory of its own, open descriptors

Every opening happens in a process of its own (`opening.py`), as a node's does. Cold: the page cache
was dropped before, which needs root; without it those rows are left out. The cold opening is the
second one after the clean stop: it finds all recovery points at the end, and no marker any more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.batches import NOW_MS, Pool
from bench.machine import machine_of
from bench.measure import say, table, timed, workspace
from bench.opening import Opened, manager_of
from ottla.proto.ids import LeaderEpoch, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.storage.lmdb_store import LmdbStateStore

LOG_OPEN_S_MAX: Final = 2.0
PARTITIONS_OPEN_S_MAX: Final = 3.0
TAILS_MB: Final = (1, 16, 64, 256)
_EPOCH: Final = LeaderEpoch(0)
_BATCH_BYTES: Final = 16 << 10
_SMALL_BATCH_BYTES: Final = 1 << 10
_DESCRIPTORS_USUAL: Final = 1024
_DROP_CACHES: Final = "/proc/sys/vm/drop_caches"
# The log in parts, so that the checkpoint of a node, every few seconds, has its place.
_CHECKPOINT_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class Row:
    """One opening, and what was asked of it."""

    name: str
    opened: Opened
    seconds_max: float | None = None

    def verdict(self) -> str:
        if self.opened.damaged:
            return f"{self.opened.damaged} not opened"
        if self.seconds_max is None:
            return ""
        return "PASS" if self.opened.seconds <= self.seconds_max else f"over {self.seconds_max} s"

    def cells(self) -> list[str]:
        opened = self.opened
        return [
            self.name,
            f"{opened.seconds:.3f}",
            f"{opened.store_seconds:.3f}",
            f"{opened.checked_bytes / 1e6:,.1f}",
            f"{opened.anon_before_mb:.0f} → {opened.anon_mb:.0f}",
            str(opened.descriptors),
            self.verdict(),
        ]

    def facts(self) -> dict[str, object]:
        return {"name": self.name, "seconds_max": self.seconds_max, **self.opened.facts()}


@contextmanager
def managed(root: str, *, clean: bool) -> Iterator[LogManager]:
    """Open a data directory; afterwards stop cleanly, or as a killed process does."""
    store = LmdbStateStore(f"{root}/state")
    manager = manager_of(root, store)
    manager.open(now_ms=NOW_MS)
    yield manager
    if clean:
        manager.close(broker_epoch=1)
    else:
        for log in manager.logs.values():
            log.close()
    store.close()


def new_root(root: str) -> None:
    os.makedirs(f"{root}/logs")


def fill(log: Log, pool: Pool, size_bytes: int) -> None:
    end_bytes = log.size_bytes + size_bytes
    while log.size_bytes < end_bytes:
        for batch in pool.batches[: (end_bytes - log.size_bytes) // pool.batch_size or 1]:
            log.append_as_leader(batch, epoch=_EPOCH, now_ms=NOW_MS)


def open_apart(root: str, partition_count: int, *, descriptors_max: int | None = None) -> Opened:
    """Open in a new process, which is then killed: nothing it did not store is kept."""
    command = [sys.executable, "-m", "bench.opening", root]
    if descriptors_max is not None:
        command.append(str(descriptors_max))
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    opened = Opened(**json.loads(output))
    if opened.partitions != partition_count:
        raise SystemExit(f"{root} has {opened.partitions} partitions, not {partition_count}.")
    return opened


def can_drop_caches() -> bool:
    return os.geteuid() == 0 and os.access(_DROP_CACHES, os.W_OK)


def drop_caches() -> None:
    os.sync()
    with open(_DROP_CACHES, "w", encoding="ascii") as file:
        file.write("3")


def warm_and_cold(
    name: str, root: str, partition_count: int, seconds_max: float | None
) -> Iterator[Row]:
    """Yield the row of an opening that changes nothing, as the machine is and with a cold cache."""
    yield Row(name, open_apart(root, partition_count), seconds_max)
    if can_drop_caches():
        drop_caches()
        yield Row(f"{name}, cold", open_apart(root, partition_count), seconds_max)


def log_rows(directory: str, log_bytes: int) -> Iterator[Row]:
    root = f"{directory}/one"
    new_root(root)
    pool = Pool(_BATCH_BYTES)
    partition = TopicPartition("big", 0)
    with managed(root, clean=True) as manager:
        log = manager.create(partition)
        log.assign_epoch(_EPOCH)
        say(f"writing {log_bytes / 1e9:.1f} GB …")
        while log.size_bytes < log_bytes:
            fill(log, pool, min(_CHECKPOINT_BYTES, log_bytes - log.size_bytes))
            manager.checkpoint()
    size_name = f"{log_bytes / 1e9:g} GB"
    yield from warm_and_cold(f"{size_name}, clean", root, 1, LOG_OPEN_S_MAX)
    for tail_mb in TAILS_MB:
        for is_cold in (False, True) if can_drop_caches() else (False,):
            with managed(root, clean=False) as manager:
                log = manager.logs[partition]
                fill(log, pool, tail_mb << 20)
                # Batches on disk, recovery point behind: how the disk is after a node was killed.
                log.sync()
            if is_cold:
                drop_caches()
            name = f"{size_name}, crashed, {tail_mb} MB to check{', cold' if is_cold else ''}"
            yield Row(name, open_apart(root, 1))


def partition_rows(directory: str, count: int) -> Iterator[Row]:
    root = f"{directory}/many"
    new_root(root)
    pool = Pool(_SMALL_BATCH_BYTES)
    say(f"making {count} partitions …")
    with managed(root, clean=True) as manager:

        def create() -> None:
            for number in range(count):
                log = manager.create(TopicPartition("many", number))
                log.assign_epoch(_EPOCH)
                append_little(log, pool)

        say(f"made in {timed(create):.1f} s")
        say(f"checkpointed in {timed(manager.checkpoint):.1f} s")
    yield from warm_and_cold(f"{count:,} partitions, clean", root, count, PARTITIONS_OPEN_S_MAX)
    with managed(root, clean=False) as manager:
        for log in manager.logs.values():
            append_little(log, pool)
            log.sync()
    yield Row(f"{count:,} partitions, crashed, all to check", open_apart(root, count))
    # What most systems allow a process that did not ask for more.
    few = open_apart(root, count, descriptors_max=_DESCRIPTORS_USUAL)
    name = f"{count:,} partitions, {_DESCRIPTORS_USUAL} descriptors"
    yield Row(name, few, PARTITIONS_OPEN_S_MAX)


def append_little(log: Log, pool: Pool) -> None:
    for batch in pool.batches[:8]:
        log.append_as_leader(batch, epoch=_EPOCH, now_ms=NOW_MS)


def show(rows: Iterator[Row]) -> list[Row]:
    found = []
    for row in rows:
        say(f"  {row.name}: {row.opened.seconds:.3f} s")
        found.append(row)
    heading = ["opened", "seconds", "store s", "checked MB", "anon MB", "fds", ""]
    print(table(heading, [row.cells() for row in found]))
    print()
    return found


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.open", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--gb", type=float, default=10.0)
    parser.add_argument("--partitions", type=int, default=2000)
    parser.add_argument("--only", choices=("log", "partitions"))
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    log_bytes = int(options.gb * 1e9)
    rows: list[Row] = []
    with workspace(options.dir, free_bytes_min=log_bytes + (4 << 30)) as directory:
        machine = machine_of(directory)
        print(machine.line(), flush=True)
        if options.only != "partitions":
            rows += show(log_rows(directory, log_bytes))
            shutil.rmtree(f"{directory}/one")
        if options.only != "log":
            rows += show(partition_rows(directory, options.partitions))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            facts = [row.facts() for row in rows]
            json.dump({"machine": machine.facts(), "openings": facts}, file, indent=2)


if __name__ == "__main__":
    main()
