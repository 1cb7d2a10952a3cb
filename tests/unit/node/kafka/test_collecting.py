"""A large request is collected by the kernel, over TCP: the node is called a few times, not for
each piece of it; and however it comes, it comes whole."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest

from ottla.node.kafka.collecting import COLLECTED_BYTES_MAX
from ottla.node.kafka.connection import Connection
from ottla.node.kafka.memory import BUFFER_USUAL
from tests.unit.node.kafka.guest import Waiter, framed, settled

LARGE = bytes(range(256)) * 4096


class Line:
    """Both ends of a TCP connection."""

    def __init__(self, receive_bytes: int | None) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            if receive_bytes is not None:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            self.guest = socket.create_connection(door.getsockname())
            self.ours, _ = door.accept()
        self.ours.setblocking(False)
        self.guest.setblocking(False)
        self.waiter = Waiter()
        self.waiter.holds = True
        self.connection = Connection(self.ours, "guest", 1, self.waiter, 0)

    @property
    def wake_bytes(self) -> int:
        return self.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.guest, data)

    async def warm(self) -> None:
        """Let large requests come until the node and its kernel have buffers for them."""
        for _ in range(8):
            await self.send(framed(LARGE))
            await self.until(lambda: self.waiter.frames == [LARGE])
            self.waiter.frames.clear()
            self.answer_all()
            await settled()

    def answer_all(self) -> None:
        for slot in self.waiter.held:
            slot.answer((b"",))
        self.waiter.held.clear()

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not is_so():
                await settled()


def on_a_line(
    story: Callable[[Line], Awaitable[None]], *, receive_bytes: int | None = None
) -> Waiter:
    async def tell() -> Waiter:
        line = Line(receive_bytes)
        try:
            async with asyncio.timeout(30):
                await story(line)
        finally:
            line.connection.close("the story is over")
            line.guest.close()
        return line.waiter

    return asyncio.run(tell())


@pytest.mark.parametrize("receive_bytes", [None, 16_384, 100_000])
def test_g1_requests_of_any_size_in_any_pieces_come_whole(receive_bytes: int | None) -> None:
    sizes = [100, BUFFER_USUAL, BUFFER_USUAL + 1, 2 * BUFFER_USUAL, COLLECTED_BYTES_MAX - 1]
    sizes += [COLLECTED_BYTES_MAX, COLLECTED_BYTES_MAX + 1, len(LARGE) - 1, len(LARGE), 3]
    orders = [LARGE[:size] for size in sizes]
    sent = b"".join(map(framed, orders))

    async def story(line: Line) -> None:
        for step in (7_919, 70_001, 300_007, len(sent)):
            line.waiter.frames.clear()
            for at in range(0, len(sent), step):
                await line.send(sent[at : at + step])
            await line.until(lambda: len(line.waiter.frames) == len(orders))
            assert line.waiter.frames == orders
            line.answer_all()
            assert line.wake_bytes == 1

    on_a_line(story, receive_bytes=receive_bytes)


def test_g1_the_last_byte_is_not_waited_for_in_vain() -> None:
    async def story(line: Line) -> None:
        await line.warm()
        order = framed(LARGE)
        await line.send(order[:100])
        await line.until(lambda: line.wake_bytes > 1)
        assert line.wake_bytes <= COLLECTED_BYTES_MAX
        await line.send(order[100:-1])
        await settled()
        assert line.waiter.frames == []
        await line.send(order[-1:])
        await line.until(lambda: line.waiter.frames == [LARGE])
        assert line.wake_bytes == 1

    on_a_line(story)


def test_g2_nothing_is_collected_for_which_nothing_was_lent() -> None:
    async def story(line: Line) -> None:
        # A length is easily said.
        await line.send(framed(LARGE)[:4])
        await settled()
        assert line.waiter.memory.lent_bytes == 0
        assert line.wake_bytes == 1

    on_a_line(story)


def test_g3_a_kernel_with_a_small_buffer_collects_nothing() -> None:
    async def story(line: Line) -> None:
        await line.warm()
        await line.send(framed(LARGE)[:1000])
        await settled()
        assert line.wake_bytes == 1

    on_a_line(story, receive_bytes=100_000)


def test_what_was_collected_is_read_when_it_is_asked_for() -> None:
    async def story(line: Line) -> None:
        await line.warm()
        await line.send(framed(LARGE)[:1000])
        await line.until(lambda: line.wake_bytes > 1)
        line.waiter.time_ms = 77
        await line.send(LARGE[:1000])
        await settled()
        assert line.connection.active_ms < 77
        assert line.connection.collecting.stop()
        await line.until(lambda: line.connection.active_ms == 77)
        # And the rest is collected again.
        await line.until(lambda: line.wake_bytes > 1)

    on_a_line(story)


def test_who_leaves_in_the_middle_is_noticed() -> None:
    async def story(line: Line) -> None:
        await line.warm()
        await line.send(framed(LARGE)[:1000])
        await line.until(lambda: line.wake_bytes > 1)
        line.guest.close()
        await line.until(lambda: line.connection.is_closed)

    assert on_a_line(story).closings == ["closed by the client"]
