"""Bad input on Raft streams: each is refused with its reason, and the quorum does not notice."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from ottla.controller.quorum.messages import Envelope, RequestVote
from ottla.controller.quorum.port import Committed
from ottla.node.internal import wire
from ottla.node.internal.channels import Channels
from ottla.node.internal.identity import IDENTIFY
from ottla.node.internal.introductions import INTRODUCE
from ottla.node.internal.sender import RAFT
from ottla.node.internal.tls import Tls, name_of
from tests.unit.controller.quorum.cluster import CLUSTER_ID
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.stage import (
    Peer,
    ask,
    fresh_incarnation,
    listen_to_logs,
    quorum,
    run,
    until,
)

GREETING = wire.Hello(CLUSTER_ID, 2, 1, "directory-2", "stream", fresh_incarnation())
HELLO = wire.encode_hello(GREETING)
# It would depose every leader.
STANDS = Envelope(
    CLUSTER_ID, 2, 1, "directory-2", "stream", 1, 1_000, RequestVote(1_000, 10_000, 1_000)
)
USURPER = wire.encode_envelope(STANDS)


def hello(**changes: object) -> bytes:
    return wire.encode_hello(replace(GREETING, **changes))  # type: ignore[arg-type]


async def say(
    peer: Peer, frames: list[bytes], *, tls: Tls | None = None, node_id: int = 1
) -> tuple[grpc.StatusCode, str]:
    """Send frames on a new stream and return how it ended."""
    channels = Channels(tls)
    channel = channels.fresh(node_id, peer.address)
    call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(RAFT)()
    try:
        async with asyncio.timeout(10):
            for frame in frames:
                await call.write(frame)
                # A write after the end would hide how it ended.
                if frame is frames[0] and not isinstance(await call.read(), bytes):
                    break
            else:
                await call.read()
            return await call.code(), await call.details()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        return await call.code(), await call.details()
    finally:
        await channel.close()


STRANGE: dict[str, tuple[list[bytes], grpc.StatusCode, str, str]] = {
    "another cluster": (
        [hello(cluster_id="elsewhere"), USURPER],
        grpc.StatusCode.FAILED_PRECONDITION,
        "Node 2 is of the cluster elsewhere, and node 1 of the cluster cluster.",
        "stream_refused",
    ),
    "no voter": (
        [hello(sender=9), USURPER],
        grpc.StatusCode.PERMISSION_DENIED,
        "Node 9 is not among the other voters of node 1.",
        "stream_refused",
    ),
    "the receiver itself": (
        [hello(sender=1), USURPER],
        grpc.StatusCode.PERMISSION_DENIED,
        "Node 1 is not among the other voters of node 1.",
        "stream_refused",
    ),
    "for another node": (
        [hello(receiver=3), USURPER],
        grpc.StatusCode.FAILED_PRECONDITION,
        "This is node 1, and not node 3.",
        "stream_refused",
    ),
    "no hello": (
        [USURPER],
        grpc.StatusCode.INVALID_ARGUMENT,
        "A Raft stream did not begin with a Hello.",
        "stream_malformed",
    ),
    "garbage": (
        [b"\xff\xff\xff\xff"],
        grpc.StatusCode.INVALID_ARGUMENT,
        "A frame of a Raft stream cannot be read.",
        "stream_malformed",
    ),
    "pickled code": (
        [
            b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
        ],
        grpc.StatusCode.INVALID_ARGUMENT,
        "A frame of a Raft stream cannot be read.",
        "stream_malformed",
    ),
    "nothing": (
        [b""],
        grpc.StatusCode.INVALID_ARGUMENT,
        "A frame of a Raft stream is neither Hello nor envelope.",
        "stream_malformed",
    ),
    "too large for a frame": (
        [b"x" * (3 << 20)],
        grpc.StatusCode.INVALID_ARGUMENT,
        "A frame of a Raft stream has 3145728 bytes; 2097152 are allowed.",
        "stream_malformed",
    ),
}


@pytest.mark.parametrize(
    ("frames", "code", "sentence", "event"), STRANGE.values(), ids=STRANGE.keys()
)
def test_a_stream_that_begins_badly_is_refused(
    frames: list[bytes], code: grpc.StatusCode, sentence: str, event: str
) -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3) as peers:
            leader = await peers.leader()
            term = leader.member.status().term
            assert await say(peers.peers[1], frames) == (code, sentence)
            assert f'{event} why="{sentence}"' in re.sub(" peer=[0-9]", "", log.getvalue())
            assert sum(peers.peers[1].transport.counts.values()) == 1
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
            assert leader.member.status().term == term
            assert "peer_lost" not in log.getvalue()

    run(story)


def test_more_than_grpc_takes_at_once_ends_that_stream_only() -> None:
    async def story() -> None:
        async with quorum(3) as peers:
            leader = await peers.leader()
            code, details = await say(peers.peers[1], [b"x" * (5 << 20)])
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "larger than max" in details
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)

    run(story)


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (HELLO, "A Raft stream has two Hellos."),
        (b"\xff\xff", "A frame of a Raft stream cannot be read."),
        (b"", "A frame of a Raft stream is neither Hello nor envelope."),
    ],
    ids=["a second hello", "garbage", "nothing"],
)
def test_a_stream_that_goes_on_badly_ends_and_the_true_peer_dials_again(
    second: bytes, sentence: str
) -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3) as peers:
            await peers.leader()
            # Without certificates it is taken for node 2, whose own stream it ends.
            mine = hello(incarnation=peers.peers[2].me.incarnation)
            ended = await say(peers.peers[1], [mine, second])
            assert ended == (grpc.StatusCode.INVALID_ARGUMENT, sentence)
            assert f'stream_malformed peer=2 why="{sentence}"' in log.getvalue()
            assert "A newer stream of node 2 has taken the place of this one." in log.getvalue()
            await until(lambda: 1 in peers.peers[2].transport.connected)
            leader = await peers.leader()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)

    run(story)


def test_an_envelope_of_somebody_else_does_not_pass_on_a_good_stream() -> None:
    async def story() -> None:
        async with quorum(3) as peers:
            leader = await peers.leader()
            term = leader.member.status().term
            forged = wire.encode_envelope(replace(STANDS, sender=3))
            mine = hello(incarnation=peers.peers[2].me.incarnation)
            stranger = asyncio.create_task(say(peers.peers[1], [mine, forged]))
            await until(lambda: 1 not in peers.peers[2].transport.connected)
            await until(lambda: 1 in peers.peers[2].transport.connected)
            code, _ = await stranger
            assert code is grpc.StatusCode.ABORTED
            leader = await peers.leader()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
            assert leader.member.status().term < 1_000
            assert term < 1_000

    run(story)


def test_while_a_voter_is_reached_no_other_process_speaks_for_it() -> None:
    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3) as peers:
            leader = await peers.leader()
            term = leader.member.status().term
            await until(lambda: 2 in peers.peers[1].transport.connected)
            code, sentence = await say(peers.peers[1], [HELLO, USURPER])
            assert code is grpc.StatusCode.FAILED_PRECONDITION
            assert sentence.startswith("Another process is node 2, and answers at its address.")
            assert sentence in log.getvalue()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
            assert leader.member.status().term == term
            assert "peer_lost" not in log.getvalue()

    run(story)


def test_what_is_not_http2_disturbs_nobody() -> None:
    async def story() -> None:
        async with quorum(2) as peers:
            leader = await peers.leader()
            address = peers.peers[1].address
            for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" * 100, bytes(1_000)):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                writer.write(garbage)
                async with asyncio.timeout(10):
                    while await _reads(reader):
                        pass
                writer.close()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)

    run(story)


async def _reads(reader: asyncio.StreamReader) -> bool:
    try:
        return bool(await reader.read(1_000))
    except ConnectionError:
        return False


def test_an_unknown_method_is_not_implemented() -> None:
    async def story() -> None:
        async with quorum(1) as peers:
            channels = Channels(None)
            channel = channels.to(1, peers.peers[1].address)
            for method in ("/ottla.Quorum/Nothing", "/ottla.Nobody/Raft", INTRODUCE):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await ask(channel, method, b"")
                assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
            await channels.close()

    run(story)


# ── With certificates ─────────────────────────────────────────────────────────────────────────


def keys_of(authority: Authority, size: int) -> dict[int, Tls | None]:
    return {node_id: authority.tls(node_id) for node_id in range(1, size + 1)}


def test_members_with_certificates_elect_and_commit(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with quorum(3, keys_of(authority, 3)) as peers:
            leader = await peers.leader()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)

    run(story)


def test_the_certificate_of_one_node_does_not_speak_for_another(tmp_path: Path) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        log = listen_to_logs()
        async with quorum(3, keys_of(authority, 3)) as peers:
            leader = await peers.leader()
            sentence = "The certificate is that of node 3, and not of node 2."
            ended = await say(peers.peers[1], [HELLO, USURPER], tls=authority.tls(3))
            assert ended == (grpc.StatusCode.PERMISSION_DENIED, sentence)
            assert sentence in log.getvalue()
            nobody = Tls.from_files(authority.keys("host-2"), authority.trusted)
            sentence = "The certificate is that of no node, and not of node 2."
            ended = await say(peers.peers[1], [HELLO, USURPER], tls=nobody)
            assert ended == (grpc.StatusCode.PERMISSION_DENIED, sentence)
            assert "peer_lost" not in log.getvalue()
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)

    run(story)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (lambda a, o: Tls.from_files(o.keys(name_of(2)), a.trusted), ""),
        (lambda a, o: Tls.from_files(o.keys(name_of(2)), o.trusted), "CERTIFICATE_VERIFY_FAILED"),
        (lambda a, o: Tls.from_files(a.keys(name_of(2), age_days=2), a.trusted), ""),
        (lambda a, o: None, ""),
    ],
    ids=["foreign keys", "foreign authority", "expired keys", "plain text"],
)
def test_who_cannot_prove_anything_is_not_even_heard(
    keys: Callable[[Authority, Authority], Tls | None], told: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")

    async def story() -> None:
        async with quorum(2, keys_of(authority, 2)) as peers:
            leader = await peers.leader()
            ended = await say(peers.peers[1], [HELLO, USURPER], tls=keys(authority, other))
            assert ended[0] is grpc.StatusCode.UNAVAILABLE
            assert told in ended[1]
            assert isinstance(await leader.member.propose(b"on", 5_000), Committed)
            assert not peers.peers[1].transport.counts

    run(story)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (lambda a, o: a.tls(3), "not match|mismatch|[Hh]ostname|[Vv]erif"),
        (lambda a, o: o.tls(2), "CERTIFICATE_VERIFY_FAILED"),
        (
            lambda a, o: Tls.from_files(a.keys(name_of(2), age_days=2), a.trusted),
            "CERTIFICATE_VERIFY_FAILED",
        ),
        (lambda a, o: None, "[Ss]sl|SSL|handshake"),
    ],
    ids=["another node", "a foreign authority", "expired", "plain text"],
)
def test_a_node_says_why_it_does_not_believe_the_one_it_dialled(
    keys: Callable[[Authority, Authority], Tls | None], reason: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")

    async def story() -> None:
        log = listen_to_logs()
        async with quorum(2, {1: authority.tls(1), 2: keys(authority, other)}) as peers:

            def told() -> list[str]:
                lines = log.getvalue().splitlines()
                return [line for line in lines if "peer_unreachable peer=2" in line]

            await until(told)
            assert re.search(reason, told()[0])
            assert not peers.peers[1].transport.connected
            assert peers.peers[1].member.leader is None

    run(story)


def test_without_certificates_anybody_may_ask_who_is_there_and_with_them_only_nodes(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)

    async def story() -> None:
        async with quorum(1, keys_of(authority, 1)) as peers:
            for tls, is_heard in ((authority.tls(2), True), (None, False)):
                channels = Channels(tls)
                channel = channels.to(1, peers.peers[1].address)
                try:
                    answer: object = await ask(channel, IDENTIFY, b"")
                except grpc.aio.AioRpcError:
                    answer = None
                assert isinstance(answer, bytes) is is_heard
                await channels.close()

    run(story)
