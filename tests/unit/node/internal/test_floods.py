"""Strangers who speak HTTP/2 well enough to be a nuisance: the quorum does not notice them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import grpc
import pytest

from ottla.controller.quorum.port import Committed
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import IDENTIFY
from ottla.node.internal.sender import RAFT
from ottla.proto.options.endpoints import Address
from tests.unit.node.internal.stage import ask, listen_to_logs, quorum, run

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY = 0x0, 0x1, 0x3, 0x4, 0x6, 0x7
END_HEADERS = 0x4

_NO_TIME = grpc.StatusCode.DEADLINE_EXCEEDED


def frame(kind: int, payload: bytes, *, flags: int = 0, stream: int = 0) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


CALL = b"".join(
    literal(name, value)
    for name, value in [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", RAFT.encode()),
        (b":authority", b"node"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    ]
)


def pings() -> Iterator[bytes]:
    for _ in range(10_000):
        yield frame(PING, bytes(8))


def resets() -> Iterator[bytes]:
    for number in range(5_000):
        stream = 2 * number + 1
        yield frame(HEADERS, CALL, flags=END_HEADERS, stream=stream)
        yield frame(RST_STREAM, (8).to_bytes(4, "big"), stream=stream)


def open_streams() -> Iterator[bytes]:
    for number in range(1_000):
        yield frame(HEADERS, CALL, flags=END_HEADERS, stream=2 * number + 1)


def endless_headers() -> Iterator[bytes]:
    for number in range(200):
        header = literal(b"x-%d" % number, b"y" * 100) * 100
        yield frame(HEADERS if number == 0 else 0x9, header, stream=1)


async def flood(address: Address, frames: Iterator[bytes]) -> bytes:
    """Send frames as fast as they are taken; return what came back, at most for a while."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(PREFACE + frame(SETTINGS, b""))
    answered = bytearray()
    try:
        async with asyncio.timeout(2):
            for each in frames:
                writer.write(each)
                await writer.drain()
            while data := await reader.read(64 * 1024):
                answered += data
    except (ConnectionError, TimeoutError):
        pass
    writer.transport.abort()
    return bytes(answered)


@pytest.mark.parametrize("frames", [pings, resets, open_streams, endless_headers])
def test_a_flood_is_borne(frames: object) -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3) as peers:
            leader = await peers.leader()
            assert callable(frames)
            await flood(leader.address, frames())
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
            assert "peer_lost" not in log.getvalue()
            channels = Channels(None)
            assert await ask(channels.to(leader.node_id, leader.address), IDENTIFY, b"")
            await channels.close()

    run(story)


def test_more_metadata_than_any_call_needs_is_refused() -> None:
    async def story() -> None:
        async with quorum(1) as peers:
            channels = Channels(None)
            call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
            call = channels.to(1, peers.peers[1].address).unary_unary(IDENTIFY)
            with pytest.raises(grpc.aio.AioRpcError, match="metadata size exceeds") as error:
                await call(b"", metadata=(("x", "y" * 20_000),))
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            await channels.close()

    run(story)


def test_calls_that_have_no_time_harm_nobody() -> None:
    async def story() -> None:
        async with quorum(1) as peers:
            channels, address = Channels(None), peers.peers[1].address
            channel = channels.to(1, address)
            calls = [ask(channel, IDENTIFY, b"", timeout_s=0) for _ in range(200)]
            for found in await asyncio.gather(*calls, return_exceptions=True):
                # A quick answer may come before the end is noticed.
                if isinstance(found, BaseException):
                    assert isinstance(found, grpc.aio.AioRpcError)
                    # Or there are too many on one connection: gRPC gives up before the listener
                    # has told how many it takes, or has heard that the others have ended.
                    assert found.code() in (_NO_TIME, grpc.StatusCode.UNAVAILABLE)
            # Anybody else: a connection that was flooded may still be full.
            fresh = channels.fresh(1, address)
            assert await ask(fresh, IDENTIFY, b"")
            await fresh.close()
            await channels.close()

    run(story)
