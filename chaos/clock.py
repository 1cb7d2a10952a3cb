"""Real time, for the shells of the harness: the only file here that reads it, or waits for it.

All times of a run are nanoseconds of the monotonic clock, which all processes of one machine share:
the history, the faults and the trace of the nodes can be laid side by side.

Not here: what is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from ottla.proto.errors import OttlaError

POLL_S: Final = 0.02


class NeverHappenedError(OttlaError):
    """What was waited for did not come by its deadline."""


def now_ns() -> int:
    return time.monotonic_ns()  # noqa: TID251 - this is the clock


def now_s() -> float:
    return now_ns() / 1e9


def wall_ms() -> int:
    """Return the time of day that records are stamped with. Nothing is measured by it."""
    return time.time_ns() // 1_000_000  # noqa: TID251 - this is the clock


def let_pass(seconds: float) -> None:
    """Do nothing for so long. For faults, which last; never for something to have happened."""
    time.sleep(max(0.0, seconds))  # noqa: TID251 - a fault lasts in real time


def wait_until(
    holds: Callable[[], bool], deadline_s: float, what: str, *, poll_s: float = POLL_S
) -> float:
    """Return after how many seconds it held, or raise `NeverHappenedError` with `what`."""
    began_s = now_s()
    while not holds():
        if now_s() - began_s > deadline_s:
            raise NeverHappenedError(f"it did not come within {deadline_s:g} s that {what}")
        let_pass(poll_s)
    return now_s() - began_s
