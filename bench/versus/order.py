"""In which order turns are taken, and which are left to take.

    round 1    row a: ottla kafka    row b: ottla kafka    …
    round 2    row a: kafka ottla    row b: kafka ottla    …     backwards, so that nobody always
    …                                                            comes after the same one

O1  all variants of a row are measured a few seconds apart, round by round
O2  rows that share clusters come before those that need the machine for one cluster

Not here: taking them (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.versus.workloads import Workload


@dataclass(frozen=True, slots=True)
class Turn:
    """One variant at one workload in one round."""

    row: Workload
    variant: str
    # Counted from 1.
    number: int

    def __str__(self) -> str:
        return f"{self.row.name} {self.variant} round {self.number}"


def turns_of(
    rows: Sequence[Workload],
    rounds: int,
    is_wanted: Callable[[str], bool],
    is_done: Callable[[Turn], bool],
) -> list[Turn]:
    """Return the turns that are left, in their order."""
    found = list[Turn]()
    for is_alone in (False, True):
        for number in range(1, rounds + 1):
            for row in rows:
                if row.is_alone is not is_alone or number > row.rounds_max:
                    continue
                variants = [one for one in row.variants if is_wanted(one)]
                ordered = variants if number % 2 else list(reversed(variants))
                found += [Turn(row, variant, number) for variant in ordered]
    return [turn for turn in found if not is_done(turn)]
