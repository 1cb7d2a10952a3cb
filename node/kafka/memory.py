"""Memory for large requests that are still arriving: one purse for all connections.

A connection reads into a small buffer of its own. One that needs more than that borrows here, and
gives back when its request is served. When the purse is empty, who wants more is not read until
others are done.

M1  all that is lent is at most `limit`, and what one connection in need was given beyond it
M2  somebody can always go on: the first who finds the purse empty is given what he needs
M3  who is refused is called when there may be some again (`go_on`)
M4  a quarter is kept for requests of a usual size: a few clients with huge ones stop each other,
    and not those who write a batch of a megabyte

Not here: how long a request may take to arrive (`listener.py`).
"""

from __future__ import annotations

import mmap
from typing import Final, Protocol

UNLIMITED: Final = -1
# What a connection may have without asking: read at once from one that has much to say.
BUFFER_USUAL: Final = 64 * 1024
# Producers send requests of a megabyte, unless they are told otherwise; and some room.
MODERATE: Final = 2 * 1024**2


class Borrower(Protocol):
    """A connection, as the purse sees it."""

    def go_on(self) -> None:
        """Try again, soon: there may be memory now."""

    def shrink(self) -> None:
        """Give back what nothing is in."""


class ReceiveMemory:
    """What all the connections of a listener have borrowed."""

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self._lent: Final[dict[Borrower, int]] = {}
        self.lent_bytes = 0
        # Who was refused and not called since, longest waiting first.
        self._refused: Final[dict[Borrower, None]] = {}
        # Who may borrow beyond the limit (M2), until he gives back.
        self._in_need: Borrower | None = None

    @property
    def is_short(self) -> bool:
        """Whether somebody waits, or has more than there is: who needs no more gives back."""
        return self._in_need is not None or bool(self._refused)

    def is_lent_to(self, borrower: Borrower) -> bool:
        return borrower in self._lent

    def is_refused(self, borrower: Borrower) -> bool:
        return borrower in self._refused

    def lend(self, borrower: Borrower, size: int) -> bool:
        """Return whether the borrower may have so many bytes, in place of what it has."""
        if not self._has(borrower, size):
            self._collect(borrower)
            if not self._has(borrower, size):
                if self._in_need not in (None, borrower):
                    self._refused[borrower] = None
                    return False
                self._in_need = borrower
        self._refused.pop(borrower, None)
        self.lent_bytes += size - self._lent.get(borrower, 0)
        self._lent[borrower] = size
        self._call_next()
        return True

    def give_back(self, borrower: Borrower) -> None:
        """Take everything back; the borrower may be gone for good."""
        self._refused.pop(borrower, None)
        if self._in_need is borrower:
            self._in_need = None
        self.lent_bytes -= self._lent.pop(borrower, 0)
        self._call_next()

    def call_all(self) -> None:
        """Let all who were refused try again. Once in a while: one who was called may be silent."""
        for borrower in tuple(self._refused):
            borrower.go_on()

    def _has(self, borrower: Borrower, size: int) -> bool:
        if self.limit == UNLIMITED:
            return True
        others = self.lent_bytes - self._lent.get(borrower, 0)
        if self._in_need not in (None, borrower):
            # Lent beyond the limit, and therefore not out of it.
            others -= self._lent[self._in_need]
        return others + size <= (self.limit if size <= MODERATE else self.limit * 3 // 4)

    def _collect(self, wanting: Borrower) -> None:
        """Have large buffers back that nothing is in, once: later they come back by themselves."""
        if not self.is_short:
            for borrower in tuple(self._lent):
                if borrower is not wanting:
                    borrower.shrink()

    def _call_next(self) -> None:
        if self._refused:
            borrower = next(iter(self._refused))
            del self._refused[borrower]
            borrower.go_on()


def new_buffer(size: int) -> bytearray | mmap.mmap:
    """Return a buffer; a large one goes back to the kernel as soon as nobody has it any more.

    Else the allocator keeps what one client's largest request took, for as long as the node lives.
    """
    if size <= BUFFER_USUAL:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
