"""When the nodes of a run did not get the processors they needed, because others had them.

A second is *starved* if no processor was idle and the work of others took a quarter of them at
least; or if the harness itself woke up half a second late. What a system under test does to itself,
or to the machine, starves nobody: its own work is not that of others.

A moment is starved if that holds for any second from `BEFORE_S` before it until a second after it:
who was left without a processor falls behind, and what comes of that is seen later.

Not here: who looked (`load.py`), what it excuses (`limits.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.chaos.evidence import Load

IDLE_MAX: Final = 0.05
OTHERS_MIN: Final = 0.25
LATE_S: Final = 0.5
BEFORE_S: Final = 4.0
_AFTER_NS: Final = 1_000_000_000


class Starving:
    """Looks up whether the machine was starved."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._spans: Final = [(one.begin_ns, one.end_ns) for one in loads if is_starved(one)]
        self.share: Final = len(self._spans) / len(loads) if loads else 0.0

    def during(self, begin_ns: int, end_ns: int) -> bool:
        first, last = begin_ns - int(BEFORE_S * 1e9), end_ns + _AFTER_NS
        return any(begin <= last and end >= first for begin, end in self._spans)


def is_starved(load: Load) -> bool:
    is_taken = load.idle < IDLE_MAX and load.others >= OTHERS_MIN
    return is_taken or load.late_s >= LATE_S
