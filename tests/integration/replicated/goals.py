"""How long a writer may be without an acknowledged write, by what had happened.

These hold for whole runs of the long tests, on a machine that has time for them. The p99 of at most
a hundred samples is the most of them (`figures.percentile`): no stroke of a run may take longer.

Not here: the measuring (`stage.py`), the tables of what was measured (`figures.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.proto.options.node import BROKER_SESSION_TIMEOUT_MS
from tests.integration.replicated.figures import Figures

# No test here sets it otherwise where it measures.
SESSION_S: Final = BROKER_SESSION_TIMEOUT_MS.default / 1000
ACTIVE: Final = ", active controller"


@dataclass(frozen=True, slots=True)
class Goal:
    """Each must be below; None: nothing is asked of it."""

    p99_s: float
    p50_s: float | None = None


DEAD: Final = Goal(1.0, p50_s=0.4)
# Another controller is elected first.
DEAD_ACTIVE: Final = Goal(1.5)
SILENT: Final = Goal(SESSION_S + 1)
FAREWELL: Final = Goal(0.2)
# By kind of stroke; the same for leaders of one partition and of a thousand.
GOALS: Final = {
    "killed": DEAD,
    f"killed{ACTIVE}": DEAD_ACTIVE,
    "power cut": DEAD,
    f"power cut{ACTIVE}": DEAD_ACTIVE,
    "silent": SILENT,
    f"silent{ACTIVE}": SILENT,
    "SIGTERM": FAREWELL,
    f"SIGTERM{ACTIVE}": FAREWELL,
}


def kind_of(fault: str, *, is_active: bool) -> str:
    """Return the kind of stroke, as goals and figures name it."""
    return f"{fault}{ACTIVE}" if is_active else fault


def missed(figures: Figures) -> list[str]:
    """Return which goals were not reached, in sentences."""
    problems = list[str]()
    for row in figures.rows():
        goal = GOALS[row["kind"]]
        for name, most_s in (("p50_s", goal.p50_s), ("p99_s", goal.p99_s)):
            if most_s is not None and row[name] >= most_s:
                problems.append(
                    f"{figures.title}, {row['kind']}: {name} is {row[name]}, not below {most_s}; "
                    f"in order {row['in_order_s']}"
                )
    return problems
