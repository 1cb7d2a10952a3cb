"""What waits to be sent to one peer: a bounded queue between the quorum's thread and the loop.

The quorum's thread puts frames in while a stream is open; a task on the event loop takes them out.
One wake-up carries any number of frames.

Not here: the stream itself (`raft.py`).

X1  a frame is handed out at most once, in order, and only on the stream that it was made for
X2  the queue is bounded in frames and bytes; what does not fit is refused
"""

from __future__ import annotations

import asyncio
from collections import deque
from threading import Lock
from typing import Final

FRAMES_MAX: Final = 1_000
BYTES_MAX: Final = 8 << 20


class Outgoing:
    """The frames for one peer."""

    def __init__(self, *, frames_max: int = FRAMES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._frames_max: Final = frames_max
        self._bytes_max: Final = bytes_max
        self._guard: Final = Lock()
        self._stream: str | None = None
        self._frames: Final[deque[bytes]] = deque()
        self._size = 0
        # Belongs to the event loop.
        self.is_filled: Final = asyncio.Event()

    def open(self, stream: str) -> None:
        """Begin anew, with nothing."""
        with self._guard:
            self._clear()
            self._stream = stream

    def close(self) -> None:
        """The stream broke: what was not handed out never will be."""
        with self._guard:
            self._clear()
            self._stream = None

    def put(self, stream: str, frame: bytes) -> bool:
        """Return whether it was taken. May be called in any thread."""
        with self._guard:
            is_full = len(self._frames) >= self._frames_max
            if stream != self._stream or is_full or self._size + len(frame) > self._bytes_max:
                return False
            self._frames.append(frame)
            self._size += len(frame)
            return True

    def take(self, stream: str) -> bytes | None:
        """Return the next frame of this stream; None if there is none now."""
        with self._guard:
            if stream != self._stream or not self._frames:
                return None
            frame = self._frames.popleft()
            self._size -= len(frame)
            return frame

    def _clear(self) -> None:
        self._frames.clear()
        self._size = 0
