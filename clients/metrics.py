"""What a client counts and measures about itself: plain numbers, read with `.metrics()`.

Q1  a distribution keeps its newest `KEPT` values, so memory does not grow with time; count, sum and
    maximum are of all values ever
Q2  `snapshot` only reads

Not here: names that mean something. Each client gives its own; `<name>.p99` and the like are made
here.
"""

from __future__ import annotations

from typing import Final

KEPT: Final = 1024
_PERCENTILES: Final = ((50, "p50"), (90, "p90"), (99, "p99"))


class Distribution:
    """Values of one kind: the newest of them for percentiles, all of them for the rest."""

    __slots__ = ("_kept", "count", "maximum", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.maximum = 0.0
        self._kept: Final = list[float]()

    def add(self, value: float) -> None:
        if self.count < KEPT:
            self._kept.append(value)
        else:
            self._kept[self.count % KEPT] = value
        self.count += 1
        self.total += value
        self.maximum = max(self.maximum, value)

    def percentile(self, percent: float) -> float:
        """Return the value that so many per cent of the newest ones do not exceed; 0 if none."""
        if not self._kept:
            return 0.0
        ranked = sorted(self._kept)
        return ranked[min(len(ranked) - 1, int(len(ranked) * percent / 100))]


class Metrics:
    """Counters, gauges and distributions by name. A name that is new begins at zero."""

    def __init__(self) -> None:
        self._numbers: Final = dict[str, float]()
        self._distributions: Final = dict[str, Distribution]()

    def count(self, name: str, by: float = 1) -> None:
        self._numbers[name] = self._numbers.get(name, 0) + by

    def set(self, name: str, value: float) -> None:
        self._numbers[name] = value

    def observe(self, name: str, value: float) -> None:
        found = self._distributions.get(name)
        if found is None:
            found = self._distributions[name] = Distribution()
        found.add(value)

    def value(self, name: str) -> float:
        return self._numbers.get(name, 0)

    def snapshot(self) -> dict[str, float]:
        """Return all numbers; a distribution gives count, mean, max, p50, p90 and p99."""
        told = dict(self._numbers)
        for name, one in list(self._distributions.items()):
            told[f"{name}.count"] = one.count
            told[f"{name}.mean"] = one.total / one.count if one.count else 0.0
            told[f"{name}.max"] = one.maximum
            for percent, word in _PERCENTILES:
                told[f"{name}.{word}"] = one.percentile(percent)
        return dict(sorted(told.items()))
