"""In which order turns are taken, and which are left to take.

    round 1    row a: ottla kafka    row b: ottla kafka    …
    round 2    row a: kafka ottla    row b: kafka ottla    …     backwards, so that nobody always
    …                                                            comes after the same one

    round 0, -1, …                   as many uncounted rounds before, if any are wanted

O1  all variants of a row are measured a few seconds apart, round by round
O2  rows that share clusters come before those that need the machine for one cluster
O3  a row that follows another is taken right after it, on its cluster; rounds of a row that lasts
    are taken one after another, on one cluster, after all others
O4  whatever goes as fast as it can is taken before it counts: a JVM gets faster for many gigabytes,
    and on each way that bytes take. Taken anew with each new cluster, of what is left

Not here: taking them (`run.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.versus.workloads import Workload


@dataclass(frozen=True, slots=True)
class Turn:
    """One variant at one workload in one round."""

    row: Workload
    variant: str
    # From 1; one that is not counted has 0 or less.
    number: int

    @property
    def is_counted(self) -> bool:
        return self.number > 0

    @property
    def life(self) -> str:
        """Return what turns of one variant have in common that are taken on one cluster."""
        if self.row.is_lasting:
            return self.row.name
        return f"{self.row.follows or self.row.name} {self.number}"

    def __str__(self) -> str:
        which = f"round {self.number}" if self.is_counted else "before it counts"
        return f"{self.row.name} {self.variant} {which}"


def turns_of(
    rows: Sequence[Workload],
    rounds: int,
    is_wanted: Callable[[str], bool],
    is_done: Callable[[Turn], bool],
    uncounted: int = 0,
) -> list[Turn]:
    """Return the turns that are left, in their order."""
    shared = [row for row in rows if not row.is_alone]
    alone = [row for row in rows if row.is_alone and not row.is_lasting]
    found = [
        turn
        for part in (shared, alone)
        for number in range(1, rounds + 1)
        for turn in _round(part, number, is_wanted)
    ]
    for row in (row for row in rows if row.is_lasting):
        numbers = range(1, min(rounds, row.rounds_max) + 1)
        found += [Turn(row, one, at) for one in row.variants if is_wanted(one) for at in numbers]
    left = [turn for turn in found if not is_done(turn)]
    fast = [row for row in rows if row.is_fast and row in {turn.row for turn in left}]
    numbers = range(1 - uncounted, 1)
    return [turn for at in numbers for turn in _round(fast, at, is_wanted)] + left


def _round(
    rows: Sequence[Workload], number: int, is_wanted: Callable[[str], bool]
) -> Iterator[Turn]:
    taken = [row for row in rows if number <= row.rounds_max]
    for row in taken:
        if row.follows in {one.name for one in taken}:
            continue
        followers = [one for one in taken if one.follows == row.name]
        # Those that only a follower has come last.
        named = dict.fromkeys(name for one in (row, *followers) for name in one.variants)
        variants = [name for name in named if is_wanted(name)]
        for variant in variants if number % 2 else reversed(variants):
            for one in (row, *followers):
                if variant in one.variants:
                    yield Turn(one, variant, number)
