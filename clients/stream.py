"""Both ends of one TCP connection: bytes in by number, bytes out with back-pressure.

What `asyncio.StreamReader` does too, with three copies fewer for an answer of megabytes: the system
writes it straight into the buffer that is given out. Like a parcel that is taken at the door,
instead of one that goes through the letter box in pieces.

B1  bytes come in the order they were sent, each once. A long read that is cancelled ends the
    connection: what it had taken is gone
B2  nobody waits for bytes, and `AHEAD` of them are here: no more are taken from the system

Not here: frames (`connection.py`), names and addresses (`dial.py`).
"""

from __future__ import annotations

import asyncio
from typing import Final

# Shorter reads are served from what was read ahead.
AHEAD: Final = 1 << 14


class Stream(asyncio.BufferedProtocol):
    """Made by a transport, closed once. One task reads at a time; many may write and drain."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._ahead: Final = memoryview(bytearray(AHEAD))
        # What was read ahead and not given out is between these.
        self._start = 0
        self._end = 0
        # What a long read still lacks; the system writes into it.
        self._target: memoryview | None = None
        self._news: asyncio.Future[None] | None = None
        self._is_ended = False
        self._is_paused = False
        # Why it broke, if it did.
        self._error: Exception | None = None
        # Set while more may be written.
        self._room: Final = asyncio.Event()
        self._room.set()
        self._lost: Final = asyncio.Event()

    # --- what the event loop tells -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._target is not None:
            return self._target
        if self._start == self._end:
            self._start = self._end = 0
        elif self._end == AHEAD:
            left = self._end - self._start
            self._ahead[:left] = bytes(self._ahead[self._start : self._end])
            self._start, self._end = 0, left
        return self._ahead[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._target is not None:
            self._target = self._target[nbytes:]
            if self._target:
                return
            self._target = None
        else:
            self._end += nbytes
            if self._end - self._start == AHEAD:
                # B2
                self.transport.pause_reading()
                self._is_paused = True
        self._tell()

    def eof_received(self) -> bool:
        self._is_ended = True
        self._tell()
        # What is still to be said may be sent.
        return True

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended = True
        self._error = exc
        self._room.set()
        self._lost.set()
        self._tell()

    # --- what the connection asks --------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    async def read_exactly(self, count: int) -> bytearray:
        """Return so many bytes.

        Raises `OSError` if the connection broke, `IncompleteReadError` if it ended before.
        """
        while self._end - self._start < count <= AHEAD:
            self._require_more(self._ahead[self._start : self._end], count)
            await self._wait()
        here = min(count, self._end - self._start)
        out = bytearray(count)
        out[:here] = self._ahead[self._start : self._start + here]
        self._start += here
        if here < count:
            await self._fill(out, here)
        elif self._is_paused:
            self._resume()
        return out

    async def _fill(self, out: bytearray, here: int) -> None:
        self._target = memoryview(out)[here:]
        try:
            while self._target is not None:
                self._require_more(out[: len(out) - len(self._target)], len(out))
                await self._wait()
        except BaseException:
            self._target = None
            self.abort()
            raise

    def write(self, data: bytes) -> None:
        self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the system has taken most of what was written, or the connection is over."""
        await self._room.wait()

    def close(self) -> None:
        """End the connection after what was written has been sent."""
        self.transport.close()

    def abort(self) -> None:
        """End the connection at once."""
        self.transport.abort()

    async def wait_closed(self) -> None:
        await self._lost.wait()

    def _require_more(self, partial: bytearray | memoryview, count: int) -> None:
        """Raise if nothing more can come."""
        if self._error is not None:
            raise self._error
        if self._is_ended:
            raise asyncio.IncompleteReadError(bytes(partial), count)

    async def _wait(self) -> None:
        self._news = asyncio.get_running_loop().create_future()
        if self._is_paused:
            self._resume()
        try:
            await self._news
        finally:
            self._news = None

    def _resume(self) -> None:
        self._is_paused = False
        if not self._is_ended:
            self.transport.resume_reading()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)
