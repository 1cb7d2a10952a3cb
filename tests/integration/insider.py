"""What a node could say to a running cluster on the INTERNAL listener, said by a test.

Not here: the nodes (`clusters.py`), and clients of the CLIENT listener (`admin_stream.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ottla.controller.commands import Command
from ottla.controller.door import Denied, NotActive, Unresolved
from ottla.controller.image import MetadataImage
from ottla.controller.outcome import Outcome
from ottla.controller.proposal import Proposal, RequestId, encode_proposal
from ottla.controller.snapshot import decode_image
from ottla.node.internal.channels import Channels
from ottla.node.internal.remote import RemoteDoor
from ottla.node.internal.tls import Tls
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address
from tests.integration.clusters import ClusterNode

ANSWER_S: Final = 20.0
# Far above what the broker itself has counted to.
SEQUENCE: Final = 1_000_000
Answer = Outcome | NotActive | Denied | Unresolved
T = TypeVar("T")


def internal_address(node: ClusterNode) -> Address:
    host, _, port = node.internal.rpartition(":")
    return Address(host, int(port))


def at_door(
    node: ClusterNode, work: Callable[[RemoteDoor], Awaitable[T]], tls: Tls | None = None
) -> T:
    """Do something at the door of the controller of a node."""
    cluster_id = node.status()["cluster_id"]

    async def whole() -> T:
        channels = Channels(tls)
        try:
            door = RemoteDoor(
                node.node_id, internal_address(node), channels, cluster_id=lambda: cluster_id
            )
            async with asyncio.timeout(ANSWER_S):
                return await work(door)
        finally:
            await channels.close()

    return asyncio.run(whole())


def image_at(node: ClusterNode) -> MetadataImage:
    """Return the metadata as a controller has it."""

    async def read(door: RemoteDoor) -> MetadataImage:
        news = door.follow(-1, b"")
        async for one in news:
            assert one.is_image
            return decode_image(one.data)
        raise AssertionError("it gave nothing")

    return at_door(node, read)


def propose(
    controller: ClusterNode,
    command: Command,
    *,
    broker_id: int,
    broker_epoch: int,
    sequence: int = SEQUENCE,
    tls: Tls | None = None,
) -> Answer:
    """Ask a controller for something in the name of a broker, and return what it answers."""
    request = RequestId(BrokerId(broker_id), broker_epoch, sequence)
    data = encode_proposal(Proposal(request, command))
    return at_door(controller, lambda door: door.propose(data, client="a test"), tls)
