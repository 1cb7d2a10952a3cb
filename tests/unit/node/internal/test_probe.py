"""What a probe finds: proof of a death, proof of life, or silence (rule 11a)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

from ottla.controller.sightings import Verdict
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import WhoIAm, identity_handler, quorum_service
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.probe import Probe
from ottla.node.internal.tls import Tls
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.stage import ANYWHERE, run


async def look(
    address: Address,
    incarnation: UUID | None,
    *,
    node_id: int = 1,
    cluster_id: str = "c",
    timeout_ms: int = 5_000,
    tls: Tls | None = None,
) -> Verdict:
    probe = Probe(Channels(tls))
    return await probe(
        address,
        node_id=node_id,
        incarnation=incarnation,
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
    )


@asynccontextmanager
async def somebody(me: WhoIAm, tls: Tls | None = None) -> AsyncIterator[Address]:
    listener = InternalListener(ANYWHERE, tls)
    listener.add(quorum_service(identity_handler(me)))
    address = listener.bind()
    await listener.start()
    try:
        yield address
    finally:
        await listener.stop(0)


def test_the_process_that_was_there_is_alive_and_another_one_proves_its_death() -> None:
    async def story() -> None:
        me = WhoIAm(1, uuid4(), "c")
        async with somebody(me) as address:
            assert await look(address, me.incarnation) is Verdict.SAME_INCARNATION
            assert await look(address, uuid4()) is Verdict.OTHER_INCARNATION
            # One that starts again does not know its cluster yet.
            me.cluster_id = ""
            assert await look(address, uuid4()) is Verdict.OTHER_INCARNATION

    run(story)


def test_somebody_else_at_the_address_proves_nothing() -> None:
    async def story() -> None:
        me = WhoIAm(1, uuid4(), "c")
        async with somebody(me) as address:
            assert await look(address, uuid4(), node_id=2) is Verdict.SILENCE
            assert await look(address, uuid4(), cluster_id="other") is Verdict.SILENCE
            assert await look(address, None) is Verdict.SILENCE

    run(story)


def test_a_port_that_nobody_listens_on_proves_the_death() -> None:
    async def story() -> None:
        async with somebody(WhoIAm(1, uuid4(), "c")) as address:
            pass
        assert await look(address, uuid4()) is Verdict.REFUSED
        assert await look(address, None) is Verdict.REFUSED
        # Wherever the name leads.
        assert await look(Address("localhost", address.port), None) is Verdict.REFUSED

    run(story)


def test_who_listens_and_does_not_answer_is_silent_and_costs_no_more_than_the_time_given() -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = Address("127.0.0.1", mute.getsockname()[1])
            began = time.monotonic()
            assert await look(address, uuid4(), timeout_ms=200) is Verdict.SILENCE
            assert time.monotonic() - began < 2

    run(story)


def test_who_hangs_up_or_is_no_node_is_silent() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async def story() -> None:
        async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
            address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
            assert await look(address, uuid4()) is Verdict.SILENCE

    run(story)


def test_a_name_that_is_not_known_is_silent() -> None:
    async def story() -> None:
        assert await look(Address("no-such-host.invalid", 1), uuid4()) is Verdict.SILENCE

    run(story)


def test_with_certificates_only_the_node_itself_is_believed(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        me = WhoIAm(1, uuid4(), "c")
        async with somebody(me, authority.tls(1)) as address:
            mine = authority.tls(2)
            assert await look(address, me.incarnation, tls=mine) is Verdict.SAME_INCARNATION
            assert await look(address, uuid4(), tls=mine) is Verdict.OTHER_INCARNATION
        # It says that it is node 1, and its certificate is that of node 3.
        async with somebody(me, authority.tls(3)) as address:
            assert await look(address, uuid4(), tls=mine) is Verdict.SILENCE

    run(story)
