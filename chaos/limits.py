"""What a single scenario must hold beside the rows that all are judged by: a table of limits.

None means that nothing is asked. What exactly each is about stands in `checkers/limits.py`, which
judges them, and which of them the specification gives stands at the scenario.

Not here: judging.

Z1  a limit that is not known is refused: a misspelt one never means that nothing is asked
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioLimits:
    """What a run of one scenario may cost at most."""

    # Writes that ask for an acknowledgement: surely refused, and of unknown outcome.
    refused_max: int | None = None
    unknown_max: int | None = None
    # Of all such writes, so many may be of unknown outcome; 0.02 is two in a hundred.
    unknown_share_max: float | None = None
    # The longest time without an acknowledged write, in any partition, on account of any fault.
    outage_max_s: float | None = None
    # The sizes of the in-sync set of every partition with a copy on a node that is struck, in turn.
    isr_sizes: tuple[int, ...] | None = None
    # Who hangs for less than this stays in sync; who hangs for much longer is out after 1.5 of it.
    isr_lag_s: float | None = None
    # In-sync sets of one partition lose a member less often than so many times in 10 s.
    isr_losses_per_10s: float | None = None
    # From the first fault until all is mended: changes of in-sync sets, and nodes that are fenced.
    isr_changes_max: int | None = None
    fenced_max: int | None = None
    # Terms of the quorum are fewer than so many a minute, in the same time.
    elections_per_min: float | None = None
    # Of any node, at any moment.
    memory_max_mb: int | None = None
    # Nodes that ended by themselves.
    ended_max: int | None = None

    @property
    def names(self) -> list[str]:
        """Return what is asked for."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]


_LISTS: Final = ("isr_sizes",)
_WHOLE: Final = ("refused_max", "unknown_max", "isr_changes_max", "fenced_max", "ended_max")


def limits_from(told: Mapping[str, Any]) -> ScenarioLimits:
    """Return the limits of a table in which `problems_of` found nothing."""
    known = {one.name for one in fields(ScenarioLimits)}
    values = {name: value for name, value in told.items() if name in known}
    lists = {name: tuple(values[name]) for name in _LISTS if values.get(name) is not None}
    return ScenarioLimits(**{**values, **lists})


def problems_of(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield every mistake of such a table in a sentence."""
    known = [one.name for one in fields(ScenarioLimits)]
    for name, value in told.items():
        if name not in known:
            yield f"there is no limit {name!r}; there are {', '.join(known)}."
        elif name in _LISTS:
            if not isinstance(value, list) or not value or not all(map(_is_whole, value)):
                yield f"{name} is a list of whole numbers, not {value!r}."
        elif isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            yield f"{name} is a number that is not below 0, not {value!r}."
        elif name in _WHOLE and not _is_whole(value):
            yield f"{name} is a whole number, not {value!r}."


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
