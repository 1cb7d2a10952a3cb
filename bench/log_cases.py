"""The pairs that `log.py` compares: the log, and what the machine can do with the same bytes.

Every turn begins with new files and removes them afterwards, before the kernel writes them back,
so both sides find the same warm memory. Making and removing is not in the time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

from bench.batches import NOW_MS, Pool
from bench.drain import Drain
from bench.measure import Case, timed
from bench.raw import RawFiles, in_two
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_log
from ottla.replication.log.sync_kernel import KernelSyncs
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.kernel_aio import open_kernel_aio
from ottla.replication.storage.lmdb_store import LmdbStateStore

EPOCH: Final = LeaderEpoch(0)
# Rolled once in the middle of a turn: thirty times as often as the default would.
_SEGMENT_BYTES: Final = 32 << 20
_TURN_BYTES: Final = 64 << 20
_SYNCS_PER_TURN: Final = 16
_GROUPS_PER_TURN: Final = 4
_READ_BYTES: Final = 64 << 20
_READ_BATCH_BYTES: Final = 16 << 10


@contextmanager
def new_log(directory: str, settings: LogSettings | None = None) -> Iterator[Log]:
    """Give an empty log on the real disk, with a real state store, and remove both."""
    root = f"{directory}/log"
    os.mkdir(root)
    files = DiskFiles()
    store = LmdbStateStore(f"{root}/state")
    place = LogPlace(
        name="bench-0",
        directory=f"{root}/bench-0",
        files=files,
        store=store,
        handles=Handles(files),
        settings=settings or LogSettings(segment_bytes=_SEGMENT_BYTES),
    )
    try:
        log = create_log(place)
        log.assign_epoch(EPOCH)
        yield log
        log.close()
    finally:
        store.close()
        shutil.rmtree(root)


def append_cases(
    directory: str, size: int, *, producer_id: int, queue: int
) -> tuple[Case, Case, Case]:
    """Batches that come one by one, or that have queued up `queue` at a time.

    What has queued up is written with one call, by the log and by its limits: the second of them
    asks for room ahead, as the log does.
    """
    pool = Pool(size, producer_id=producer_id, count_min=queue)
    passes = _TURN_BYTES // (size * len(pool))

    def run_raw(is_ahead: bool = False) -> float:
        files = RawFiles(directory, roll_bytes=_SEGMENT_BYTES, is_ahead=is_ahead)
        pool.begin()
        seconds = 0.0
        for _ in range(passes):
            halves = [in_two(batch) for batch in pool.batches]
            pieces = [
                [half for batch in halves[first : first + queue] for half in batch]
                for first in range(0, len(halves), queue)
            ]
            start = time.perf_counter()
            for buffers in pieces:
                files.write(buffers, size * len(buffers) // 2)
            seconds += time.perf_counter() - start
            pool.renew()
        files.remove()
        return seconds

    def run_log() -> float:
        with new_log(directory) as log:
            pool.begin()
            seconds = 0.0
            for _ in range(passes):
                start = time.perf_counter()
                for first in range(0, len(pool.batches), queue):
                    waiting = pool.batches[first : first + queue]
                    log.append_all_as_leader(waiting, epoch=EPOCH, now_ms=NOW_MS)
                seconds += time.perf_counter() - start
                pool.renew()
        return seconds

    count = passes * len(pool)
    name = "append" if queue == 1 else f"append, {queue} queued"
    name += "" if producer_id < 0 else ", idempotent"
    return (
        Case("writev", size, count, run_raw),
        Case("writev, room ahead", size, count, partial(run_raw, is_ahead=True)),
        Case(name, size, count, run_log),
    )


def sync_cases(directory: str, size: int) -> tuple[Case, Case]:
    """One batch, one sync, and so on: what a producer without company gets."""
    batch = Pool(size).batches[0]
    buffers = in_two(batch)

    def run_raw() -> float:
        with _synced_raw(directory) as files:

            def write() -> None:
                for _ in range(_SYNCS_PER_TURN):
                    files.write(buffers, size)
                    files.sync()

            return timed(write)

    def run_log() -> float:
        with new_log(directory, _UNROLLED) as log:
            log.sync()

            def append() -> None:
                for _ in range(_SYNCS_PER_TURN):
                    log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
                    log.sync()

            return timed(append)

    return (
        Case("writev+fdatasync", size, _SYNCS_PER_TURN, run_raw),
        Case("append, sync", size, _SYNCS_PER_TURN, run_log),
    )


def group_cases(directory: str, size: int, waiters: int) -> tuple[Case, Case]:
    """So many producers, each waiting for its own batch to be durable before it sends the next."""
    batch = Pool(size).batches[0]
    buffers = in_two(batch)
    executor = ThreadPoolExecutor(max_workers=1)

    def run_raw() -> float:
        with _synced_raw(directory) as files:

            def write() -> None:
                for _ in range(_GROUPS_PER_TURN):
                    for _ in range(waiters):
                        files.write(buffers, size)
                    files.sync()

            return timed(write)

    async def produce(log: Log, commit: GroupCommit) -> None:
        for _ in range(_GROUPS_PER_TURN):
            log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
            await commit.synced(log.end_offset)

    async def produce_all(log: Log) -> float:
        # As a node does it (`node/wiring.py`).
        door = open_kernel_aio()
        kernel = None if door is None else KernelSyncs(door)
        commit = GroupCommit(log, executor, kernel=kernel)
        start = time.perf_counter()
        await asyncio.gather(*(produce(log, commit) for _ in range(waiters)))
        seconds = time.perf_counter() - start
        await commit.close()
        if kernel is not None:
            kernel.close()
        return seconds

    def run_log() -> float:
        with new_log(directory, _UNROLLED) as log:
            log.sync()
            return asyncio.run(produce_all(log))

    count = _GROUPS_PER_TURN * waiters
    return (
        Case(f"{waiters} writev+fdatasync", size, count, run_raw),
        Case(f"group commit, {waiters} waiting", size, count, run_log),
    )


_UNROLLED: Final = LogSettings()


@contextmanager
def _synced_raw(directory: str) -> Iterator[RawFiles]:
    """Give a file whose name is durable already, as that of a new log is."""
    files = RawFiles(directory, roll_bytes=1 << 30)
    files.sync()
    DiskFiles().sync_dir(directory)
    try:
        yield files
    finally:
        files.remove()


@contextmanager
def readable_log(directory: str) -> Iterator[Log]:
    """Give a log of two full segments."""
    pool = Pool(_READ_BATCH_BYTES)
    with new_log(directory, LogSettings(segment_bytes=_READ_BYTES // 2)) as log:
        while log.size_bytes < _READ_BYTES:
            for batch in pool.batches:
                log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
        yield log


def read_cases(log: Log, drain: Drain, size: int) -> tuple[Case, Case]:
    """All of a log to another process, in pieces of `size`."""
    log_bytes = log.size_bytes
    sources = [(segment.reader().fileno(), segment.size) for segment in log.segments]

    def send_raw() -> None:
        for descriptor, end in sources:
            for position in range(0, end, size):
                drain.send_file(descriptor, position, min(size, end - position))
        drain.wait()

    def send_log() -> None:
        _send_log(log, drain, size)
        drain.wait()

    def run_raw() -> float:
        drain.announce(log_bytes)
        return timed(send_raw)

    def run_log() -> float:
        drain.announce(log_bytes)
        return timed(send_log)

    count = log_bytes // size
    return Case("sendfile", size, count, run_raw), Case("read, sendfile", size, count, run_log)


def _send_log(log: Log, drain: Drain, size: int) -> None:
    records_per_byte = log.end_offset / log.size_bytes
    offset = log.start_offset
    while offset < log.end_offset:
        found = log.read(offset, bytes_max=size, before=log.end_offset)
        if found is None:
            raise SystemExit(f"Nothing at offset {offset}.")
        drain.send_file(found.file.fileno(), found.position, found.size)
        # All batches are alike, and the pieces end where one does.
        offset = Offset(found.first_offset + round(found.size * records_per_byte))
