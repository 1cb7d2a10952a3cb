"""The leader's end of replication streams, over real sockets."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from struct import Struct
from typing import Any

import grpc
import pytest

from ottla.node.internal.cable import Buffer
from ottla.node.internal.channels import Channels
from ottla.node.internal.entrance import TICKET_BYTES
from ottla.node.internal.replication_service import EPOCH_KEY, FOLLOWER_KEY, OPEN
from ottla.node.internal.service import CLUSTER_KEY, NODE_KEY
from ottla.node.internal.tls import Tls, name_of
from ottla.proto.replication import ASK_BYTES_MAX
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.link import (
    CLUSTER_ID,
    DEADLINE_S,
    GARBAGE,
    Leader,
    NotedFeeder,
    following,
    leader,
    pulling,
    run,
    until,
)
from tests.unit.node.internal.stage import listen_to_logs

CALLER: dict[str, str | bytes] = {
    NODE_KEY: "1",
    CLUSTER_KEY: CLUSTER_ID.encode(),
    FOLLOWER_KEY: "2",
    EPOCH_KEY: "7",
}


FRAME = Struct(">I")
FAREWELL = 1 << 31


async def ticket(node: Leader, *, tls: Tls | None = None, **changes: str | bytes) -> bytes:
    """Ask for a ticket, and return what is answered."""
    told = CALLER | {key.replace("_", "-"): value for key, value in changes.items()}
    channel = Channels(tls).fresh(1, node.address)
    metadata = grpc.aio.Metadata(*((key, value) for key, value in told.items() if value))
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(OPEN)
    try:
        return await method(b"", metadata=metadata, timeout=DEADLINE_S)
    finally:
        await channel.close()


class Cable:
    """A stream as somebody opens it who keeps to nothing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(
        cls, node: Leader, *, tls: Tls | None = None, number: bytes = b"", **changes: str | bytes
    ) -> Cable:
        number = number or (await ticket(node, tls=tls, **changes))[:TICKET_BYTES]
        reader, writer = await asyncio.open_connection(
            node.entrance_address.host,
            node.entrance_address.port,
            ssl=None if tls is None else tls.calling_context(),
            server_hostname=None if tls is None else name_of(1),
        )
        writer.write(number)
        return cls(reader, writer)

    async def ask(self, frame: bytes) -> None:
        self.writer.write(FRAME.pack(len(frame)) + frame)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """Return the next frame that is no beat."""
        while not (size := await self._size()):
            pass
        assert size < FAREWELL
        return await self.reader.readexactly(size)

    async def _size(self) -> int:
        return int(FRAME.unpack(await self.reader.readexactly(FRAME.size))[0])

    async def end(self) -> str:
        """Return how the other end ended it; nothing else is to come before."""
        try:
            while not (size := await self._size()):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            return ""
        finally:
            self.writer.close()
        assert size >= FAREWELL
        why = (await self.reader.readexactly(size - FAREWELL)).decode()
        assert await self.reader.read() == b""
        return why

    def close(self) -> None:
        self.writer.close()


async def refusal(
    node: Leader, *, tls: Tls | None = None, **changes: str | bytes
) -> tuple[grpc.StatusCode, str]:
    """Return why no ticket is given."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await ticket(node, tls=tls, **changes)
    return caught.value.code(), caught.value.details() or ""


def test_frames_go_both_ways_and_what_happens_in_one_turn_is_one_answer() -> None:
    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"first")
            feeder = await node.fed()
            for news in (b"a", b"b", b"c"):
                feeder.tell(news)
            assert await cable.answer() == b"=abc"
            feeder.tell(b"d")
            feeder.tell(b"e")
            await cable.ask(b"second")
            assert await cable.answer() == b"=de"
            assert feeder.heard == [b"first", b"second"]
            assert node.service.followers == [2]
            cable.close()
            await until(lambda: feeder.closings == 1)

    run(story)


def test_v4_a_leader_hears_also_while_an_answer_is_not_taken() -> None:
    """What a follower holds must be heard while more than fits is on its way to it."""

    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"first")
            feeder = await node.fed()
            large = bytes(24 << 20)
            feeder.tell(large)
            await until(lambda: not feeder.news)
            await cable.ask(b"second")
            await until(lambda: feeder.heard == [b"first", b"second"])
            feeder.tell(b"b")
            # Nobody has read until now.
            assert await cable.answer() == b"=" + large
            assert await cable.answer() == b"=b"
            cable.close()
            await until(lambda: feeder.closings == 1)

    run(story)


def test_an_ask_is_answered_with_nothing_when_its_time_has_come() -> None:
    async def story() -> None:
        async with leader(wait_ms=30) as node:
            cable = await Cable.open(node)
            for _ in range(3):
                await cable.ask(b"ask")
                assert await cable.answer() == b"="
            cable.close()

    run(story)


def test_a_follower_that_goes_closes_its_feeder() -> None:
    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"ask")
            feeder = await node.fed()
            cable.close()
            await until(lambda: feeder.closings)
            # Nobody is there to hear it, and nobody minds.
            feeder.tell(b"late")
            assert node.service.followers == []

    run(story)


def test_the_newest_stream_of_a_follower_takes_the_place_of_the_one_before() -> None:
    async def story() -> None:
        async with leader() as node:
            cables = []
            for number, epoch in enumerate(("7", "7", "8")):
                cables.append(await Cable.open(node, ottla_broker_epoch=epoch))
                await cables[-1].ask(b"ask")
                await node.fed(number)
            assert [one.closings for one in node.feeders] == [1, 1, 0]
            for cable in cables[:2]:
                why = await cable.end()
                assert why == "A newer stream of broker 2 has taken the place of this one."
            node.feeders[2].tell(b"news")
            assert await cables[2].answer() == b"=news"
            cables[2].close()

    run(story)


def test_an_earlier_life_of_a_follower_does_not_end_the_stream_of_the_present_one() -> None:
    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"ask")
            feeder = await node.fed()
            code, why = await refusal(node, ottla_broker_epoch="6")
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert why == "Broker 2 has begun another life since, and pulls from here."
            feeder.tell(b"news")
            assert await cable.answer() == b"=news"
            cable.close()

    run(story)


def test_what_is_no_ask_ends_its_own_stream_only_and_is_told_once() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with leader() as node:
            other = await Cable.open(node, ottla_from="3")
            await other.ask(b"ask")
            feeder = await node.fed()
            for _ in range(2):
                cable = await Cable.open(node)
                await cable.ask(GARBAGE)
                assert await cable.end() == "This is no ask."
            assert log.getvalue().count("stream_malformed") == 1
            feeder.tell(b"news")
            assert await other.answer() == b"=news"
            other.close()

    run(story)


def test_more_than_the_listener_takes_ends_the_stream() -> None:
    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"ask")
            await node.fed()
            cable.writer.write(FRAME.pack(ASK_BYTES_MAX + 1))
            why = "A frame of 1048577 bytes is larger than max, 1048576."
            assert await cable.end() == why
            await until(lambda: [one.closings for one in node.feeders] == [1])

    run(story)


REFUSED: dict[str, tuple[dict[str, str | bytes], grpc.StatusCode, str]] = {
    "another node": (
        {"ottla_to": "3"},
        grpc.StatusCode.FAILED_PRECONDITION,
        "This is node 1, and node '3' was meant.",
    ),
    "no node": (
        {"ottla_to": ""},
        grpc.StatusCode.FAILED_PRECONDITION,
        "This is node 1, and node nothing was meant.",
    ),
    "another cluster": (
        {"ottla_cluster_bin": b"elsewhere"},
        grpc.StatusCode.FAILED_PRECONDITION,
        "This is the cluster 'cluster', and 'elsewhere' was meant.",
    ),
    "a stranger": (
        {"ottla_from": "9"},
        grpc.StatusCode.FAILED_PRECONDITION,
        "Node 9 is not among the other brokers that this one knows.",
    ),
    "itself": (
        {"ottla_from": "1"},
        grpc.StatusCode.FAILED_PRECONDITION,
        "Node 1 is not among the other brokers that this one knows.",
    ),
    "nobody": (
        {"ottla_from": ""},
        grpc.StatusCode.INVALID_ARGUMENT,
        "ottla-from must be a number, and is nothing.",
    ),
    "no number": (
        {"ottla_from": "-2"},
        grpc.StatusCode.INVALID_ARGUMENT,
        "ottla-from must be a number, and is '-2'.",
    ),
    "a number without end": (
        {"ottla_broker_epoch": "9" * 20},
        grpc.StatusCode.INVALID_ARGUMENT,
        f"ottla-broker-epoch must be a number, and is '{'9' * 20}'.",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_whoever_should_not_pull_here_is_told_why(name: str) -> None:
    changes, code, why = REFUSED[name]

    async def story() -> None:
        async with leader() as node:
            assert await refusal(node, tls=None, **changes) == (code, why)
            assert not node.feeders

    run(story)


def test_with_certificates_a_follower_speaks_for_itself_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with leader(tls=authority.tls(1)) as node:
            code, why = await refusal(node, tls=authority.tls(3))
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert why == "The certificate is that of node 3, and not of node 2."
            nameless = Tls.from_files(authority.keys("elsewhere"), authority.trusted)
            code, why = await refusal(node, tls=nameless)
            assert code is grpc.StatusCode.PERMISSION_DENIED
            assert why == "The certificate is that of no node, and not of node 2."
            assert not node.feeders
            async with pulling(node.where, following(tls=authority.tls(2))) as (_, puller):
                (await node.fed()).tell(b"news")
                await until(lambda: puller.answers == [b"=news"])

    run(story)


def test_a_silent_stream_is_ended_and_one_that_waits_for_an_answer_is_not() -> None:
    async def story() -> None:
        async with leader(silent_ms=500, beat_ms=50) as node:
            waiting = await Cable.open(node, ottla_from="3")
            await waiting.ask(b"ask")
            feeder = await node.fed()
            assert await (await Cable.open(node)).end() == "Nothing was asked for long."
            assert node.service.followers == [3]
            feeder.tell(b"news")
            assert await waiting.answer() == b"=news"
            # It has its answer, and has to ask again.
            assert await waiting.end() == "Nothing was asked for long."

    run(story)


def test_a_broker_that_stops_ends_its_streams_and_begins_none() -> None:
    async def story() -> None:
        async with leader() as node:
            cable = await Cable.open(node)
            await cable.ask(b"ask")
            feeder = await node.fed()
            await node.service.stop()
            assert feeder.closings == 1
            assert await cable.end() == "This broker is stopping."
            code, why = await refusal(node)
            assert code is grpc.StatusCode.UNAVAILABLE
            assert why == "This broker serves no follower at the moment."

    run(story)


def test_a_line_that_begins_while_the_broker_stops_is_not_served() -> None:
    async def story() -> None:
        async with leader() as node:
            number = (await ticket(node))[:TICKET_BYTES]
            near, far = socket.socketpair()
            found = node.service.redeem(number)
            assert found is not None
            far.setblocking(False)
            found.take(far)
            # Its task has not run yet.
            await node.service.stop()
            assert not node.feeders
            assert near.recv(100)[4:] == b"This broker is stopping."
            near.close()

    run(story)


class BrokenFeeder(NotedFeeder):
    """Has a bug."""

    def take(self, ask: Buffer) -> None:
        self.wake()

    def next_answer(self) -> list[bytes | memoryview] | None:
        raise AssertionError("a bug")


def test_a_bug_behind_a_stream_is_reported_and_ends_the_stream() -> None:
    reported: list[Any] = []

    async def story() -> None:
        node = Leader()
        node.service._make_feeder = lambda who, wake, _: BrokenFeeder(who, wake)  # type: ignore[misc]
        await node.start()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, what: reported.append(what["exception"]))
        cable = await Cable.open(node)
        await cable.ask(b"ask")
        assert await cable.end() == "A bug at the leader."
        await node.stop()

    run(story)
    assert [str(error) for error in reported] == ["a bug"]
