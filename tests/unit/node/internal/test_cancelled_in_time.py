"""Whoever is told to end ends, though gRPC swallows it: a break at that very moment hides it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import cast
from uuid import uuid4

import grpc
import pytest

from ottla.controller.quorum.messages import Envelope
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import RECEIVE_BYTES_MAX
from ottla.node.internal.peers import end_if_cancelled
from ottla.node.internal.remote import RemoteDoor
from ottla.node.internal.sender import Sender
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.stage import run, until

SOMEWHERE = Address("127.0.0.1", 1)


class BreakingCall:
    """A call that never begins. The first one has broken when its reader is cancelled."""

    def __init__(self, channel: BreakingChannel) -> None:
        self._channel = channel

    async def _break(self) -> bytes:
        self._channel.waiting += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self._channel.waiting > 1:
                raise
            nothing = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Socket closed"
            ) from None
        return b""

    async def wait_for_connection(self) -> None:
        await self._break()

    def __await__(self):  # type: ignore[no-untyped-def]  # as those of gRPC
        return self._break().__await__()

    def cancel(self) -> bool:
        return False


class BreakingChannel:
    """The first call breaks when whoever waits is cancelled."""

    def __init__(self) -> None:
        self.waiting = 0

    def stream_stream(self, _: str) -> Callable[..., BreakingCall]:
        return lambda *_, **__: BreakingCall(self)

    def unary_unary(self, _: str) -> Callable[..., BreakingCall]:
        return lambda *_, **__: BreakingCall(self)

    async def close(self) -> None:
        pass


class BreakingChannels(Channels):
    """Leads to one channel of that kind."""

    def __init__(self) -> None:
        super().__init__(None)
        self.channel = BreakingChannel()

    def fresh(
        self, node_id: int, address: Address, *, receive_bytes_max: int = RECEIVE_BYTES_MAX
    ) -> grpc.aio.Channel:
        return cast(grpc.aio.Channel, self.channel)


class NoMember:
    """A member that takes everything and does nothing."""

    def deliver(self, envelope: Envelope, *, verified_as: int | None = None) -> bool:
        return True

    def open_stream(self, peer: int, told: Callable[[str], None]) -> bool:
        return True

    def close_stream(self, peer: int) -> bool:
        return True

    def accept_stream(self, peer: int, stream: str) -> bool:
        return True

    def process_is_gone(self, peer: int) -> bool:
        return True


def test_z3_a_sender_that_is_cancelled_while_its_stream_breaks_dials_no_more() -> None:
    async def story() -> None:
        channels = BreakingChannels()
        sender = Sender(
            me=WhoIAm(1, uuid4(), "c"),
            directory_id="d",
            peer=2,
            address=SOMEWHERE,
            channels=channels,
            member=NoMember(),
            dice=Random(0),
            on_lost=lambda *_: None,
        )
        task = asyncio.create_task(sender.run())
        await until(lambda: channels.channel.waiting)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()
        assert channels.channel.waiting == 1

    run(story)


def test_a_question_to_a_controller_that_is_cancelled_while_it_breaks_was_cancelled() -> None:
    async def story() -> None:
        channels = BreakingChannels()
        door = RemoteDoor(2, SOMEWHERE, channels, cluster_id=lambda: "c")
        task = asyncio.create_task(door.read_version())
        await until(lambda: channels.channel.waiting)
        task.cancel()
        await asyncio.wait([task], timeout=5)
        assert task.cancelled()

    run(story)


def test_whoever_is_not_to_end_goes_on() -> None:
    async def story() -> None:
        end_if_cancelled()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        # A time limit that was kept is no cancellation.
        end_if_cancelled()

    run(story)
