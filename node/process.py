"""What the process can tell about itself: memory, time, descriptors, disk, garbage, lateness.

The names are those that Prometheus's own clients use, so that common dashboards know them. What
the operating system does not tell (there may be no `/proc`) is left out.

Not here: how the values become text.
"""

from __future__ import annotations

import asyncio
import gc
import os
import platform
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.node import metric_table as table
from ottla.node.logs import lines_lost
from ottla.node.metrics import Histogram, Reading

LOOP_DELAY_PERIOD_S: Final = 0.25
_PROC: Final = Path("/proc")
# Fields of /proc/self/stat, counted from the one after the program's name.
_USER_TICKS: Final = 11
_SYSTEM_TICKS: Final = 12
_START_TICKS: Final = 19
_VIRTUAL_BYTES: Final = 20
_RESIDENT_PAGES: Final = 21


def process_readings() -> Iterator[Reading]:
    """Yield the metrics of this process, for `Metrics.watch`."""
    yield Reading(
        table.PYTHON_INFO, 1, (platform.python_implementation(), platform.python_version())
    )
    for number, stats in enumerate(gc.get_stats()):
        generation = (str(number),)
        yield Reading(table.GC_COLLECTED, stats["collected"], generation)
        yield Reading(table.GC_UNCOLLECTABLE, stats["uncollectable"], generation)
        yield Reading(table.GC_RUNS, stats["collections"], generation)
    yield Reading(table.LINES_LOST, lines_lost())
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY:
        yield Reading(table.MAX_FDS, limit)
    yield from _proc_readings()


def _proc_readings() -> Iterator[Reading]:
    try:
        # The name of the program may hold blanks and brackets: what counts begins after the last.
        fields = (_PROC / "self" / "stat").read_text().rpartition(")")[2].split()
        boot_s = _boot_time_s((_PROC / "stat").read_text())
        open_fds = len(os.listdir(_PROC / "self" / "fd"))  # noqa: PTH208  (only counted)
    except OSError:
        return
    ticks = os.sysconf("SC_CLK_TCK")
    cpu_s = (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / ticks
    yield Reading(table.CPU_SECONDS, cpu_s)
    yield Reading(table.STARTED, boot_s + int(fields[_START_TICKS]) / ticks)
    yield Reading(table.VIRTUAL_BYTES, int(fields[_VIRTUAL_BYTES]))
    yield Reading(table.RESIDENT_BYTES, int(fields[_RESIDENT_PAGES]) * os.sysconf("SC_PAGE_SIZE"))
    yield Reading(table.OPEN_FDS, open_fds)


def disk_readings(path: str) -> Iterator[Reading]:
    """Yield how much room there is where a directory is, for a process that is not root."""
    try:
        told = os.statvfs(path)
    except OSError:
        return
    yield Reading(table.DISK_FREE, told.f_bavail * told.f_frsize)
    # What is kept back for root is neither free nor taken.
    usable = told.f_blocks - told.f_bfree + told.f_bavail
    yield Reading(table.DISK_SIZE, usable * told.f_frsize)


def _boot_time_s(stat: str) -> int:
    return next((int(line.split()[1]) for line in stat.splitlines() if line[:5] == "btime"), 0)


async def measure_loop_delay(delay: Histogram, period_s: float = LOOP_DELAY_PERIOD_S) -> None:
    """Observe, until cancelled, how late the event loop comes to a timer."""
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + period_s
        await asyncio.sleep(period_s)
        delay.observe(max(0.0, loop.time() - due_s))
