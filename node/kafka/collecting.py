"""How much of a large request the kernel collects before it calls.

A batch of a megabyte comes in many pieces, and to be called for each costs more than to read it.

G1  never more is waited for than is still to come of the request
G2  what is collected fits into memory that was lent to the connection (N3)
G3  it is an eighth at most of what the kernel's own buffer has grown to: one that is nearly full
    shuts the window, and a client that is far away stands still
G4  nobody passes for idle because his bytes are being collected: the sweep asks for them

Not here: reading (`connection.py`), the sweep (`listener.py`).
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Final

from ottla.node.kafka.memory import BUFFER_USUAL

COLLECTED_BYTES_MAX: Final = 512 * 1024
# Of the kernel's buffer, and its bookkeeping is a half of that.
_SHARE: Final = 8


class Collecting:
    """The wish of one connection, as the kernel knows it."""

    __slots__ = ("_size", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock: Final = sock
        # From so many bytes on it calls.
        self._size = 1

    def look(self, missing: int, room: int) -> None:
        """Some was read: so much of a request is still to come, and there is room for so much."""
        size = min(missing, room, COLLECTED_BYTES_MAX)
        if size > BUFFER_USUAL:
            size = min(size, self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // _SHARE)
        self._ask(size if size > BUFFER_USUAL else 1)

    def stop(self) -> bool:
        """Be called for whatever there is; return whether some was collected until now."""
        was_at_it = self._size > 1
        self._ask(1)
        return was_at_it

    def _ask(self, size: int) -> None:
        if size != self._size:
            self._size = size
            # It only saves time: who is not obeyed is called more often.
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)
