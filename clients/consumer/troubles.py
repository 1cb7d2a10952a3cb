"""What went wrong and has to be told to the program, by its next call.

U4  each is told once, in order. That a partition has no position is not told if it has one by then:
    to assign and then to seek is how programs go without `auto.offset.reset`

Not here: what went wrong.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from ottla.clients.consumer.errors import NoOffsetError
from ottla.clients.consumer.positions import Bookmarks
from ottla.proto.errors import OttlaError


class Troubles:
    """Errors that wait to be raised."""

    def __init__(self, bookmarks: Bookmarks) -> None:
        self._bookmarks: Final = bookmarks
        # Looked at for every record; changed only here.
        self.waiting: Final = deque[OttlaError]()

    def append(self, error: OttlaError) -> None:
        self.waiting.append(error)

    def raise_next(self) -> None:
        """Raise the first that is still true; return if there is none."""
        while self.waiting:
            error = self.waiting.popleft()
            if not self._is_over(error):
                raise error

    def _is_over(self, error: OttlaError) -> bool:
        if not isinstance(error, NoOffsetError):
            return False
        found = self._bookmarks.all.get(error.partition)
        return found is None or found.position is not None or found.lookup_time is not None
