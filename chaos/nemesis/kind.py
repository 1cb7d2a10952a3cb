"""A kind of fault: its name, what it does in a sentence, what it takes, and how it is done.

A fault is a generator with one `yield`: before it things are broken, after it they are mended.

Not here: the kinds (the modules beside this one; `table.py` has them all).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ottla.chaos.nemesis.plan import Step
from ottla.chaos.nemesis.scene import Scene
from ottla.chaos.ports import Means

Act = Callable[[Scene, tuple[int, ...], Step], Iterator[None]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One row of the table of faults."""

    name: str
    sentence: str
    means: frozenset[Means]
    act: Act
    # What a step may say beside whom and how long, and what it is if it is not said.
    facts: tuple[tuple[str, object], ...] = ()
    # It tells its parts itself; whom it hits is its own business.
    is_script: bool = False
    # It takes a copy away for good: only from a cluster that has all the others.
    needs_whole: bool = False

    def fact_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.facts)
