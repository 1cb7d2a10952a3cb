"""When the time of waiting requests is up: many of them share one timer.

Nearly every request that waits is answered long before its time is up, and a timer of its own for
each would be most of what its waiting costs. So a request that may wait for long is put into a
round, and a round has one timer: its time is up a little later than it asked for, and never before.

Not here: what a request does then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

# How much later at most than asked for; requests that wait for less than many rounds have a timer.
ROUND_MS: Final = 100
_SHORT_MS: Final = 10 * ROUND_MS


class Patient(Protocol):
    """Waits, but not for ever."""

    def time_is_up(self) -> None: ...


class Deadlines:
    """The rounds of one broker. Belongs to one event loop."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._rounds: Final[dict[int, dict[Patient, None]]] = {}

    def add(self, patient: Patient, wait_ms: int) -> Callable[[], object]:
        """Tell `patient` when so much time has gone by; return what calls that off."""
        if wait_ms < _SHORT_MS:
            loop = asyncio.get_running_loop()
            return loop.call_later(max(0, wait_ms) / 1000, patient.time_is_up).cancel
        number = (self._now_ms() + wait_ms) // ROUND_MS + 1
        members = self._rounds.get(number)
        if members is None:
            members = self._rounds[number] = {}
            wait_s = (number * ROUND_MS - self._now_ms()) / 1000
            asyncio.get_running_loop().call_later(wait_s, self._on_time, number)
        members[patient] = None
        return lambda: members.pop(patient, None)

    def _on_time(self, number: int) -> None:
        for patient in tuple(self._rounds.pop(number)):
            patient.time_is_up()
