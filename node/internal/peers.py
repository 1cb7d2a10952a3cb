"""What both ends of streams and calls need: the member behind them, and what is told of a peer.

Not here: the ends themselves (`sender.py`, `receiver.py`).
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, Protocol

import grpc

from ottla.controller.quorum.messages import Envelope
from ottla.node.logs import Logger
from ottla.proto.errors import OttlaError
from ottla.proto.options.endpoints import Address

# What gRPC writes before the reason why a connection could not be made.
_LAST_ERROR: Final = re.compile(r".*last error: [A-Z_]+: ", re.DOTALL)
_HUNG_UP: Final = "Socket closed"
# Reasons that are remembered between two good connections.
_REASONS_MAX: Final = 16


class Member(Protocol):
    """What a transport asks of a `RunningMember`. None of it blocks, in any thread."""

    def deliver(self, envelope: Envelope, *, verified_as: int | None = None) -> bool: ...
    def open_stream(self, peer: int, told: Callable[[str], None]) -> bool: ...
    def close_stream(self, peer: int) -> bool: ...
    def accept_stream(self, peer: int, stream: str) -> bool: ...
    def process_is_gone(self, peer: int) -> bool: ...


class RefusedError(OttlaError):
    """A call or a stream that is not served."""

    def __init__(self, code: grpc.StatusCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code: Final = code


class Told:
    """Logs what becomes of one peer, and each reason once until all is well again."""

    def __init__(self, log: Logger) -> None:
        self._log: Final = log
        self._reasons: Final[set[tuple[str, str]]] = set()

    def forget(self) -> None:
        """All is well again, and nobody needs to read it."""
        self._reasons.clear()

    def well(self, event: str, **facts: object) -> None:
        self._reasons.clear()
        self._log.info(event, **facts)

    def ill(self, event: str, why: str, **facts: object) -> None:
        if (event, why) in self._reasons:
            return
        if len(self._reasons) >= _REASONS_MAX:
            # Whoever makes up reasons must not hide those that come after. The log itself bounds
            # how many lines of one kind there are.
            self._reasons.clear()
        self._reasons.add((event, why))
        self._log.warning(event, why=why, **facts)


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """Return why a call failed, in the words that say most."""
    details = error.details() or error.code().name
    why, is_dial = _LAST_ERROR.subn("", details)
    if is_dial and why.endswith(_HUNG_UP):
        # What a listener with TLS does to somebody without.
        return f"{why} as soon as it was open; does that node expect TLS?"
    return why


async def resolve(address: Address) -> list[Address]:
    """Return where a name points to now, addresses of IPv4 first. Raises `OSError`."""
    try:
        ip_address(address.host)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        found.sort(key=lambda one: one[0] is not socket.AF_INET)
        return [Address(str(name[0]), address.port) for _, _, _, _, name in found]
    return [address]


def end_if_cancelled() -> None:
    """Raise `CancelledError` if this task is to end. Call it after each failure that one survives.

    gRPC waits for a call to begin in a task of its own, which takes a cancellation for itself:
      1. whoever reads is cancelled, and the cancellation goes to that task
      2. that task swallows it, and cancels the call
      3. the call had broken a moment before: the reader is told that, and of no cancellation
    Whoever dials again after a break would then do so for ever, and be waited for for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def report_bug(task: asyncio.Task[None]) -> None:
    """Hand a bug to whoever the loop tells bugs to."""
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": "a bug between nodes", "exception": error, "task": task}
        task.get_loop().call_exception_handler(context)
