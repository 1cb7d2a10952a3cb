"""Both ends of one connection in one event loop: a guest who orders, and a waiter who serves.

The connection is real, and so are the sockets; who serves the requests is a fake that a test tells
what to do with each.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from ottla.node.kafka.connection import Connection
from ottla.node.kafka.memory import ReceiveMemory
from ottla.node.kafka.slot import Slot
from ottla.proto.errors import RemoteProtocolError

REQUEST_BYTES_MAX: Final = 8 << 20


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


class Waiter:
    """Serves requests: echoes each at once, unless the test has said otherwise."""

    request_bytes_max = REQUEST_BYTES_MAX

    def __init__(self) -> None:
        self.memory = ReceiveMemory()
        self.frames: list[bytes] = []
        # Slots of requests whose answers a test gives itself.
        self.held: list[Slot] = []
        self.holds = False
        self.refuses: bytes | None = None
        self.is_serial = False
        # Of what it holds, it makes fetches that wait.
        self.waits = False
        self.broken: list[RemoteProtocolError] = []
        self.closings: list[str] = []
        self.time_ms = 0

    def serve(self, connection: Connection, frame: memoryview) -> None:
        taken = bytes(frame)
        if taken == self.refuses:
            raise RemoteProtocolError("this is none")
        self.frames.append(taken)
        slot = connection.open_slot(len(frame))
        if self.is_serial:
            connection.begin_serial()
        if self.waits:
            connection.begin_wait(lambda: None)
        if self.holds or self.is_serial:
            self.held.append(slot)
        else:
            slot.answer((framed(taken),))

    def protocol_broken(self, connection: Connection, error: RemoteProtocolError) -> None:
        self.broken.append(error)

    def closed(self, connection: Connection, reason: str) -> None:
        self.closings.append(reason)

    def now_ms(self) -> int:
        return self.time_ms

    def now_us(self) -> int:
        return self.time_ms * 1000


class Table:
    """A connection with its waiter, and the guest's end of it."""

    def __init__(self, *, socket_bytes: int | None = None) -> None:
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setblocking(False)
            if socket_bytes is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, socket_bytes)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, socket_bytes)
        self.guest: Final = theirs
        self.waiter: Final = Waiter()
        self.connection: Final = Connection(ours, "guest", 1, self.waiter, 0)

    async def order(self, data: bytes) -> None:
        """Send all of it; the node must keep reading."""
        await asyncio.get_running_loop().sock_sendall(self.guest, data)
        await settled()

    def order_some(self, data: bytes) -> int:
        """Send what the socket takes now, and return how much that is."""
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < len(data):
                sent += self.guest.send(data[sent:])
        return sent

    async def eat(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            chunk = await asyncio.get_running_loop().sock_recv(self.guest, size - len(read))
            if not chunk:
                break
            read += chunk
        return bytes(read)

    def eat_what_is_there(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return self.guest.recv(1 << 20)
        return b""


async def settled() -> None:
    """Let everything happen that can happen now."""
    for _ in range(6):
        await asyncio.sleep(0)


def at_table(
    story: Callable[[Table], Awaitable[None]], *, socket_bytes: int | None = None
) -> Waiter:
    """Tell a story, clear the table, and return the waiter for what is left to ask him."""

    async def tell() -> Waiter:
        table = Table(socket_bytes=socket_bytes)
        try:
            await asyncio.wait_for(story(table), 20)
        finally:
            table.connection.close("the story is over")
            table.guest.close()
        return table.waiter

    return asyncio.run(tell())
