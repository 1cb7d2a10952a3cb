"""Ottla as a multiple of Kafka, workload by workload: what the plot of ratios shows.

Not here: how it is drawn (`plots.py`), the table (`render.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.peers.table import VARIANTS
from bench.versus.cells import number
from bench.versus.figures import ratio_of
from bench.versus.results import Results, fell_behind
from bench.versus.workloads import WORKLOADS, baseline_of

_TIMES_MAX: Final = 100.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure of ours as a multiple of Kafka's: above 1 it is the better one."""

    name: str
    variant: str
    times: float

    @property
    def text(self) -> str:
        return f"{number(self.times)} ×"

    @property
    def end(self) -> float:
        """Return where it ends: beyond that its length says nothing, and its text says it."""
        return min(max(self.times, 1 / _TIMES_MAX), _TIMES_MAX)


def bars(results: Results) -> list[Bar]:
    """Return what the table has a ratio for: none where one of both did not keep up."""
    found = list[Bar]()
    for row in WORKLOADS.values():
        for variant in ("ottla-pagecache", "ottla-fsync"):
            if variant not in row.variants or not row.is_compared:
                continue
            baseline = baseline_of(row, variant)
            if fell_behind(results, row.name, variant, baseline):
                continue
            ours = results.values(row.name, variant, row.figure)
            ratio = ratio_of(ours, results.values(row.name, baseline, row.figure))
            if ratio is not None and ratio.median > 0:
                better = ratio.median if row.better == "more" else 1 / ratio.median
                name = f"{row.title} ({VARIANTS[variant].durability})"
                found.append(Bar(name, variant, better))
    return found
