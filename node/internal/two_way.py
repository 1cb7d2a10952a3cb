"""What both ends of a replication stream share: saying what there is to say, when it is time.

A side (`Puller`, `Feeder`) calls `wake` whenever it may have something to say, which costs nearly
nothing. It is asked in the next turn of the event loop, so whatever happens in one turn is said
at once: the number of messages, not of bytes, is what a stream costs.

Not here: what is said (`ottla.replication`), how bytes travel (`cable.py`), and how a stream begins
and ends (`replication_service.py`, `replication_stream.py`).

V1  a side that called `wake` is asked, and so is one whose time has come, once each turn at most;
    and one that was called while it is asked, or hears, is asked again before that ends
V2  nothing is asked for while what was said before has not been taken by the other end
V3  after `stop` nobody is asked, and no timer is left
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ottla.node.internal.cable import Buffer


class Mouth(Protocol):
    """What a voice needs of a `Cable`."""

    @property
    def is_busy(self) -> bool: ...

    def send(self, pieces: Sequence[Buffer]) -> None: ...


class Voice:
    """Says what one side has to say, on one cable. `stop` at the end."""

    def __init__(
        self,
        cable: Mouth,
        next_frames: Callable[[], Sequence[Sequence[Buffer]]],
        *,
        due_ms: Callable[[], int | None],
        now_ms: Callable[[], int],
        on_bug: Callable[[Exception], None],
    ) -> None:
        """`next_frames` returns frames in pieces; `on_bug` is told what it raises."""
        self._cable: Final = cable
        self._next_frames: Final = next_frames
        self._due_ms: Final = due_ms
        self._now_ms: Final = now_ms
        self._on_bug: Final = on_bug
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._is_woken = False
        self._is_saying = False
        self._is_hearing = False
        self._is_stopped = False

    def wake(self) -> None:
        # Whoever is at it asks the side again before it ends.
        if not (self._is_woken or self._is_saying or self._is_hearing):
            self._is_woken = True
            self._loop.call_soon(self._on_turn)

    def look(self) -> None:
        """Take note that the side's time may be another, though it has nothing to say yet.

        To ask it only to hear that there is nothing yet costs more than the rest of a turn.
        """
        if not (self._is_woken or self._is_saying or self._is_hearing):
            self._arm(self._due_ms())

    def hear(self, take: Callable[[memoryview], None], frame: memoryview) -> None:
        """Let the side hear this, and say at once what it has to say to it."""
        self._is_hearing = True
        try:
            take(frame)
        finally:
            self._is_hearing = False
        self.say()

    def say(self) -> None:
        """Say what there is to say now, unless the cable is busy: then when it is not any more."""
        if self._is_saying or self._is_stopped:
            return
        self._is_saying = True
        try:
            while not self._cable.is_busy and (frames := self._next_frames()):
                for pieces in frames:
                    self._cable.send(pieces)
        finally:
            self._is_saying = False
        if not self._cable.is_busy:
            self._arm(self._due_ms())

    def stop(self) -> None:
        """Say nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_turn(self) -> None:
        self._is_woken = False
        try:
            self.say()
        except Exception as error:  # noqa: BLE001  # whoever keeps the stream is told of it
            self._on_bug(error)

    def _arm(self, due_ms: int | None) -> None:
        """Be woken when the side's time has come.

        A timer that goes off too early stays: it costs a look, and a stream that is busy would set
        and cancel one for every message.
        """
        if due_ms is None or self._is_stopped:
            return
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        # A side that has nothing to say although its time has come must not keep the loop busy.
        wait_s = max(1, due_ms - self._now_ms()) / 1000
        self._timer = self._loop.call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._on_turn()
