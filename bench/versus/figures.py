"""Medians, spreads and ratios of what rounds gave.

S1  a figure is the median of its rounds; its spread is the least and the most of them
S2  a ratio is the median of the ratios *within* a round: who was slowed in a round was slowed with
    the other
S3  two runs agree on a figure if the median of one of them lies in the spread of the other, ends
    included. Of two runs that differ by chance alone, 95 of 100 figures with five rounds do, and 80
    with three

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


def allowed_s(planned_s: float) -> float:
    """Return when the last record of a system that keeps up is acknowledged."""
    return planned_s * 1.05 + 0.5


def is_saturated(planned_s: float, took_s: float) -> bool:
    """Return whether a system fell behind: it was not done when the last record had been due."""
    return took_s > allowed_s(planned_s)


def agree(one: Summary, other: Summary, slack: float = 0.0) -> bool:
    """Return whether two runs agree: a median lies in the spread of the other run (S3).

    With slack, a spread reaches that much further at both ends, as a part of what is there.
    """
    return _holds(one, other.median, slack) or _holds(other, one.median, slack)


def _holds(spread: Summary, value: float, slack: float) -> bool:
    return spread.least * (1 - slack) <= value <= spread.most * (1 + slack)


def longest_gap(times: Sequence[float], since: float) -> float:
    """Return the longest time between two neighbours of sorted times that ends after `since`."""
    pairs = pairwise(times)
    return max((later - earlier for earlier, later in pairs if later > since), default=0.0)
