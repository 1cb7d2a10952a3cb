"""The INTERNAL listener takes its address at once, and channels lead to it."""

from __future__ import annotations

import asyncio
import socket
from uuid import uuid4

import grpc
import pytest

from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import IDENTIFY, WhoIAm, identity_handler, quorum_service
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.wire import decode_identity
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.stage import ANYWHERE, ask, run


async def identify(channels: Channels, address: Address) -> int:
    return decode_identity(await ask(channels.to(1, address), IDENTIFY, b"")).node_id


def test_an_address_that_is_taken_is_refused_with_what_to_do() -> None:
    async def story() -> None:
        first = InternalListener(ANYWHERE, None)
        address = first.bind()
        with pytest.raises(ConfigError) as error:
            InternalListener(address, None).bind()
        assert str(error.value) == (
            f"cannot listen on {address}: Address already in use. "
            "Is another node running? Choose another: listeners=INTERNAL://127.0.0.1:19093"
        )
        await first.stop()

    run(story)


def test_an_address_that_is_not_here_is_refused() -> None:
    async def story() -> None:
        for host in ("192.0.2.1", "no-such-host.invalid"):
            with pytest.raises(ConfigError, match="cannot listen on"):
                InternalListener(Address(host, 0), None).bind()

    run(story)


def test_an_address_is_free_again_after_the_stop() -> None:
    async def story() -> None:
        listener = InternalListener(ANYWHERE, None)
        address = listener.bind()
        await listener.start()
        await listener.stop(0)
        again = InternalListener(address, None)
        assert again.bind() == address
        await again.stop()

    run(story)


def test_a_host_that_is_left_out_means_every_address() -> None:
    async def story() -> None:
        listener = InternalListener(Address("", 0), None)
        listener.add(quorum_service(identity_handler(WhoIAm(7, uuid4()))))
        address = listener.bind()
        await listener.start()
        channels = Channels(None)
        assert await identify(channels, Address("127.0.0.1", address.port)) == 7
        await channels.close()
        await listener.stop()

    run(story)


def test_what_is_added_after_the_start_is_served_from_then_on() -> None:
    async def story() -> None:
        listener = InternalListener(ANYWHERE, None)
        listener.add(quorum_service({}))
        address = listener.bind()
        await listener.start()
        channels = Channels(None)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await identify(channels, address)
        assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
        listener.add(quorum_service(identity_handler(WhoIAm(7, uuid4()))))
        assert await identify(channels, address) == 7
        await channels.close()
        await listener.stop()

    run(story)


def test_a_channel_is_shared_and_made_anew_when_the_address_changes() -> None:
    async def story() -> None:
        listeners = [InternalListener(ANYWHERE, None) for _ in range(2)]
        addresses = [listener.bind() for listener in listeners]
        for number, listener in enumerate(listeners):
            listener.add(quorum_service(identity_handler(WhoIAm(number, uuid4()))))
            await listener.start()
        channels = Channels(None)
        first = channels.to(1, addresses[0])
        assert channels.to(1, addresses[0]) is first
        assert await identify(channels, addresses[0]) == 0
        assert await identify(channels, addresses[1]) == 1
        assert channels.to(1, addresses[1]) is not first
        await channels.close()
        for listener in listeners:
            await listener.stop()

    run(story)


def test_a_call_to_nobody_fails_at_once() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = Address("127.0.0.1", taken.getsockname()[1])
        channels = Channels(None)
        async with asyncio.timeout(2):
            with pytest.raises(grpc.aio.AioRpcError, match="refused"):
                await identify(channels, address)
        await channels.close()

    run(story)
