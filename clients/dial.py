"""Reaches a broker: from a host and a port to a stream, or a sentence that says why not.

Not here: anything of the protocol (`connection.py`).
"""

from __future__ import annotations

import asyncio
import os
import socket

from ottla.clients.errors import UnreachableError
from ottla.clients.stream import Stream
from ottla.proto.options.endpoints import Address


async def connect(address: Address, timeout_s: float) -> Stream:
    """Return a connection, or raise `UnreachableError`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _connect_to_any(address)
    except TimeoutError:
        reason = f"nobody answers within {timeout_s:g} s"
    except OSError as error:
        reason = system_reason(error)
    raise UnreachableError(f"{address} cannot be reached: {reason}.")


async def _connect_to_any(address: Address) -> Stream:
    """Try each address of a name. Given all at once, asyncio would hide why each of them failed."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    refusal = OSError(f"the name {address.host} has no address")
    for family, _, _, _, where in found:
        try:
            _, stream = await loop.create_connection(
                Stream, str(where[0]), address.port, family=family
            )
        except OSError as error:
            refusal = error
        else:
            return stream
    raise refusal


def system_reason(error: OSError) -> str:
    """Return what the system says of an error, to be put into a sentence."""
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if error.errno is None:
        return str(error)
    return os.strerror(error.errno).lower()
