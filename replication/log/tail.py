"""What a leader has appended and not all have yet, kept in memory for its followers.

A baker who knows that two customers come for each loaf leaves it on the counter until both have
been there, and does not carry it to the shelf and back.

Chunks lie one after another without gaps, each as it was written to the file. What is committed has
been fetched by all who are in sync, and goes; whoever is behind reads the file.

Not here: the file (`segment.py`), and when something is committed.

T1  chunks are contiguous: each begins where the one before it ends
T2  no more bytes are kept than the budget of all logs together has
T3  what is returned is what the file has from that offset on
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from ottla.proto.ids import Offset

# Of one log, and of all of a node together.
TAIL_BYTES_MAX: Final = 24 << 20
TAILS_BYTES_MAX: Final = 64 << 20
_CHUNKS_MAX: Final = 1024


class TailBudget:
    """How much all tails of a node may keep."""

    __slots__ = ("left_bytes",)

    def __init__(self, bytes_max: int = TAILS_BYTES_MAX) -> None:
        self.left_bytes = bytes_max


class _Chunk(NamedTuple):
    """Whole batches that were written at once."""

    first_offset: Offset
    next_offset: Offset
    batches: bytes


class Tail:
    """The newest batches of one log."""

    __slots__ = ("_budget", "_bytes_max", "_chunks", "size_bytes")

    def __init__(self, budget: TailBudget, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._budget: Final = budget
        self._bytes_max: Final = bytes_max
        self._chunks: Final[deque[_Chunk]] = deque()
        self.size_bytes = 0

    def add(self, first_offset: Offset, next_offset: Offset, batches: bytes) -> None:
        """Keep what was just written, if there is room; the oldest go for it."""
        chunks, size = self._chunks, len(batches)
        if chunks and chunks[-1].next_offset != first_offset:
            # Something was written that nobody told of here: begin anew (T1).
            self.clear()
        while chunks and (
            self.size_bytes + size > self._bytes_max
            or size > self._budget.left_bytes
            or len(chunks) == _CHUNKS_MAX
        ):
            self._drop_first()
        if size > min(self._bytes_max, self._budget.left_bytes):
            return
        chunks.append(_Chunk(first_offset, next_offset, batches))
        self.size_bytes += size
        self._budget.left_bytes -= size

    def drop_below(self, offset: Offset) -> None:
        """Let go of the chunks that end at `offset` or before it."""
        while self._chunks and self._chunks[0].next_offset <= offset:
            self._drop_first()

    def clear(self) -> None:
        self._chunks.clear()
        self._budget.left_bytes += self.size_bytes
        self.size_bytes = 0

    def _drop_first(self) -> None:
        size = len(self._chunks.popleft().batches)
        self.size_bytes -= size
        self._budget.left_bytes += size

    def read(self, offset: Offset, wanted: int, bytes_max: int) -> list[bytes] | None:
        """Return whole batches from `offset` on, as they were written, or None: they must be read
        from the file.

        About so many bytes as are wanted: more only if the first chunk is larger, and not if it is
        too large for who asks.
        """
        found: list[bytes] = []
        size = 0
        for chunk in self._chunks:
            if not found and chunk.first_offset != offset:
                if chunk.first_offset > offset:
                    return None
                continue
            size += len(chunk.batches)
            if size > (wanted if found else bytes_max):
                break
            found.append(chunk.batches)
        return found or None
