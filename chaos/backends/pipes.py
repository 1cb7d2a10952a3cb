"""One direction of one connection through a link: bytes, and what becomes of them on the way.

Think of a cable with a tap. Bytes keep their order, always: a cut holds them back, a lost packet
stops all that come after it until it is sent again, a thin cable lets them wait. That is what a
process sees of a network that is ill, as long as its connection lives.

Not here: who is connected with whom (`links.py`).

L1  no byte is lost, doubled or changed, unless the connection ends
L2  what is held has a bound: above it the sender is not read any more
L3  the end of a connection travels like a byte: through a cut it is not seen
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from typing import Final

from ottla.chaos.ports import WHOLE, LinkFault

_HELD_BYTES_MAX: Final = 1 << 20
# How long a packet that was lost stops the stream: what Linux waits before it sends one again.
LOST_S: Final = 0.2


class Direction:
    """What holds from one node to another now, for all connections between them."""

    def __init__(self, dice: Random) -> None:
        self.fault = WHOLE
        self.pipes: Final = set[Pipe]()
        # Bytes that passed, for whoever wants to know whether anything did.
        self.passed_bytes = 0
        # Pieces that came since its fault is what it is, for whoever wants to know who met it.
        self.met_pieces = 0
        self._dice: Final = dice
        self._passable: Final = asyncio.Event()
        self._passable.set()

    async def passable(self) -> None:
        """Return when it is not cut."""
        await self._passable.wait()

    def set(self, fault: LinkFault) -> None:
        if fault != self.fault:
            self.met_pieces = 0
        self.fault = fault
        if fault.is_cut:
            self._passable.clear()
        else:
            self._passable.set()
        for pipe in tuple(self.pipes):
            pipe.pump()

    def sending_s(self, size: int) -> float:
        """Return how long the cable is taken by a piece of so many bytes."""
        rate = self.fault.bytes_per_s
        return 0.0 if rate is None else size / rate

    def delay_s(self) -> float:
        """Return how long a piece that was read at once is under way; the dice are thrown here."""
        fault = self.fault
        delay_s = fault.delay_ms / 1000
        if fault.jitter_ms:
            delay_s += self._dice.uniform(-fault.jitter_ms, fault.jitter_ms) / 1000
        if fault.loss_per_mille and self._dice.randrange(1000) < fault.loss_per_mille:
            delay_s += LOST_S
        return max(0.0, delay_s)


class Pipe:
    """Bytes from one socket to another. It ends with either of them."""

    def __init__(self, direction: Direction) -> None:
        self._direction: Final = direction
        self._loop: Final = asyncio.get_running_loop()
        # When a piece may leave, and the piece; None is the end of the connection.
        self._held: Final = deque[tuple[float, bytes | None]]()
        self._held_bytes = 0
        self._source: asyncio.Transport | None = None
        self._sink: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last_due_s = 0.0
        # When the cable has carried all that was given to it.
        self._free_s = 0.0
        self._is_sink_full = False
        self._is_paused = False
        self._is_over = False
        direction.pipes.add(self)

    def attach_source(self, source: asyncio.Transport) -> None:
        self._source = source

    def attach_sink(self, sink: asyncio.Transport) -> None:
        self._sink = sink
        self.pump()

    def take(self, data: bytes) -> None:
        if self._is_over:
            return
        fault = self._direction.fault
        if fault == WHOLE and not self._held and self._sink is not None:
            self._pass_on(data)
            return
        if fault != WHOLE:
            self._direction.met_pieces += 1
        # A thin cable carries one piece after the other, and each of them is under way after that.
        begin_s = max(self._loop.time(), self._free_s)
        self._free_s = begin_s + self._direction.sending_s(len(data))
        self._last_due_s = max(self._last_due_s, self._free_s + self._direction.delay_s())
        self._held.append((self._last_due_s, data))
        self._held_bytes += len(data)
        self._mind_pace()
        self.pump()

    def take_end(self) -> None:
        """Say that nothing more comes from the source."""
        if not self._is_over:
            due_s = max(self._loop.time(), self._free_s) + self._direction.delay_s()
            self._last_due_s = max(self._last_due_s, due_s)
            self._held.append((self._last_due_s, None))
            self.pump()

    def pump(self) -> None:
        """Pass on what may leave now, and see to it that the rest leaves when it may."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sink is None or self._direction.fault.is_cut:
            return
        now_s = self._loop.time()
        if self._direction.fault == WHOLE:
            # A cable that was mended has no memory.
            now_s = self._last_due_s = max(now_s, self._last_due_s)
            self._free_s = 0.0
        while self._held and self._held[0][0] <= now_s:
            _, data = self._held.popleft()
            if data is None:
                self.end()
                return
            self._held_bytes -= len(data)
            self._pass_on(data)
        if self._held:
            self._timer = self._loop.call_at(self._held[0][0], self.pump)
        else:
            self._last_due_s = 0.0
        self._mind_pace()

    def _pass_on(self, data: bytes) -> None:
        assert self._sink is not None
        self._direction.passed_bytes += len(data)
        if not self._sink.is_closing():
            self._sink.write(data)

    def sink_is_full(self, is_full: bool) -> None:
        self._is_sink_full = is_full
        self._mind_pace()

    def _mind_pace(self) -> None:
        source = self._source
        if source is None or source.is_closing():
            return
        wants_pause = self._is_sink_full or self._held_bytes > _HELD_BYTES_MAX
        if wants_pause and not self._is_paused:
            source.pause_reading()
        elif self._is_paused and not wants_pause:
            source.resume_reading()
        self._is_paused = wants_pause

    def end(self) -> None:
        """Let go of what is held, and of the socket at the far end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_over = True
        self._held.clear()
        self._direction.pipes.discard(self)
        if self._sink is not None and not self._sink.is_closing():
            self._sink.close()
