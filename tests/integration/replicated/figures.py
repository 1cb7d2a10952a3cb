"""How long a writer was not served, by what had happened: a table for people, JSON for programs.

`OTTLA_FIGURES` names a file that gets one line of JSON for each table.

Not here: the measuring.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

FIGURES: Final = "OTTLA_FIGURES"


@dataclass(frozen=True, slots=True)
class Sample:
    """One fault."""

    kind: str
    # The longest time between two acknowledged writes, from the fault until writes went on.
    outage_s: float
    # The same from then on until the node was back among the others.
    return_s: float = 0.0


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that so many of all are not above: of few, the largest."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@dataclass(slots=True)
class Figures:
    """The samples of one run."""

    title: str
    samples: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        self.samples.append(sample)

    def rows(self) -> list[dict[str, Any]]:
        kinds = sorted({sample.kind for sample in self.samples})
        return [self._row(kind) for kind in kinds]

    def _row(self, kind: str) -> dict[str, Any]:
        mine = [sample for sample in self.samples if sample.kind == kind]
        outages = [sample.outage_s for sample in mine]
        return {
            "kind": kind,
            "count": len(mine),
            "p50_s": round(median(outages), 3),
            "p99_s": round(percentile(outages, 0.99), 3),
            "max_s": round(max(outages), 3),
            "return_p50_s": round(median(sample.return_s for sample in mine), 3),
            "return_max_s": round(max(sample.return_s for sample in mine), 3),
            "in_order_s": [round(one, 3) for one in outages],
        }

    def tell(self, **more: Any) -> None:
        """Print the table, and add it to the file that the environment names."""
        lines = [
            f"{row['kind']:<28} {row['count']:>5} {row['p50_s']:>8.3f} {row['p99_s']:>8.3f} "
            f"{row['max_s']:>8.3f} {row['return_p50_s']:>10.3f} {row['return_max_s']:>10.3f}"
            for row in self.rows()
        ]
        head = (
            f"{self.title}: seconds without an acknowledged write\n{'':<28} "
            f"{'count':>5} {'p50':>8} {'p99':>8} {'max':>8} {'return p50':>10} {'return max':>10}"
        )
        print("\n".join([head, *lines]))
        target = os.environ.get(FIGURES)
        if target:
            told = {"title": self.title, "load": os.getloadavg(), "rows": self.rows(), **more}
            with Path(target).open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")
