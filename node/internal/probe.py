"""Is a process gone, or only out of reach? A question that must not be answered too quickly.

Rule 11a: a plain TCP connection to the address where the process was. If it is refused, nobody
listens there: the process is dead. If somebody listens, they are asked who they are: the same node
with another incarnation has started again, so the one before is dead. Everything else, a time-out
or trouble of our own above all, is silence, and silence proves nothing.

Not here: what follows from it (`raft.py`; `ottla.controller.liveness`).

O1  `REFUSED` is said only when the kernel of the other side said so
"""

from __future__ import annotations

import asyncio
from typing import Final, TypeAlias

import grpc

from ottla.controller.sightings import Verdict
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import IDENTIFY
from ottla.node.internal.peers import resolve
from ottla.node.internal.wire import Identity, decode_identity
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options.endpoints import Address

_ADDRESSES_MAX: Final = 4

Identify: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"


class Probe:
    """Asks whether the process that was at an address is still there."""

    def __init__(self, channels: Channels) -> None:
        self._channels: Final = channels

    async def __call__(
        self,
        address: Address,
        *,
        node_id: int,
        incarnation: UUID | None,
        cluster_id: str,
        timeout_ms: int,
    ) -> Verdict:
        """Return what was found. It never raises, and takes no longer than `timeout_ms`."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await _knock(self._channels.way_to(address))
                found = await self._ask(address, node_id)
        except ConnectionRefusedError:
            return Verdict.REFUSED
        except (OSError, grpc.aio.AioRpcError, RemoteProtocolError):
            # `TimeoutError` is an `OSError`.
            return Verdict.SILENCE
        return _verdict(found, node_id, incarnation, cluster_id)

    async def identity(self, address: Address, *, node_id: int, timeout_ms: int) -> Identity | None:
        """Return who answers there, expected to be that node; None if nobody does in time."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._ask(address, node_id)
        except (OSError, grpc.aio.AioRpcError, RemoteProtocolError):
            return None

    async def _ask(self, address: Address, node_id: int) -> Identity:
        channel = self._channels.fresh(node_id, address)
        try:
            identify: Identify = channel.unary_unary(IDENTIFY)
            return decode_identity(await identify(b"", wait_for_ready=False))
        finally:
            await channel.close()


async def _knock(address: Address) -> None:
    """Return if somebody listens; raise `ConnectionRefusedError` if nobody does, anywhere."""
    refusal = ConnectionRefusedError()
    # One after the other: asyncio tells less about several failures than about one.
    for one in (await resolve(address))[:_ADDRESSES_MAX]:
        try:
            _, writer = await asyncio.open_connection(one.host, one.port)
        except ConnectionRefusedError as error:
            refusal = error
        else:
            writer.transport.abort()
            return
    raise refusal


def _verdict(found: Identity, node_id: int, incarnation: UUID | None, cluster_id: str) -> Verdict:
    is_same_node = found.node_id == node_id and found.cluster_id in ("", cluster_id)
    # A node that starts again does not know its cluster at first.
    if not is_same_node or incarnation is None:
        return Verdict.SILENCE
    if found.incarnation == incarnation:
        return Verdict.SAME_INCARNATION
    return Verdict.OTHER_INCARNATION
