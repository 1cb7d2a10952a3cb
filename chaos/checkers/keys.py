"""What compaction may have taken from one partition.

The last record of every key stays. So a record may be gone if a newer one of its key is known to be
in the log, by an acknowledgement or because it was shown; that newer one must be there itself, or
have a newer one, and so on. A tombstone may go too, when it is old enough and nothing of its key
that is older is left.

Not here: what retention takes (`Case.may_be_gone`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla.chaos.checkers.sends import Send
from ottla.chaos.history import Kind

# A final read may go on for so long while cleaners work.
_READING_NS: Final = 60_000_000_000


class Left(NamedTuple):
    """What a final read has found of a compacted partition."""

    # When it began; None: nobody knows, and any tombstone may be old enough.
    began_ns: int | None
    # The lowest offset of each key.
    oldest: Mapping[str, int]


class Keys:
    """The newest record of each key of one partition, and its tombstones."""

    def __init__(self, sends: Iterable[tuple[Send, int | None]], *, tombstones_ns: int) -> None:
        """Take all sends with where they are known to be, and how long tombstones stay."""
        self._tombstones_ns: Final = tombstones_ns
        self._newest: Final = dict[str, int]()
        # Where each is, and when it was sent; None: nobody knows where.
        self._tombstones: Final = defaultdict[str, list[tuple[int | None, int]]](list)
        for send, offset in sends:
            if offset is not None:
                self._newest[send.key] = max(self._newest.get(send.key, -1), offset)
            if send.is_tombstone and send.kind is not Kind.FAIL:
                self._tombstones[send.key].append((offset, send.begun_ns))

    def may_be_gone(self, send: Send, offset: int, left: Left | None) -> bool:
        """Whether a record may be missing: in a final read, or (None) for somebody who polls."""
        if self._newest.get(send.key, -1) > offset:
            return True
        if left is not None and left.oldest.get(send.key, offset) < offset:
            return False
        return any(
            (at is None or at >= offset) and self._is_old(begun_ns, left)
            for at, begun_ns in self._tombstones.get(send.key, ())
        )

    def _is_old(self, begun_ns: int, left: Left | None) -> bool:
        if left is None or left.began_ns is None:
            return True
        return left.began_ns + _READING_NS - begun_ns >= self._tombstones_ns
