"""Ports of this machine that nobody else of us takes, also while nobody listens at them.

A port must be known before its node starts, and stays that node's while it is dead. A socket that
is bound, asked for its port and closed again reserves nothing; this was seen:

1. node 2 gets 27726 for its clients, and lets it go so that the node can take it
2. the gate from 2 to 3 draws 27726, and listens
3. node 2 starts, and ends: the address is in use

So each port is a byte in one file, and whoever has the port holds the lock of its byte for as long
as the process lives. The system gives the locks back when it ends, however it ends.

Not here: programs that are not ours. They are told by the bind, which is tried as well.

R1  two processes of one user and one temporary directory, or two calls in one, never hold the same
    port
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
import threading
from pathlib import Path
from random import SystemRandom
from typing import Final

from ottla.chaos.ports import HarnessError

HOST: Final = "127.0.0.1"
# Below those that the system gives to outgoing connections, which would take a port that is free
# for a moment.
PORT_RANGE: Final = (12_000, 30_000)
_PORT_TRIES: Final = 1000


class PortBook:
    """The ports that this process has; one for each process, opened at its first port."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path
        self._turn: Final = threading.Lock()
        # The system does not refuse a lock to the process that has it, and takes all of them back
        # when that process closes any descriptor of the file: it is opened once, and kept.
        self._file: int | None = None
        self._owner = 0
        self._mine: Final = set[int]()

    def claim(self, port: int) -> bool:
        """Return whether the port is ours alone now."""
        with self._turn:
            descriptor = self._opened()
            if port in self._mine:
                return False
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except (BlockingIOError, PermissionError):
                return False
            self._mine.add(port)
            return True

    def _opened(self) -> int:
        if self._file is None or self._owner != os.getpid():
            # A child that was forked has the descriptor, and not one of the locks.
            self._mine.clear()
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            self._owner = os.getpid()
        return self._file


_BOOK: Final = PortBook(Path(tempfile.gettempdir()) / f"ottla-ports-{os.getuid()}")


def take_port(host: str = HOST, *, book: PortBook = _BOOK) -> socket.socket:
    """Return a socket that has a port for itself, at which nobody listens."""
    dice = SystemRandom()
    for _ in range(_PORT_TRIES):
        port = dice.randrange(*PORT_RANGE)
        if not book.claim(port):
            continue
        taken = socket.socket()
        try:
            taken.bind((host, port))
        except OSError:
            taken.close()
        else:
            # From now on, so that it was ours alone: connections of a gate that was shut may be
            # there still when it opens again.
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return taken
    raise HarnessError(f"no free port was found between {PORT_RANGE[0]} and {PORT_RANGE[1]}")


def reserve_ports(count: int) -> list[int]:
    """Return ports at which nobody listens and that stay ours, all different."""
    found = list[int]()
    for _ in range(count):
        with take_port() as taken:
            found.append(taken.getsockname()[1])
    return found
