"""On what a run ran: the machine and the versions of what took part, for its report.

Not here: the system under test, which its backend names.
"""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Final

import confluent_kafka

_GIB: Final = 1 << 30


def machine_facts() -> dict[str, str]:
    """Return what people ask first when a run cannot be repeated."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{pages / _GIB:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "harness": f"ottla {metadata.version('ottla')}",
        "librdkafka": str(confluent_kafka.libversion()[0]),
    }


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.machine()
