"""Real time and real dice: the only file of a node that reads either.

Everything else is given a `Clock` or the id that it needs, so that a test can say what time it is
and a simulation can be played again.

Not here: timers. Who waits, waits on the event loop.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from uuid import UUID, uuid4


class Clock:
    """The time, in whole units. A test derives its own clock from this one."""

    __slots__ = ()

    def now_ms(self) -> int:
        """Return the wall clock: milliseconds since 1970, which may jump, also backwards."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds since some moment; never moves back. For deadlines."""
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        """Return microseconds since some moment; never moves back. For durations."""
        return time.monotonic_ns() // 1_000


class ShiftedClock(Clock):
    """A wall clock that is wrong by as much as one likes; durations are as they are."""

    __slots__ = ("reads", "shift_ms")

    def __init__(self) -> None:
        self.shift_ms = 0
        # How often it was read while it was wrong.
        self.reads = 0

    def now_ms(self) -> int:
        self.reads += bool(self.shift_ms)
        return super().now_ms() + self.shift_ms


def new_uuid() -> UUID:
    """Return the id of a new topic or directory; its text never begins with a dash."""
    while True:
        drawn = uuid4()
        # A command line would take an id that begins with a dash for an option.
        if not id_text(drawn).startswith("-"):
            return drawn


def new_id() -> str:
    """Return a new id as Kafka writes them: 22 characters that need no quoting anywhere."""
    return id_text(new_uuid())


def id_text(uuid: UUID) -> str:
    """Return an id as Kafka's tools print it."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()
