"""How the streams between nodes do: whether one is open, how often it broke, when it was heard.

    replication   from a follower to a leader, for all that is followed there
    quorum        from a voter to another, which dials back to be heard itself

T1  there is one count for each kind and peer, and peers are nodes of this cluster: at most
    `COUNTS_MAX`, above which they share one that is not told
T2  a stream that nobody wants (any more) is neither open nor shut; its breaks are remembered

Not here: the streams (`internal/`), the text (`metrics.py`), and when to worry
(`compose/prometheus/rules.yml`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

REPLICATION: Final = "replication"
QUORUM: Final = "quorum"
COUNTS_MAX: Final = 256


class StreamCount:
    """One stream, through all its lives. Told by whoever dials it."""

    __slots__ = ("breaks", "heard_ms", "is_open")

    def __init__(self) -> None:
        # None: nobody wants it (T2).
        self.is_open: bool | None = None
        self.breaks = 0
        # On the clock for deadlines; None: nothing was heard yet.
        self.heard_ms: int | None = None

    def wanted(self) -> None:
        self.is_open = False

    def opened(self) -> None:
        self.is_open = True

    def broke(self) -> None:
        """It was open, and is not any more, though nobody wanted that."""
        self.is_open = False
        self.breaks += 1

    def left(self) -> None:
        self.is_open = self.heard_ms = None


class StreamCounts:
    """All the streams that this node has wanted."""

    def __init__(self) -> None:
        self._counts: Final[dict[tuple[str, int], StreamCount]] = {}
        self._others: Final = StreamCount()

    def of(self, stream: str, peer: int) -> StreamCount:
        """Return the count of a stream; it may be kept and written to."""
        key = (stream, peer)
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= COUNTS_MAX:
                return self._others
            found = self._counts[key] = StreamCount()
        return found

    def __iter__(self) -> Iterator[tuple[str, int, StreamCount]]:
        """Walk over all that is counted: kind, peer, count."""
        for (stream, peer), count in tuple(self._counts.items()):
            yield stream, peer, count
