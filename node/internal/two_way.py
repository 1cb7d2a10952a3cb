"""What both ends of a replication stream share: saying what there is to say, when it is time.

A side (`Puller`, `Feeder`) calls `wake` whenever it may have something to say, which costs nearly
nothing. It is asked in the next turn of the event loop, so whatever happens in one turn is said
at once: the number of messages, not of bytes, is what a stream costs.

Not here: what is said (`ottla.replication`), and how a stream begins and ends
(`replication_service.py`, `replication_stream.py`).

V1  a side that called `wake` is asked, and so is one whose time has come, once each turn at most;
    and one that was called while it is asked, or hears, is asked again before that ends
V2  nothing is asked for while what was said before has not been taken by the other end
V3  when one of several works ends, none of the others is left behind
V4  the leader's end always reads, also while it writes: if both ends wrote and neither read, they
    would wait for one another for ever
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final


class Voice:
    """Says what one side has to say, on one stream. `run` once."""

    def __init__(
        self,
        next_frames: Callable[[], Sequence[bytes]],
        *,
        due_ms: Callable[[], int | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._next_frames: Final = next_frames
        self._due_ms: Final = due_ms
        self._now_ms: Final = now_ms
        self._woken: Final = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_saying = False
        self._is_hearing = False

    def wake(self) -> None:
        # Whoever is at it asks the side again before it ends.
        if not (self._is_saying or self._is_hearing):
            self._woken.set()

    def look(self) -> None:
        """Take note that the side's time may be another, though it has nothing to say yet.

        To wake a task only to hear that there is nothing yet costs more than the rest of a turn.
        """
        if not (self._is_saying or self._is_hearing or self._woken.is_set()):
            self._arm(self._due_ms())

    async def run(self, write: Callable[[bytes], Awaitable[object]]) -> None:
        """Write until cancelled, or until `write` raises."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self.say(write)
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def hear(self, take: Callable[[bytes], None], frame: bytes) -> None:
        """Let the side hear this, and wake nobody: `say` follows at once.

        For a side whose words are short: nothing else is heard before they are written (V4).
        """
        self._is_hearing = True
        try:
            take(frame)
        finally:
            self._is_hearing = False

    async def say(self, write: Callable[[bytes], Awaitable[object]]) -> None:
        """Write what there is to say now, unless somebody is at it, who asks again."""
        if self._is_saying:
            return
        self._is_saying = True
        try:
            while frames := self._next_frames():
                for frame in frames:
                    await write(frame)
        finally:
            self._is_saying = False
        self._arm(self._due_ms())

    def _arm(self, due_ms: int | None) -> None:
        """Be woken when the side's time has come.

        A timer that goes off too early stays: it costs a look, and a stream that is busy would set
        and cancel one for every message.
        """
        if due_ms is None or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        # A side that has nothing to say although its time has come must not keep the loop busy.
        wait_s = max(1, due_ms - self._now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._woken.set()


async def until_first_ends(*works: Coroutine[Any, Any, object]) -> None:
    """Do several things at once until one of them ends; raise what it raised."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        # To await them would take a cancellation of this task for one of theirs.
        await asyncio.wait(tasks)
    errors = [task.exception() for task in tasks if not task.cancelled()]
    for error in errors:
        if error is not None:
            raise error
