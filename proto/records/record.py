"""One record, as people mean the word: a key, a value, headers, a time, and its place in the log.

Not here: bytes. `decode.py` takes records out of a batch and `build.py` puts them into one.
"""

from __future__ import annotations

from typing import NamedTuple


class Record(NamedTuple):
    """A record with its absolute offset. A value of None is a tombstone in a compacted topic."""

    offset: int
    # Milliseconds since 1970, or NO_TIMESTAMP.
    timestamp: int
    key: bytes | None
    value: bytes | None
    # In the order the producer gave them; a key may come more than once.
    headers: tuple[tuple[str, bytes | None], ...] = ()
