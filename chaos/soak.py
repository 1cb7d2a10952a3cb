"""Hours of random faults, in rounds: how long each is, what nodes may use, and what is kept.

A history is judged as a whole, in memory, so hours are cut into rounds, each a run of its own: a
new cluster, a new seed, a verdict. That bounds what the harness itself needs.

Not here: a run (`conductor.py`), its verdict (`checkers/`), the command (`cli.py`).

K1  rounds together last as long as was asked for; only a single one is shorter than half a minute
K2  of a round that passed only what tells of it stays; of any other, everything
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.chaos.evidence import Uses
from ottla.chaos.run_folder import RunFolder

_LEAST_S: Final = 30.0
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one node may use at any moment."""

    rss_mb: int
    open_files: int
    disk_mb: int


LIMITS: Final = Limits(rss_mb=400, open_files=2_000, disk_mb=4_000)


def rounds_of(whole_s: float, round_s: float) -> Iterator[float]:
    """Yield the seconds of each round (K1)."""
    left_s = whole_s
    while left_s > 0:
        is_last = left_s < round_s + _LEAST_S
        yield left_s if is_last else round_s
        left_s = 0 if is_last else left_s - round_s


def too_much(uses: Sequence[Uses], limits: Limits) -> list[str]:
    """Return in words who used more than it may, each node and thing once.

    If nobody looked, that is too much to believe.
    """
    if not uses:
        return ["nobody has looked at what nodes use"]
    found = dict[tuple[int, str], str]()
    for one in uses:
        for what, used, most in (
            ("MB of memory", one.rss_bytes // _MB, limits.rss_mb),
            ("open files", one.open_files, limits.open_files),
            ("MB on disk", one.disk_bytes // _MB, limits.disk_mb),
        ):
            if used > most:
                found.setdefault((one.node, what), f"node {one.node}: {used} {what}, not {most}")
    return list(found.values())


def forget_all_but_report(folder: RunFolder) -> None:
    """Remove the evidence of a round that passed (K2)."""
    kept = {folder.report_path, folder.verdict_path, folder.junit_path, folder.path / "run.json"}
    for path in folder.path.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path not in kept:
            path.unlink()
