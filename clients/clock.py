"""Real time, for the shells of the clients: the only file here that reads it.

Cores are told the time, in milliseconds of the monotonic clock.

Not here: waiting. The event loop does that.
"""

from __future__ import annotations

import time

# Nanoseconds of the time of day, without a call in between.
wall_ns = time.time_ns  # noqa: TID251 - this is the clock


def now_ms() -> float:
    """Return milliseconds of a clock that never goes back; only differences mean something."""
    return time.monotonic_ns() / 1e6  # noqa: TID251 - this is the clock


def wall_ms() -> int:
    """Return the time of day that records are stamped with. Nothing is measured by it."""
    return wall_ns() // 1_000_000
