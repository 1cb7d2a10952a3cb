"""What is still to be sent on one connection: bytes, and pieces of files that are never read.

A bucket chain: what the socket takes is gone, the rest waits in order. A piece of a file waits as a
name and a position, so that a client that never reads costs no memory.

Not here: when to send, and what (`connection.py`).
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.replication.storage.ports import File

# The kernel takes no more buffers than this in one call.
_BUFFERS_MAX: Final = 256
# One sendfile at most, so that one fast reader does not hold up the others.
_SENDFILE_MAX: Final = 1024**2
# A smaller piece is read and sent with what is around it: one call instead of three.
_COPY_MAX: Final = 16 * 1024


@dataclass(slots=True)
class FilePart:
    """Bytes of a file, for sendfile."""

    file: File
    position: int
    size: int


Part = bytes | memoryview | FilePart


class Outbox:
    """The unsent parts of one connection, in order."""

    __slots__ = ("_parts", "memory_bytes", "sent_bytes")

    def __init__(self) -> None:
        self._parts: deque[Part] = deque()
        # What the waiting parts hold in memory; pieces of files hold none.
        self.memory_bytes = 0
        self.sent_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            size = part.size if isinstance(part, FilePart) else len(part)
            if size == 0:
                # Nothing to send would be sent for ever: the socket never takes any of it.
                continue
            if isinstance(part, FilePart):
                if size > _COPY_MAX:
                    self._parts.append(part)
                    continue
                part = _read(part)
            self.memory_bytes += size
            self._parts.append(part)

    def send(self, sock: socket.socket) -> bool:
        """Send what the socket takes; return whether nothing is left. Raises `OSError`."""
        parts = self._parts
        budget = _SENDFILE_MAX
        try:
            while parts and budget > 0:
                first = parts[0]
                if isinstance(first, FilePart):
                    budget -= self._send_file(sock, first, min(budget, first.size))
                else:
                    self._send_bytes(sock)
        except BlockingIOError:
            return False
        return not parts

    def _send_file(self, sock: socket.socket, part: FilePart, size: int) -> int:
        sent = os.sendfile(sock.fileno(), part.file.fileno(), part.position, size)
        if sent == 0:
            raise OSError(f"a file ended {part.size} bytes before the answer did")
        part.position += sent
        part.size -= sent
        self.sent_bytes += sent
        if part.size == 0:
            self._parts.popleft()
        return sent

    def _send_bytes(self, sock: socket.socket) -> None:
        parts = self._parts
        if len(parts) == 1:
            only: bytes | memoryview = parts[0]  # type: ignore[assignment]  # seen by the caller
            sent = sock.send(only)
        else:
            buffers: list[bytes | memoryview] = []
            more = 0
            for part in parts:
                if isinstance(part, FilePart):
                    # A few bytes before a file are not worth a packet of their own.
                    more = socket.MSG_MORE
                    break
                buffers.append(part)
                if len(buffers) == _BUFFERS_MAX:
                    break
            sent = sock.sendmsg(buffers, (), more)
        self.sent_bytes += sent
        self.memory_bytes -= sent
        while sent:
            part = parts.popleft()
            size = len(part)  # type: ignore[arg-type]  # no file is among those just sent
            if sent < size:
                parts.appendleft(memoryview(part)[sent:])  # type: ignore[arg-type]  # likewise
                return
            sent -= size


def _read(part: FilePart) -> bytes:
    data = part.file.read_at(part.position, part.size)
    if len(data) != part.size:
        raise OSError(f"a file ended {part.size - len(data)} bytes before the answer did")
    return data
