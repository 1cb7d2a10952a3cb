"""Medians, spreads and ratios of what rounds gave.

S1  a figure is the median of its rounds; its spread is the least and the most of them
S2  a ratio is the median of the ratios *within* a round: who was slowed in a round was slowed with
    the other

Not here: where the figures come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


@dataclass(frozen=True, slots=True)
class Summary:
    """Some rounds of one figure."""

    median: float
    least: float
    most: float
    rounds: int

    @property
    def spread(self) -> float:
        """Return how far apart the rounds were, as a part of the median."""
        return (self.most - self.least) / self.median if self.median else 0.0


def summary_of(values: Sequence[float]) -> Summary | None:
    if not values:
        return None
    return Summary(median(values), min(values), max(values), len(values))


def ratio_of(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Summary | None:
    """Return our figure as a multiple of theirs, over the rounds that both have (S2)."""
    both = [ours[at] / theirs[at] for at in sorted(ours) if theirs.get(at)]
    return summary_of(both)


def at_share(values: Sequence[float], share: float) -> float:
    """Return the least of sorted values that is not exceeded by that share of them."""
    place = max(0, -int(-share * len(values) // 1) - 1)
    return values[min(place, len(values) - 1)]


def is_saturated(planned_s: float, took_s: float) -> bool:
    """Return whether a system fell behind: it was not done when the last record had been due."""
    return took_s > planned_s * 1.05 + 0.5


def agree(one: Summary, other: Summary) -> bool:
    """Return whether two runs agree: each median lies in the other's spread, or 10 % beside it."""
    slack = 0.1
    return one.least * (1 - slack) <= other.median <= one.most * (1 + slack) or other.least * (
        1 - slack
    ) <= one.median <= other.most * (1 + slack)


def longest_gap(times: Sequence[float], since: float) -> float:
    """Return the longest time between two neighbours of sorted times that ends after `since`."""
    pairs = pairwise(times)
    return max((later - earlier for earlier, later in pairs if later > since), default=0.0)
