"""Keeps a client to its pace: so many things in a second, and none made up for later.

A client that was held up does not hurry afterwards: a burst behind an outage would hide how long
the outage was, and two cores are shared with the nodes.

Not here: what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_NAP_S: Final = 0.1


class Pace:
    """When the next thing is due; for one client of one event loop."""

    def __init__(self, per_s: float, *, first_after_s: float = 0.0) -> None:
        self._every_s: Final = 1.0 / per_s
        self._next_s = asyncio.get_running_loop().time() + first_after_s

    async def due(self) -> None:
        """Return when the next thing is due."""
        now_s = asyncio.get_running_loop().time()
        if self._next_s > now_s:
            await asyncio.sleep(self._next_s - now_s)
        self._next_s = max(self._next_s, now_s) + self._every_s


async def nothing_for(seconds: float, is_over: Callable[[], bool]) -> None:
    """Do nothing for so long, or until it is over."""
    naps = int(seconds / _NAP_S)
    for _ in range(naps):
        if is_over():
            return
        await asyncio.sleep(_NAP_S)
