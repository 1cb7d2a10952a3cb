"""What is still to be sent on one connection: bytes, and pieces of files that are never read.

A bucket chain: what the socket takes is gone, the rest waits in order. A piece of a file waits as a
name and a position, so that a client that never reads costs no memory.

To a client elsewhere the kernel sends a file by itself (sendfile). To one on this machine
(`is_near`) a piece is read and sent: there a copy of a mebibyte costs the kernel less than its
pages one by one (ADR 0034).

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
# Of files, in one go: so that one fast reader does not hold up the others.
_FILE_BYTES_MAX: Final = 1024**2
# What is read and not taken was read in vain: never more than this for a client that is slow.
_PIECE_BYTES_MIN: Final = 64 * 1024
# A smaller piece is read and sent with what is around it: one call instead of three.
_COPY_MAX: Final = 16 * 1024


@dataclass(slots=True)
class FilePart:
    """Bytes of a file, not read yet."""

    file: File
    position: int
    size: int


Part = bytes | memoryview | FilePart


class Outbox:
    """The unsent parts of one connection, in order."""

    __slots__ = ("_is_near", "_parts", "_piece_bytes", "memory_bytes", "sent_bytes")

    def __init__(self, *, is_near: bool = False) -> None:
        self._is_near: Final = is_near
        self._piece_bytes = _FILE_BYTES_MAX
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
        budget = _FILE_BYTES_MAX
        try:
            while parts and budget > 0:
                first = parts[0]
                if isinstance(first, FilePart):
                    wanted = min(budget, first.size, self._piece_bytes)
                    sent = self._send_file(sock, first, wanted)
                    budget -= sent
                    if sent < wanted:
                        # It takes no more now: to try would be to read in vain.
                        self._take_less(sent)
                        return False
                    self._piece_bytes = min(2 * self._piece_bytes, _FILE_BYTES_MAX)
                else:
                    self._send_bytes(sock)
        except BlockingIOError:
            return False
        return not parts

    def _send_file(self, sock: socket.socket, part: FilePart, size: int) -> int:
        """Return how much of a file the socket took, at most `size`."""
        if self._is_near:
            data = part.file.read_at(part.position, size)
            if not data:
                raise _ended(part.size)
            try:
                sent = sock.send(data)
            except BlockingIOError:
                sent = 0
        else:
            sent = os.sendfile(sock.fileno(), part.file.fileno(), part.position, size)
            if sent == 0:
                raise _ended(part.size)
        part.position += sent
        part.size -= sent
        self.sent_bytes += sent
        if part.size == 0:
            self._parts.popleft()
        return sent

    def _take_less(self, sent: int) -> None:
        """Begin the next piece that is read with twice what the socket took of this one."""
        if self._is_near:
            self._piece_bytes = min(max(2 * sent, _PIECE_BYTES_MIN), _FILE_BYTES_MAX)

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


def is_near(sock: socket.socket, host: str) -> bool:
    """Return whether `host` is at the other end on this machine: it is also the address it called.

    From a container it is not: there the bytes cross a bridge.
    """
    return sock.family in (socket.AF_INET, socket.AF_INET6) and sock.getsockname()[0] == host


def _read(part: FilePart) -> bytes:
    data = part.file.read_at(part.position, part.size)
    if len(data) != part.size:
        raise _ended(part.size - len(data))
    return data


def _ended(missing: int) -> OSError:
    return OSError(f"a file ended {missing} bytes before the answer did")
