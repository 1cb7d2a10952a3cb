"""hostile-input.md, "Framing/transport": "1 byte/10 s", "half frame then silence", idle clients.

A real listener on loopback in this process, whose time a test moves: nothing is waited for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import pytest

from ottla.node import metric_table
from ottla.node.clock import Clock
from ottla.node.kafka.connection import SLOTS_MAX, Connection
from ottla.node.kafka.listener import Listener, ListenerSettings
from ottla.node.kafka.slot import Slot
from ottla.node.metrics import Metrics
from ottla.proto.options.endpoints import Address
from tests.hostile.stage import framed

GRACE_S: Final = 5
IDLE_S: Final = 600
SETTINGS: Final = ListenerSettings(
    request_bytes_max=1 << 20,
    connections_max=20,
    connections_per_host_max=20,
    idle_ms_max=IDLE_S * 1000,
)


class MovedLoop(asyncio.SelectorEventLoop):
    """Timers become due as soon as a test has moved the time."""

    moved_s: float = 0.0

    def time(self) -> float:
        return super().time() + self.moved_s


class MovedClock(Clock):
    def __init__(self, loop: MovedLoop) -> None:
        self._loop = loop

    def monotonic_ms(self) -> int:
        return self.monotonic_us() // 1000

    def monotonic_us(self) -> int:
        return int(self._loop.time() * 1_000_000)


class Scene:
    """A listener that echoes each request, and clients of it."""

    def __init__(self, loop: MovedLoop, settings: ListenerSettings = SETTINGS) -> None:
        self.loop = loop
        self.metrics = Metrics(version="0")
        self.held: list[Slot] = []
        self.holds = False
        # What is held are fetches that wait.
        self.waits = False
        clock = MovedClock(loop)
        addresses = {"CLIENT": Address("127.0.0.1", 0)}
        self.listener = Listener(
            addresses, lambda: settings, self._serve, clock=clock, metrics=self.metrics
        )
        self.address = self.listener.bind()["CLIENT"]
        self.listener.start()

    def _serve(self, connection: Connection, frame: memoryview) -> None:
        slot = connection.open_slot(len(frame))
        if self.holds:
            self.held.append(slot)
            if self.waits:
                connection.begin_wait(lambda: None)
        else:
            slot.answer((framed(bytes(frame)),))

    async def client(self) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await self.loop.sock_connect(sock, (self.address.host, self.address.port))
        await self.settled()
        return sock

    async def settled(self) -> None:
        """Let everything that is due happen."""
        for _ in range(8):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        """Move the time in steps of a second, so that every sweep sees its own moment."""
        while seconds > 0:
            step = min(1.0, seconds)
            self.loop.moved_s += step
            seconds -= step
            await self.settled()

    async def is_open(self, sock: socket.socket) -> bool:
        try:
            return await asyncio.wait_for(self.loop.sock_recv(sock, 1), 0.01) != b""
        except TimeoutError:
            return True
        except ConnectionError:
            return False


def play(
    story: Callable[[Scene], Awaitable[None]], settings: ListenerSettings = SETTINGS
) -> Metrics:
    loop = MovedLoop()

    async def run() -> Metrics:
        scene = Scene(loop, settings)
        try:
            await story(scene)
        finally:
            scene.listener.stop()
        assert not scene.listener.connections
        return scene.metrics

    try:
        return loop.run_until_complete(run())
    finally:
        loop.close()


def test_a_byte_every_ten_seconds_is_cut_off_after_the_grace() -> None:
    async def story(scene: Scene) -> None:
        slow, honest = await scene.client(), await scene.client()
        with slow, honest:
            frame = framed(bytes(100))
            await scene.loop.sock_sendall(slow, frame[:1])
            await scene.settled()
            await scene.pass_time(GRACE_S - 1)
            await scene.loop.sock_sendall(slow, frame[1:2])
            assert await scene.is_open(slow)
            await scene.pass_time(3)
            assert not await scene.is_open(slow)
            # Whoever has begun nothing is not slow.
            assert await scene.is_open(honest)

    play(story)


def test_half_a_frame_and_then_silence_is_cut_off() -> None:
    async def story(scene: Scene) -> None:
        half = await scene.client()
        with half:
            await scene.loop.sock_sendall(half, framed(bytes(100))[:50])
            await scene.settled()
            await scene.pass_time(GRACE_S + 2)
            assert not await scene.is_open(half)

    play(story)


def test_a_large_request_has_the_time_its_size_takes_at_16_kib_a_second() -> None:
    async def story(scene: Scene) -> None:
        large = await scene.client()
        with large:
            frame = framed(bytes(512 << 10))
            await scene.loop.sock_sendall(large, frame[:1000])
            await scene.settled()
            # 5 s, and 512 KiB at 16 KiB/s: 37 s.
            await scene.pass_time(35)
            assert await scene.is_open(large)
            await scene.pass_time(4)
            assert not await scene.is_open(large)

    play(story)


def test_the_next_request_has_its_own_time() -> None:
    async def story(scene: Scene) -> None:
        client = await scene.client()
        with client:
            frame = framed(b"ping")
            await scene.loop.sock_sendall(client, frame[:3])
            await scene.settled()
            await scene.pass_time(4)
            # The first ends in time, and the second begins with it.
            await scene.loop.sock_sendall(client, frame[3:] + frame[:3])
            await scene.settled()
            assert await scene.loop.sock_recv(client, 100) == frame
            await scene.pass_time(4)
            assert await scene.is_open(client)
            await scene.pass_time(3)
            assert not await scene.is_open(client)

    play(story)


def test_an_idle_connection_is_closed_after_connections_max_idle_ms() -> None:
    async def story(scene: Scene) -> None:
        idle, busy = await scene.client(), await scene.client()
        with idle, busy:
            await scene.pass_time(IDLE_S - 2)
            await scene.loop.sock_sendall(busy, framed(b"ping"))
            await scene.settled()
            assert await scene.loop.sock_recv(busy, 100) == framed(b"ping")
            await scene.pass_time(5)
            assert not await scene.is_open(idle)
            assert await scene.is_open(busy)

    play(story)


def test_who_sends_a_large_request_slowly_is_not_idle() -> None:
    """The kernel collects it meanwhile, and the node is not called for a long time."""
    request = framed(bytes(1_000_000))

    async def story(scene: Scene) -> None:
        with await scene.client() as client:
            # The time of the kernel does not move: what is small must not wait for anything there.
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Large ones before it, so that node and kernel have buffers for the next.
            for _ in range(8):
                await scene.loop.sock_sendall(client, request)
                left = len(request)
                while left:
                    left -= len(await scene.loop.sock_recv(client, left))
            await scene.loop.sock_sendall(client, request[:100_000])
            await scene.settled()
            (connection,) = scene.listener.connections
            assert connection.collecting.stop()
            for at in range(100_000, 400_000, 100_000):
                for part in range(at, at + 100_000, 20_000):
                    await scene.loop.sock_sendall(client, request[part : part + 20_000])
                    await scene.pass_time(1)
                assert await scene.is_open(client)
            # One that has stopped in the middle is idle, as before.
            await scene.pass_time(8)
            assert not await scene.is_open(client)

    play(story, replace(SETTINGS, idle_ms_max=3_000))


def test_who_waits_for_an_answer_is_neither_idle_nor_slow() -> None:
    async def story(scene: Scene) -> None:
        scene.holds = scene.waits = True
        waiting, alone = await scene.client(), await scene.client()
        with waiting, alone:
            # One request that the node does not answer yet, with the beginning of the next.
            await scene.loop.sock_sendall(waiting, framed(b"ping") + framed(b"pong")[:2])
            await scene.loop.sock_sendall(alone, framed(b"ping"))
            await scene.settled()
            await scene.pass_time(IDLE_S + 60)
            for client, slot in zip((waiting, alone), scene.held, strict=True):
                assert await scene.is_open(client)
                slot.connection.end_wait()
                slot.answer((framed(b"ping"),))
                assert await scene.loop.sock_recv(client, 100) == framed(b"ping")
            # From here on it is read again, and should go on.
            await scene.pass_time(GRACE_S + 2)
            assert not await scene.is_open(waiting)
            assert await scene.is_open(alone)

    play(story)


def test_half_a_request_behind_a_waiting_one_is_cut_off_if_it_is_being_read() -> None:
    async def story(scene: Scene) -> None:
        scene.holds = True
        client = await scene.client()
        with client:
            await scene.loop.sock_sendall(client, framed(b"ping") + framed(bytes(100))[:50])
            await scene.settled()
            await scene.pass_time(GRACE_S + 2)
            assert not await scene.is_open(client)

    play(story)


def test_behind_a_fetch_that_waits_no_more_than_one_buffer_is_read() -> None:
    async def story(scene: Scene) -> None:
        scene.holds = scene.waits = True
        client = await scene.client()
        with client:
            await scene.loop.sock_sendall(client, framed(b"ping"))
            await scene.settled()
            sending = asyncio.ensure_future(
                scene.loop.sock_sendall(client, framed(bytes(1 << 20))[: 1 << 19])
            )
            await scene.pass_time(60)
            (connection,) = scene.listener.connections
            assert not connection.is_read
            assert len(connection._buffer) <= 64 << 10
            assert scene.listener.memory.lent_bytes == 0
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    play(story)


TIGHT: Final = ListenerSettings(1 << 20, 20, 20, IDLE_S * 1000, receive_bytes_max=256 << 10)


def test_half_sent_large_requests_must_hurry_when_others_need_their_memory() -> None:
    async def story(scene: Scene) -> None:
        half = framed(bytes(1 << 20))[: 200 << 10]
        lazy = [await scene.client() for _ in range(4)]
        sending = [asyncio.ensure_future(scene.loop.sock_sendall(one, half)) for one in lazy]
        for _ in range(50):
            await scene.settled()
        assert scene.listener.memory.is_short
        # Three buffers of their own, and one beyond what there is.
        assert scene.listener.memory.lent_bytes <= (256 << 10) + (1 << 20)
        honest = await scene.client()
        frame = framed(bytes(512 << 10))
        asking = asyncio.ensure_future(scene.loop.sock_sendall(honest, frame))
        # With memory for all, each had 5 s and the 64 s that 1 MiB takes at 16 KiB/s.
        for _ in range(40):
            await scene.pass_time(1)
        read = 0
        while read < len(frame):
            read += len(await asyncio.wait_for(scene.loop.sock_recv(honest, 1 << 20), 5))
        await asking
        for one in (*lazy, honest):
            one.close()
        await asyncio.gather(*sending, return_exceptions=True)

    play(story, TIGHT)


def test_who_holds_memory_that_others_need_and_reads_no_answers_is_closed() -> None:
    async def story(scene: Scene) -> None:
        deaf, wanting = await scene.client(), await scene.client()
        with deaf, wanting:
            # Half a large request, and then an answer that nobody reads: the rest is not read.
            scene.holds = True
            half = framed(b"ping") + framed(bytes(1 << 20))[: 200 << 10]
            await scene.loop.sock_sendall(deaf, half)
            for _ in range(10):
                await scene.settled()
            scene.held[0].answer((bytes(32 << 20),))
            await scene.settled()
            await scene.loop.sock_sendall(deaf, b"and")
            await scene.settled()
            (stuck,) = [one for one in scene.listener.connections if not one.is_read]
            assert scene.listener.memory.is_lent_to(stuck)
            await scene.pass_time(GRACE_S + 2)
            assert stuck in scene.listener.connections
            # Now somebody needs it.
            large = framed(bytes(1 << 20))[: 600 << 10]
            sending = asyncio.ensure_future(scene.loop.sock_sendall(wanting, large))
            for _ in range(20):
                await scene.settled()
            await scene.pass_time(2)
            assert stuck not in scene.listener.connections
            assert await scene.is_open(wanting)
            await sending

    play(story, TIGHT)


@pytest.mark.parametrize(
    ("limit", "settings"),
    [
        ("max.connections", ListenerSettings(1 << 20, 3, 20, IDLE_S * 1000)),
        ("max.connections.per.ip", ListenerSettings(1 << 20, 20, 3, IDLE_S * 1000)),
    ],
)
def test_a_connection_too_many_is_closed_at_once_and_one_that_ends_makes_room(
    limit: str, settings: ListenerSettings
) -> None:
    async def story(scene: Scene) -> None:
        clients = [await scene.client() for _ in range(4)]
        assert [await scene.is_open(client) for client in clients] == [True, True, True, False]
        for client in clients[1:]:
            client.close()
        await scene.settled()
        again = await scene.client()
        assert await scene.is_open(again)
        again.close()
        clients[0].close()

    metrics = play(story, settings)
    connections = metrics.connections_of("CLIENT")
    assert connections.created == connections.closed == 4
    assert limit in reasons_of_refusals(metrics)


def test_a_request_that_we_did_not_read_meanwhile_is_not_slow() -> None:
    async def story(scene: Scene) -> None:
        scene.holds = True
        client = await scene.client()
        with client:
            # Behind the last that may wait, half a request stays unread.
            many = framed(b"ping") * SLOTS_MAX
            await scene.loop.sock_sendall(client, many + framed(b"pong")[:6])
            await scene.settled()
            assert len(scene.held) == SLOTS_MAX
            await scene.pass_time(60)
            for slot in scene.held:
                slot.answer((framed(b"ping"),))
            await scene.pass_time(GRACE_S - 1)
            read = b""
            while len(read) < len(many):
                read += await scene.loop.sock_recv(client, 1 << 16)
            assert read == many
            assert await scene.is_open(client)
            await scene.pass_time(3)
            assert not await scene.is_open(client)

    play(story)


def test_who_does_not_read_answers_is_closed_as_idle_and_not_as_slow() -> None:
    async def story(scene: Scene) -> None:
        client = await scene.client()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with client:
            frame = framed(bytes(256 << 10))
            writing = asyncio.ensure_future(scene.loop.sock_sendall(client, frame * 60))
            for _ in range(200):
                await scene.settled()
            (connection,) = scene.listener.connections
            assert not connection.is_read
            await scene.pass_time(60)
            assert scene.listener.connections
            await scene.pass_time(IDLE_S)
            assert not scene.listener.connections
            writing.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await writing

    play(story)


def reasons_of_refusals(metrics: Metrics) -> list[str]:
    return [
        reading.labels[0]
        for part in metrics.sources()
        for reading in part
        if reading.row is metric_table.REFUSED
    ]
