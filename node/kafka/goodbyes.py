"""How a connection comes to its end, seen from the socket: who has left, and who is let go.

Not here: when (`connection.py`).
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress


def has_left(sock: socket.socket) -> bool:
    """Return whether the client has said its last word, without reading what it has said."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP)
    return bool(poll.poll(0))


def end_sending(sock: socket.socket) -> None:
    """Let the client read what it was sent, and then that there is no more.

    Not closed: with bytes of the client unread that would be a reset, and cost it what it has not
    read yet. Doing it again does nothing.
    """
    # It is gone already.
    with suppress(OSError):
        sock.shutdown(socket.SHUT_WR)
