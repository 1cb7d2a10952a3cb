"""The door of a controller elsewhere: whatever goes wrong, it says that it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from ottla.controller.door import DoorClosedError
from ottla.node.internal import remote
from ottla.node.internal.channels import Channels
from ottla.node.internal.remote import RemoteDoor
from ottla.node.internal.service import SERVICE
from ottla.proto.gen import cluster_pb2 as pb
from ottla.proto.options.endpoints import Address
from tests.unit.controller.cluster import CLUSTER_ID
from tests.unit.controller.controllers import Broker
from tests.unit.node.internal.site import Site, followed, on_site, started


def test_where_nobody_listens_every_call_says_so() -> None:
    async def story(site: Site) -> None:
        await site.listener.stop(0)
        door = site.door()
        broker = Broker(1, door)
        where = f"Controller 1 at {site.address} did not answer: "
        with pytest.raises(DoorClosedError, match=where + "UNAVAILABLE"):
            await door.register(broker.wanted)
        with pytest.raises(DoorClosedError, match=where + "UNAVAILABLE"):
            await door.propose(b"", client="c")
        with pytest.raises(DoorClosedError, match=where + "UNAVAILABLE"):
            await door.describe_quorum()
        with pytest.raises(DoorClosedError, match=where):
            await broker.beat()
        with pytest.raises(DoorClosedError, match=where + "UNAVAILABLE"):
            await anext(door.follow(-1, b""))

    on_site(story)


def test_when_the_listener_stops_lines_and_followers_end() -> None:
    async def story(site: Site) -> None:
        broker = (await started(site, 1))[1]
        stream = site.door().follow(-1, b"")
        image = await followed(stream, None)
        assert image.cluster_id == CLUSTER_ID
        await site.listener.stop(0)
        with pytest.raises(DoorClosedError):
            await anext(stream)
        with pytest.raises(DoorClosedError):
            await broker.beat()
        with pytest.raises(DoorClosedError, match="is broken"):
            await broker.beat()

    on_site(story)


def test_when_the_channels_are_closed_calls_end_as_closed_and_not_as_cancelled() -> None:
    async def story(site: Site) -> None:
        broker = (await started(site, 1))[1]
        stream = site.door().follow(site.feed.image.version, site.feed.image.digest)
        waiting = asyncio.ensure_future(anext(stream))
        await broker.beat()
        await site.channels.close()
        with pytest.raises(DoorClosedError):
            await waiting
        with pytest.raises(DoorClosedError):
            await broker.beat()

    on_site(story)


def test_a_beat_that_is_cancelled_breaks_the_line() -> None:
    async def story(site: Site) -> None:
        broker = (await started(site, 1))[1]
        beating = asyncio.ensure_future(broker.beat())
        await asyncio.sleep(0)
        beating.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beating
        with pytest.raises(DoorClosedError, match="is broken"):
            await broker.beat()

    on_site(story)


def test_a_name_that_does_not_resolve_is_a_closed_door() -> None:
    async def story(site: Site) -> None:
        site.address = Address("nowhere.invalid", 1)
        with pytest.raises(DoorClosedError, match=r"Controller 1 at nowhere\.invalid:1"):
            await site.door().read_version()

    on_site(story)


# ── A controller that answers nonsense, or nothing ────────────────────────────────────────────


def against(answer: Callable[[Any], Any], story: Callable[[RemoteDoor], Any]) -> None:
    """Tell a story of a door behind which somebody else answers."""

    async def unary(_: bytes, context: Any) -> Any:
        return await answer(context)

    async def stream(_: Any, context: Any) -> None:
        await context.write(await answer(context))

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(unary)
        for name in ("Register", "Propose", "ReadVersion", "DescribeQuorum")
    }
    handlers["Heartbeats"] = grpc.stream_stream_rpc_method_handler(stream)
    handlers["Follow"] = grpc.unary_stream_rpc_method_handler(stream)

    async def whole() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        channels = Channels(None)
        try:
            async with asyncio.timeout(20):
                await story(RemoteDoor(1, Address("127.0.0.1", port), channels))
        finally:
            await channels.close()
            await server.stop(0.5)

    asyncio.run(whole())


async def _every_call_is_closed(door: RemoteDoor) -> None:
    broker = Broker(1, door)
    with pytest.raises(DoorClosedError):
        await door.register(broker.wanted)
    with pytest.raises(DoorClosedError):
        await door.propose(b"", client="c")
    with pytest.raises(DoorClosedError):
        await door.read_version()
    with pytest.raises(DoorClosedError):
        await door.describe_quorum()
    with pytest.raises(DoorClosedError):
        await broker.beat()


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"\x80\x04K\x01.", b"x" * 100], ids=["empty", "ff", "pickle", "text"]
)
def test_an_answer_that_is_none_is_a_closed_door(data: bytes) -> None:
    async def answer(_: object) -> bytes:
        return data

    against(answer, _every_call_is_closed)


@pytest.mark.parametrize(
    "part",
    [
        pb.NewsPart(version=1, data=b"x", left=1 << 40),
        pb.NewsPart(version=1, data=b"x", left=-5),
        pb.NewsPart(version=1, left=5),
        pb.NewsPart(version=1, data=b"whole"),
    ],
    ids=["huge", "negative", "empty", "over"],
)
def test_news_that_cannot_be_end_the_stream(part: pb.NewsPart) -> None:
    async def answer(_: object) -> bytes:
        return part.SerializeToString()

    async def story(door: RemoteDoor) -> None:
        stream = door.follow(-1, b"")
        if part.data == b"whole":
            assert (await anext(stream)).data == b"whole"
        with pytest.raises(DoorClosedError):
            await anext(stream)

    against(answer, story)


def test_a_controller_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REGISTER_S", "PROPOSE_S", "READ_S", "DESCRIBE_S", "BEAT_S"):
        monkeypatch.setattr(remote, name, 0.05)

    async def answer(_: object) -> bytes:
        await asyncio.Event().wait()
        return b""

    against(answer, _every_call_is_closed)


def test_a_controller_that_hangs_up_is_a_closed_door() -> None:
    async def answer(context: Any) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "z" * 3000)
        return b""

    async def story(door: RemoteDoor) -> None:
        with pytest.raises(DoorClosedError, match="RESOURCE_EXHAUSTED z") as caught:
            await door.read_version()
        assert len(str(caught.value)) < 700
        await _every_call_is_closed(door)

    against(answer, story)
