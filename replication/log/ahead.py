"""Room that a segment asks for before it needs it.

Whoever expects guests lays the table for as many again as have come so far. To find a place on the
disk for each block at the moment when it is written costs the kernel nearly as much as the copy.

V1  what is asked for changes neither the bytes of a file nor its size: nobody who reads notices
V2  a segment asks for as much as it has, `AHEAD_MAX` at most, and a small one for nothing
V3  what is left is given back when the segment is sealed, cut, or let go of; what a crash left, too

Not here: how the kernel is asked (`storage/disk.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.replication.storage.ports import File

AHEAD_FROM: Final = 1024**2
AHEAD_MAX: Final = 16 * 1024**2


class RoomAhead:
    """The room beyond the end of one segment."""

    __slots__ = ("_is_held", "due_at")

    def __init__(self, size: int) -> None:
        # As soon as the segment is as large as this, it is time to ask.
        self.due_at = max(size, AHEAD_FROM)
        # Of a file that was there before nobody knows what a process that crashed had asked for.
        self._is_held = True

    def ask(self, file: File, size: int, segment_bytes: int) -> None:
        """Ask for more, for a segment that has grown to `size` and will roll at `segment_bytes`."""
        wanted = min(size, AHEAD_MAX, segment_bytes - size)
        # A half is left when more is asked for.
        self.due_at = size + max(wanted, AHEAD_FROM) // 2
        if wanted > 0:
            file.reserve(wanted)
            self._is_held = True

    def give_back(self, writer: Callable[[], File]) -> None:
        if self._is_held:
            self._is_held = False
            writer().reserve(0)

    def was_cut(self, size: int) -> None:
        """The file was truncated to this, and nothing is left behind its end."""
        self.due_at = max(size, AHEAD_FROM)
        self._is_held = False
