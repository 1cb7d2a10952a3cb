"""The disk alone, at the pace of a turn: what single synced records cannot be faster than.

Three files stand for three copies. Whenever a record is due, each of them gets as many bytes as a
batch of one record has, and is synced, all three at once; the time counts from when it was due, as
in `drive_kafka.py`. There is no network, no protocol and no other process. A disk that falls behind
is not waited for: what is left then counts as long as it has waited.

Not here: as fast as it goes (`bench/limit.py`).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.versus.figures import allowed_s

COPIES: Final = 3
# A batch with one record of 100 B.
_BATCH: Final = bytes(range(172))


def paced_syncs(directory: Path, rate: int, seconds: float) -> list[int]:
    """Return for each record, sorted, how long it took until all copies were synced, in µs."""
    paths = [directory / f"disk-alone-{copy}" for copy in range(COPIES)]
    files = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640) for path in paths]

    def put(file: int) -> None:
        os.write(file, _BATCH)
        os.fdatasync(file)

    times_us = list[int]()
    try:
        with ThreadPoolExecutor(COPIES) as threads:
            # The first one makes the threads, and the files their first block.
            list(threads.map(put, files))
            start = time.perf_counter()
            end = start + allowed_s(seconds)
            for number in range(round(rate * seconds)):
                due = start + number / rate
                time.sleep(max(0.0, due - time.perf_counter()))
                if time.perf_counter() < end:
                    list(threads.map(put, files))
                times_us.append(round((time.perf_counter() - due) * 1e6))
    finally:
        for file, path in zip(files, paths, strict=True):
            os.close(file)
            path.unlink()
    return sorted(times_us)
