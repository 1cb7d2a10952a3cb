"""Names the machine that a figure was measured on, in one line.

A figure without its machine is a rumour. Every script here prints this line first.
Not here: measuring anything (`limit.py`).
"""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a figure depends on."""

    cpu: str
    cores: int
    memory_gb: float
    kernel: str
    # Of the directory that is written to, with the device it stands on.
    filesystem: str
    python: str
    # What else was running when the script began: figures of a busy machine say less.
    load: float

    def line(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gb:.1f} GB, Linux {self.kernel}, "
            f"{self.filesystem}, Python {self.python}, load {self.load:.1f}"
        )

    def facts(self) -> dict[str, object]:
        return asdict(self)


def machine_of(directory: str) -> Machine:
    """Return this machine, as seen by somebody who writes to `directory`."""
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name"),
        cores=os.cpu_count() or 0,
        memory_gb=_memory_gb(),
        kernel=platform.release(),
        filesystem=_filesystem_of(directory),
        python=platform.python_version(),
        load=os.getloadavg()[0],
    )


def _field(path: str, name: str) -> str:
    for line in _lines(path):
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return _UNKNOWN


def _memory_gb() -> float:
    kilobytes = _field("/proc/meminfo", "MemTotal").partition(" ")[0]
    return int(kilobytes) / 1e6 if kilobytes.isdigit() else 0.0


def _filesystem_of(directory: str) -> str:
    """Return type and source of the mount with the longest path above `directory`."""
    target = str(Path(directory).resolve())
    best, answer = "", _UNKNOWN
    for line in _lines("/proc/self/mounts"):
        source, point, kind = line.split(" ")[:3]
        is_above = target == point or target.startswith(point.rstrip("/") + "/")
        if is_above and len(point) >= len(best):
            best, answer = point, f"{kind} on {source}"
    return answer


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


if __name__ == "__main__":
    print(machine_of(".").line())
