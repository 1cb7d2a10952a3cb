"""Takes turns and takes the median, so that a busy neighbour does not decide the result.

    warm-up     one whole turn of every case, thrown away
    round 1     a b c
    round 2     c b a      backwards, so that nobody always comes after the same one
    …

B1  cases that are compared run in the same rounds, a few milliseconds apart
B2  a figure is the median of its rounds; a ratio is the median of the ratios *within* a round
B3  what a case prepares and tidies up is not in its time

Not here: what is measured.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

# What the log must reach of the limit beside it (issue 3).
SHARE_MIN: Final = 0.70
_TOUCH_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Case:
    """Something that can be done again and again. `run` returns the seconds that one turn took."""

    name: str
    # What one operation moves; 0 if bytes are not the point.
    op_bytes: int
    ops_per_turn: int
    run: Callable[[], float]
    # Seconds per operation, one entry per round.
    rounds: list[float] = field(default_factory=list)

    @property
    def median_us(self) -> float:
        return median(self.rounds) * 1e6

    @property
    def best_us(self) -> float:
        return min(self.rounds) * 1e6

    @property
    def megabytes_per_s(self) -> float:
        """Millions of bytes, as disks and networks are sold."""
        return self.op_bytes / self.median_us

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "op_bytes": self.op_bytes,
            "median_us": round(self.median_us, 3),
            "best_us": round(self.best_us, 3),
            "mb_per_s": round(self.megabytes_per_s, 1) if self.op_bytes else None,
            "rounds": len(self.rounds),
        }


def take_turns(cases: Sequence[Case], round_count: int) -> None:
    """Run all cases, interleaved, and leave the seconds per operation in each (B1)."""
    for case in cases:
        case.run()
    for number in range(round_count):
        for case in cases if number % 2 == 0 else reversed(cases):
            case.rounds.append(case.run() / case.ops_per_turn)


def share(limit: Case, measured: Case) -> float:
    """Return what part of the limit was reached, round by round (B2)."""
    pairs = zip(limit.rounds, measured.rounds, strict=True)
    return median(theirs / ours for theirs, ours in pairs)


def best_share(limit: Case, measured: Case) -> float:
    """Return the same of the best rounds: what is left when the neighbours are quiet."""
    return limit.best_us / measured.best_us


def verdict(reached: float) -> str:
    return "PASS" if reached >= SHARE_MIN else f"short of {SHARE_MIN:.0%}"


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a heading, the first column left, the others right."""
    widths = [max(len(row[column]) for row in [heading, *rows]) for column in range(len(heading))]
    lines = []
    for row in [heading, ["-" * width for width in widths], *rows]:
        first = row[0].ljust(widths[0])
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def size_name(size: int) -> str:
    if size >= 1 << 20 and size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    return f"{size >> 10} KiB" if size >= 1024 else f"{size} B"


def say(line: str) -> None:
    """Tell a waiting person something that is no result."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def workspace(parent: str | None, *, free_bytes_min: int) -> Iterator[str]:
    """Give a new directory, and remove it with all that is in it.

    Beside the repository's other throw-away files unless `parent` or TMPDIR says otherwise: /tmp is
    often memory, and then fdatasync costs nothing.
    """
    if parent is None:
        parent = os.environ.get("TMPDIR") or str(Path(__file__).resolve().parents[1] / "target")
    Path(parent).mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < free_bytes_min:
        raise SystemExit(
            f"{parent} has {free / 1e9:.1f} GB free, and {free_bytes_min / 1e9:.1f} GB are needed."
        )
    directory = tempfile.mkdtemp(prefix="bench-", dir=parent)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def warm_memory(directory: str, size_bytes: int) -> None:
    """Have the page cache touch memory that it will use again.

    On a virtual machine memory that was never touched is ten times dearer, once.
    """
    path = f"{directory}/warm-up"
    piece = bytes(_TOUCH_BYTES)
    with open(path, "wb", buffering=0) as file:
        for _ in range(size_bytes // _TOUCH_BYTES):
            file.write(piece)
    os.unlink(path)
