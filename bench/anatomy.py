"""Where the time of one append goes, and how often its bytes are copied.

The time is taken from outside, part by part on the same batches, because a profiler makes calls
look dearer than they are; the profile is printed as well, to show which calls there are.

Copies are counted by what is allocated: who copies a batch needs memory for it, and `tracemalloc`
sees that. The kernel's own copy, into the page cache, is one by construction (`pwritev`).
"""

from __future__ import annotations

import cProfile
import io
import os
import pstats
import time
import tracemalloc
from dataclasses import asdict, dataclass
from statistics import median
from typing import Final

from crc32c import crc32c

from bench.batches import NOW_MS, Pool, batch_of
from bench.log_cases import EPOCH, new_log
from bench.measure import timed
from bench.raw import in_two
from ottla.proto.ids import Offset
from ottla.proto.records.header import CRC_START, LENGTH_END, STAMP_END, TimestampType, stamp
from ottla.proto.records.validate import BatchLimits, validate_produced
from ottla.replication.log.log import Log
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles

_COPY_BATCH_BYTES: Final = 1 << 20
_PROFILE_CALLS_SHOWN: Final = 16


@dataclass(frozen=True, slots=True)
class Anatomy:
    """One append, taken apart. All in µs, medians of rounds."""

    size: int
    whole: float
    write: float
    checksum: float
    # Without the checksum.
    validation: float

    @property
    def rest(self) -> float:
        return self.whole - self.write - self.checksum - self.validation

    def cells(self) -> list[str]:
        parts = (self.write, self.checksum, self.validation, self.rest)
        return [f"{self.whole:.1f}", *(f"{part:.1f} ({part / self.whole:.0%})" for part in parts)]

    def facts(self) -> dict[str, object]:
        return {**asdict(self), "rest": self.rest}


def anatomy_of_append(directory: str, size: int, round_count: int) -> Anatomy:
    pool = Pool(size)
    rounds = [_parts_of(directory, pool) for _ in range(round_count + 1)]
    whole, written, checked, validated = (
        median(times) / len(pool) * 1e6 for times in zip(*rounds[1:], strict=True)
    )
    return Anatomy(size, whole, written, checked, validated - checked)


def _parts_of(directory: str, pool: Pool) -> tuple[float, float, float, float]:
    """Return the seconds of one pass: append, write, checksum, validation with checksum."""
    limits = BatchLimits()
    pieces = [in_two(batch) for batch in pool.batches]
    sealed = [batch[CRC_START:] for batch in pool.batches]
    path = f"{directory}/anatomy"
    file = DiskFiles().open(path, create=True)
    # As the log does, which asks for as much as it has.
    file.reserve(2 * pool.batch_size * len(pool))
    descriptor = file.fileno()
    position = 0

    def write() -> None:
        nonlocal position
        for buffers in pieces:
            os.pwritev(descriptor, buffers, position)
            position += pool.batch_size

    def checksum() -> None:
        for batch in sealed:
            crc32c(batch)

    def validate() -> None:
        for batch in pool.batches:
            validate_produced(batch, limits, now_ms=NOW_MS)

    with new_log(directory) as log:

        def append() -> None:
            for batch in pool.batches:
                log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)

        # Once for nothing: of large batches there are only two in a pool, and the first one of a
        # new log, which finds everything cold, would count for half.
        append()
        write()
        pool.renew()
        seconds = timed(append), timed(write), timed(checksum), timed(validate)
    file.close()
    os.unlink(path)
    return seconds


def finding_of(log: Log, size: int, round_count: int) -> float:
    """Return the µs that finding one piece of a log takes, without sending it; the best round."""
    return min(_pass_over(log, size) for _ in range(round_count)) * 1e6


def _pass_over(log: Log, size: int) -> float:
    """Return the seconds per piece of one reader that goes through all of a log."""
    records_per_byte = log.end_offset / log.size_bytes
    offset, count = log.start_offset, 0
    start = time.perf_counter()
    while offset < log.end_offset:
        found = log.read(offset, bytes_max=size, before=log.end_offset)
        if found is None:
            raise SystemExit(f"Nothing at offset {offset}.")
        offset = Offset(found.first_offset + round(found.size * records_per_byte))
        count += 1
    return (time.perf_counter() - start) / count


def profile_of_append(directory: str, size: int) -> str:
    pool = Pool(size)
    profile = cProfile.Profile()
    with new_log(directory) as log:
        profile.enable()
        for batch in pool.batches:
            log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
        profile.disable()
    output = io.StringIO()
    stats = pstats.Stats(profile, stream=output).strip_dirs().sort_stats("tottime")
    stats.print_stats(_PROFILE_CALLS_SHOWN)
    return f"profile of {len(pool)} appends of {size} bytes\n{output.getvalue().strip()}"


def copies_of(directory: str) -> list[tuple[str, float]]:
    """Return, by kind of append, the bytes allocated per byte of batch."""
    batch = memoryview(batch_of(_COPY_BATCH_BYTES)).toreadonly()
    append_time = LogSettings(timestamp_type=TimestampType.LOG_APPEND_TIME)
    recompressed = LogSettings(compression_type="lz4")
    rows = []
    for name, settings in (
        ("leader, as the producer packed it", LogSettings()),
        ("leader, LogAppendTime", append_time),
        ("leader, compression.type=lz4", recompressed),
    ):
        with new_log(directory, settings) as log:
            rows.append((name, _allocated(log, batch) / len(batch)))
    with new_log(directory) as log:
        rows.append(("follower", _allocated(log, batch, as_follower=True) / len(batch)))
    return rows


def _allocated(log: Log, batch: memoryview, *, as_follower: bool = False) -> int:
    """Return the most that was allocated at once while one batch was appended."""
    # The first ones make what stays: index entries, the codec's own memory.
    for _ in range(2):
        _allocated_once(log, batch, as_follower=as_follower)
    return _allocated_once(log, batch, as_follower=as_follower)


def _allocated_once(log: Log, batch: memoryview, *, as_follower: bool) -> int:
    stamped = bytearray(batch)
    stamped[:STAMP_END] = stamp(log.end_offset, len(batch) - LENGTH_END, EPOCH)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    if as_follower:
        log.append_as_follower(memoryview(stamped), now_ms=NOW_MS)
    else:
        log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak - before
