"""The other end of a loopback connection: a process that receives and throws away.

A process and not a thread, because a thread would share the interpreter lock with the sender and
be measured with it. The talk: eight bytes that say how many will follow, that many bytes, and one
byte back when all of them have been received.

    python -m bench.drain        prints its port, serves one connection, ends with it
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_COUNT: Final = struct.Struct(">q")
_BUFFER_BYTES: Final = 1 << 20


class Drain:
    """A connection to somebody who receives everything. Ends with `running`."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket: Final = connection

    def announce(self, size: int) -> None:
        self.socket.sendall(_COUNT.pack(size))

    def wait(self) -> None:
        """Return when all that was announced has arrived."""
        if self.socket.recv(1) != b".":
            raise SystemExit("The receiving process is gone.")

    def send_file(self, descriptor: int, position: int, size: int) -> None:
        """Send a part of a file, whole: a socket may take it in pieces."""
        target = self.socket.fileno()
        while size:
            sent = os.sendfile(target, descriptor, position, size)
            position += sent
            size -= sent


@contextmanager
def running() -> Iterator[Drain]:
    """Start the receiver and connect to it."""
    command = [sys.executable, "-m", "bench.drain"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if process.stdout is None:
            raise SystemExit("The receiving process has no output.")
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Drain(connection)


def _serve(connection: socket.socket) -> None:
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    while True:
        head = connection.recv(_COUNT.size, socket.MSG_WAITALL)
        if len(head) < _COUNT.size:
            return
        left = int(_COUNT.unpack(head)[0])
        while left:
            received = connection.recv_into(view[: min(left, _BUFFER_BYTES)])
            if not received:
                return
            left -= received
        connection.sendall(b".")


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _serve(connection)


if __name__ == "__main__":
    main()
