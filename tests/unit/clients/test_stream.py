"""Bytes of a connection come in order, each once, however they are cut on their way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ottla.clients.dial import connect
from ottla.clients.stream import AHEAD, Stream
from ottla.proto.options.endpoints import Address


@asynccontextmanager
async def _pair() -> AsyncIterator[tuple[Stream, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Yield our end of a connection, and both ways of the other one."""
    other: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
    other = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(
        lambda reader, writer: other.set_result((reader, writer)), "127.0.0.1", 0
    )
    host, port = server.sockets[0].getsockname()[:2]
    stream = await connect(Address(host, port), 10.0)
    reader, writer = await other
    try:
        yield stream, reader, writer
    finally:
        stream.abort()
        writer.close()
        server.close()


@pytest.mark.parametrize("seed", range(5))
def test_reads_of_any_size_give_the_bytes_as_they_were_sent(seed: int) -> None:
    async def run() -> None:
        dice = random.Random(seed)
        sizes = [
            dice.choice([0, 1, 4, 100, AHEAD - 1, AHEAD, AHEAD + 1, 300_000]) for _ in range(60)
        ]
        sent = dice.randbytes(sum(sizes))

        async with _pair() as (stream, _, writer):

            async def send() -> None:
                at = 0
                while at < len(sent):
                    step = dice.choice([1, 3, 1000, AHEAD, 500_000])
                    writer.write(sent[at : at + step])
                    await writer.drain()
                    at += step

            sending = asyncio.create_task(send())
            async with asyncio.timeout(30):
                got = [bytes(await stream.read_exactly(size)) for size in sizes]
                await sending
        assert [len(one) for one in got] == sizes
        assert b"".join(got) == sent

    asyncio.run(run())


def test_nothing_is_taken_from_the_system_while_nobody_reads() -> None:
    async def run() -> None:
        async with _pair() as (stream, _, writer):
            sent = bytes(64 << 20)
            writer.write(sent)
            drain = asyncio.create_task(writer.drain())
            done, _ = await asyncio.wait([drain], timeout=0.3)
            assert not done
            async with asyncio.timeout(30):
                assert await stream.read_exactly(len(sent)) == sent
                await drain

    asyncio.run(run())


@pytest.mark.parametrize("size", [10, AHEAD + 10])
def test_an_end_inside_of_a_read_is_told_with_what_came(size: int) -> None:
    async def run() -> None:
        async with _pair() as (stream, _, writer):
            writer.write(b"abc")
            writer.close()
            with pytest.raises(asyncio.IncompleteReadError) as told:
                async with asyncio.timeout(10):
                    await stream.read_exactly(size)
            assert told.value.partial == b"abc"

    asyncio.run(run())


def test_a_short_read_that_is_given_up_loses_nothing() -> None:
    async def run() -> None:
        async with _pair() as (stream, _, writer):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await stream.read_exactly(4)
            writer.write(b"abcd")
            async with asyncio.timeout(10):
                assert await stream.read_exactly(4) == b"abcd"

    asyncio.run(run())


def test_a_long_read_that_is_given_up_ends_the_connection() -> None:
    async def run() -> None:
        async with _pair() as (stream, reader, writer):
            writer.write(b"abcd")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await stream.read_exactly(AHEAD + 1)
            async with asyncio.timeout(10):
                await stream.wait_closed()
                with pytest.raises((asyncio.IncompleteReadError, OSError)):
                    await reader.readexactly(1)

    asyncio.run(run())


def test_who_writes_faster_than_the_other_reads_waits() -> None:
    async def run() -> None:
        async with _pair() as (stream, reader, _):
            sent = bytes(64 << 20)
            stream.write(sent)
            drain = asyncio.create_task(stream.drain())
            done, _ = await asyncio.wait([drain], timeout=0.3)
            assert not done
            async with asyncio.timeout(30):
                assert len(await reader.readexactly(len(sent))) == len(sent)
                await drain

    asyncio.run(run())


def test_whoever_waits_for_room_is_let_go_when_the_connection_is_over() -> None:
    async def run() -> None:
        async with _pair() as (stream, _, _):
            stream.write(bytes(64 << 20))
            drain = asyncio.create_task(stream.drain())
            stream.abort()
            async with asyncio.timeout(10):
                await drain
                await stream.wait_closed()

    asyncio.run(run())
