"""The REPLICATION listener: where followers open their cables, each with a ticket.

A cloakroom: whoever comes shows the number that he was given at the desk, and gets what was kept
under it. The desk is the INTERNAL listener, where a follower has to prove who it is and whom it
means (`replication_service.py`); here is only looked at the number. With keys the cable has TLS
like everything between nodes, and the certificate must be that of the node which was given the
ticket.

Not here: who gets a ticket, and what is said on a cable.

D1  nobody is let in without a ticket that was given to it, and with each ticket one at most
D2  strangers hold a few places, for a few seconds, and never the last one; nothing is made of what
    they send
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Final

from ottla.node.internal.cable import prepare
from ottla.node.internal.peers import Told, report_bug
from ottla.node.internal.tls import Tls, node_named_in, why_of
from ottla.node.kafka.listener import bound_socket
from ottla.node.logs import logger
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address

_log = logger("internal.entrance")

TICKET_BYTES: Final = 32
LET_IN_S: Final = 5.0
WAITING_MAX: Final = 64
_BACKLOG: Final = 64
# Let in one after the other; then others have their turn, too.
_ACCEPTS_MAX: Final = 16
# Without a descriptor left there is nothing to do but wait.
_SHORTAGE_PAUSE_S: Final = 0.2


class _LeftError(OSError):
    """Somebody came and went without a word."""


class Ticket:
    """What a follower was given, and what to do when it comes."""

    __slots__ = ("_take", "node_id", "number")

    def __init__(self, number: bytes, node_id: int, take: Callable[[socket.socket], None]) -> None:
        self.number: Final = number
        self.node_id: Final = node_id
        self._take: Final = take

    def take(self, sock: socket.socket) -> None:
        """Hand over the connection of whoever came with it."""
        self._take(sock)


class Entrance:
    """The listener. `bind`, `start`, then `stop`."""

    def __init__(self, address: Address, tls: Tls | None) -> None:
        self._wanted: Final = address
        self._context: Final = None if tls is None else tls.serving_context()
        self._redeem: Callable[[bytes], Ticket | None] = _unknown
        self._sock: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        # Those who have not shown a ticket yet; who came first is first.
        self._waiting: Final[dict[asyncio.Task[None], None]] = {}
        self._told: Final = Told(_log)

    def bind(self) -> Address:
        """Take the address, or raise `ConfigError`; nobody is let in before `start`."""
        wanted = self._wanted
        try:
            self._sock = bound_socket(wanted)
        except OSError as error:
            raise self._refusal(error) from None
        self._sock.setblocking(False)
        return Address(wanted.host or "::", self._sock.getsockname()[1])

    def _refusal(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot listen on {self._wanted}: {error.strerror or error}. Is another node running? "
            "Choose another: listeners=REPLICATION://127.0.0.1:19094"
        )

    def start(self, redeem: Callable[[bytes], Ticket | None]) -> None:
        """Let in whoever has a ticket that `redeem` knows; it knows each of them once."""
        if self._sock is not None:
            self._redeem = redeem
            try:
                self._sock.listen(_BACKLOG)
            except OSError as error:
                raise self._refusal(error) from None
            self._accepting = asyncio.get_running_loop().create_task(self._accept(self._sock))
            self._accepting.add_done_callback(report_bug)

    async def stop(self) -> None:
        """Let nobody in any more. Those who were let in stay."""
        self._redeem = _unknown
        tasks = [*self._waiting] if self._accepting is None else [self._accepting, *self._waiting]
        self._accepting = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def _accept(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in count(1):
            if number % _ACCEPTS_MAX == 0:
                # While somebody stands in line `sock_accept` does not wait. Without this nobody
                # else had a turn, and who is sent away lets go of its connection in a turn.
                await asyncio.sleep(0)
            try:
                sock, name = await loop.sock_accept(ours)
            except OSError as error:
                self._told.ill("accept_paused", str(error))
                await asyncio.sleep(_SHORTAGE_PAUSE_S)
                continue
            caller = Address(name[0], name[1])
            if len(self._waiting) >= WAITING_MAX:
                # Not the newcomer: a follower shows its ticket as soon as it is there (D2).
                self._send_away(next(iter(self._waiting)))
                self._told.ill("line_refused", "Too many wait to be let in.", caller=caller)
            task = loop.create_task(self._greet(sock, caller))
            self._waiting[task] = None
            task.add_done_callback(partial(self._left, sock))

    def _send_away(self, task: asyncio.Task[None]) -> None:
        # Not when it has ended: the next newcomer would send the same one away again.
        del self._waiting[task]
        task.cancel()

    def _left(self, sock: socket.socket, task: asyncio.Task[None]) -> None:
        self._waiting.pop(task, None)
        if task.cancelled():
            # It may have been sent away before it was greeted at all.
            sock.close()
        report_bug(task)

    async def _greet(self, sock: socket.socket, caller: Address) -> None:
        """Let somebody in, or send it away; it has `LET_IN_S` to say its number."""
        try:
            async with asyncio.timeout(LET_IN_S):
                prepare(sock)
                if self._context is not None:
                    sock = await secured(sock, self._context)
                number = await _received(sock, TICKET_BYTES)
        except _LeftError:
            # Whoever only looks whether somebody listens is no stranger to be told of.
            _log.debug("knocked", caller=caller)
            sock.close()
            return
        except OSError as error:
            has_time = not isinstance(error, TimeoutError)
            why = why_of(error) if has_time else "It did not say its number."
            self._told.ill("line_refused", why, caller=caller)
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        ticket = self._redeem(number)
        if ticket is None:
            self._told.ill("line_refused", "Nobody was given such a ticket.", caller=caller)
        elif isinstance(sock, ssl.SSLSocket) and node_named_in(sock) != ticket.node_id:
            why = f"The ticket of node {ticket.node_id} came with another's certificate."
            self._told.ill("line_refused", why, caller=caller)
        else:
            self._told.forget()
            ticket.take(sock)
            return
        sock.close()


def _unknown(_: bytes) -> Ticket | None:
    return None


async def _received(sock: socket.socket, size: int) -> bytes:
    """Return exactly so many bytes; raises `OSError` if they do not come."""
    found = b""
    while len(found) < size:
        try:
            more = sock.recv(size - len(found))
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            await _ready(sock, to_write=False)
            continue
        if not more and not found:
            raise _LeftError
        if not more:
            raise ConnectionResetError("It went away in the middle of its number")
        found += more
    return found


async def secured(
    sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None = None
) -> ssl.SSLSocket:
    """Shake hands, as the one who dials if there is a name, and return the socket with TLS.

    Raises `OSError`, and has closed the socket then.
    """
    wrapped = context.wrap_socket(
        sock,
        server_side=server_hostname is None,
        server_hostname=server_hostname,
        do_handshake_on_connect=False,
    )
    try:
        while True:
            try:
                wrapped.do_handshake()
            except ssl.SSLWantReadError:
                await _ready(wrapped, to_write=False)
            except ssl.SSLWantWriteError:
                await _ready(wrapped, to_write=True)
            else:
                return wrapped
    except BaseException:
        wrapped.close()
        raise


async def _ready(sock: socket.socket, *, to_write: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    descriptor = sock.fileno()
    if to_write:
        loop.add_writer(descriptor, tell)
    else:
        loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        if to_write:
            loop.remove_writer(descriptor)
        else:
            loop.remove_reader(descriptor)
