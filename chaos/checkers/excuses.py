"""Collects what a run took above its limits, and what a starved machine excuses of that.

    it took longer than it may, and the machine was not starved        broken
    … it was starved, and it took no longer than `LOOSENED` times that   counted
    … it was starved, and it took longer still                          in doubt
    something happened more often than it may, not starved              broken
    … it was starved                                                    in doubt

A run with a limit in doubt is inconclusive: neither green, nor red by accident.

Not here: the limits (`limits.py`, `in_sync.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.chaos.checkers.findings import Findings
from ottla.chaos.checkers.starving import Starving

# A starved machine may take so many times as long.
LOOSENED: Final = 3.0
_STARVED: Final = "while others had the processors"


@dataclass(slots=True)
class Excuses:
    """What was found, sorted."""

    starving: Starving
    broken: Findings = field(default_factory=Findings)
    counted: Findings = field(default_factory=Findings)
    # In sentences: what can be said neither to be held nor to be broken.
    doubts: list[str] = field(default_factory=list)
    # What was measured of what is asked for.
    said: list[str] = field(default_factory=list)

    def too_often(self, sentence: str, begin_ns: int, end_ns: int, *events: int) -> None:
        """Something happened in this time that must not have happened so often."""
        if self.starving.during(begin_ns, end_ns):
            self.doubts.append(f"{sentence}, {_STARVED}")
        else:
            self.broken.add(sentence, *events)

    def took(self, what: str, took_s: float, limit_s: float, *, begin_ns: int, end_ns: int) -> None:
        """Something took so long, in this time, and may take no longer than its limit."""
        if took_s <= limit_s:
            return
        sentence = f"{what} {took_s:.2f} s, not {limit_s:g} s"
        if not self.starving.during(begin_ns, end_ns):
            self.broken.add(sentence)
        elif took_s <= limit_s * LOOSENED:
            self.counted.add(f"{sentence}, {_STARVED}")
        else:
            self.doubts.append(f"{sentence}, {_STARVED}")

    def unjudged(self, name: str, why: str) -> None:
        self.doubts.append(f"{name} could not be judged: {why}")
