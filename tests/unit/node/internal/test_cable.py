"""One connection of frames, over real sockets, in plain text and with TLS."""

from __future__ import annotations

import asyncio
import fcntl
import gc
import socket
import ssl
import sys
import termios
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from struct import Struct

import pytest

from ottla.node.internal import cable
from ottla.node.internal.cable import BUFFER_USUAL, Cable, CableEndedError, prepare
from ottla.node.internal.entrance import secured
from ottla.node.internal.tls import name_of
from ottla.proto.errors import InvariantError, RemoteProtocolError
from tests.unit.node.internal.certificates import Authority
from tests.unit.node.internal.link import run, until

FRAME = Struct(">I")
FAREWELL = 1 << 31
MAX = 8 << 20


class Ear:
    """One end, and what it has heard."""

    def __init__(self, sock: socket.socket, *, frame_bytes_max: int = MAX) -> None:
        self.heard: list[bytes] = []
        self.kept: list[memoryview] = []
        self.keeps = False
        self.taken = 0
        self.ends: list[Exception] = []
        self.cable = Cable(sock, frame_bytes_max=frame_bytes_max)

    def start(self) -> None:
        self.cable.start(self._hear, on_taken=self._taken, on_end=self.ends.append)

    def _hear(self, frame: memoryview) -> None:
        self.heard.append(bytes(frame))
        if self.keeps:
            self.kept.append(frame)

    def _taken(self) -> None:
        self.taken += 1


async def connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection over loopback, as nodes have them."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        near = socket.socket()
        prepare(near)
        await loop.sock_connect(near, server.getsockname())
        far, _ = await loop.sock_accept(server)
        prepare(far)
        return near, far


@asynccontextmanager
async def cables(keys: Path | None = None, **fields: int) -> AsyncIterator[tuple[Ear, Ear]]:
    near, far = await (connected() if keys is None else secured_pair(keys))
    one, other = Ear(near), Ear(far, **fields)
    one.start()
    other.start()
    try:
        yield one, other
    finally:
        one.cable.close()
        other.cable.close()


@pytest.fixture(params=["plain", "tls"])
def keys(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "tls" else None


async def secured_pair(keys: Path) -> tuple[ssl.SSLSocket, ssl.SSLSocket]:
    """Return both ends of a connection with TLS, which takes a megabyte that nobody reads."""
    near, far = await connected()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    authority = Authority(keys)
    return await asyncio.gather(
        secured(near, authority.tls(2).calling_context(), server_hostname=name_of(1)),
        secured(far, authority.tls(1).serving_context()),
    )


async def arrived(sock: socket.socket, size: int) -> None:
    """Wait until so many bytes lie in the kernel."""

    def waiting_bytes() -> int:
        return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)

    await until(lambda: waiting_bytes() >= size)


@pytest.mark.parametrize("seed", range(5))
def test_l1_frames_arrive_whole_and_in_order_whatever_their_sizes(
    keys: Path | None, seed: int
) -> None:
    dice = Random(seed)
    sizes = [dice.choice((1, 3, 100, 4096, 70_000, 300_000, 1 << 20)) for _ in range(40)]
    frames = [dice.randbytes(size) for size in sizes]

    async def story() -> None:
        async with cables(keys) as (one, other):
            for frame in frames:
                cut = dice.randrange(len(frame) + 1)
                one.cable.send([frame[:cut], memoryview(frame)[cut:]])
                if dice.random() < 0.3:
                    one.cable.beat()
                if dice.random() < 0.5:
                    await asyncio.sleep(0)
            await until(lambda: len(other.heard) == len(frames))
            assert other.heard == frames
            assert not one.cable.is_busy
            assert not one.ends
            assert not other.ends

    run(story)


def test_l1_with_tls_a_frame_that_was_decrypted_before_the_start_is_heard(tmp_path: Path) -> None:
    async def story() -> None:
        near, far = await secured_pair(tmp_path)
        near.send(b"ticket" + FRAME.pack(5) + b"frame")
        await arrived(far, 1)
        # The rest of this record is in no socket any more.
        assert far.recv(6) == b"ticket"
        ear = Ear(far)
        ear.start()
        await until(lambda: ear.heard)
        assert ear.heard == [b"frame"]
        ear.cable.close()
        near.close()

    run(story)


def test_l1_with_tls_what_is_left_of_a_record_after_the_last_read_is_heard(tmp_path: Path) -> None:
    """The kernel calls for the first four reads, and for the next four; then it has nothing left,
    and most of the last record is still unheard."""
    record = 16 * 1024
    large = 7 * record + 100 - FRAME.size
    assert cable._READS_MAX == 4

    async def story() -> None:
        near, far = await secured_pair(tmp_path)
        said = FRAME.pack(large) + bytes(large) + FRAME.pack(5) + b"frame"
        near.send(said + FRAME.pack(0) * ((8 * record - len(said)) // FRAME.size))
        await arrived(far, 8 * record)
        ear = Ear(far)
        ear.start()
        await until(lambda: len(ear.heard) == 2)
        assert [len(frame) for frame in ear.heard] == [large, 5]
        ear.cable.close()
        near.close()

    run(story)


def test_with_tls_one_busy_cable_leaves_turns_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, most = 0, 0
    read = Cable._read

    def counted(self: Cable) -> bool:
        nonlocal reads
        reads += 1
        return read(self)

    monkeypatch.setattr(Cable, "_read", counted)

    async def story() -> None:
        nonlocal most
        near, far = await secured_pair(tmp_path)
        ear = Ear(far)
        ear.start()
        frame = FRAME.pack(1 << 20) + bytes(1 << 20)
        left = memoryview(frame * 4)
        while left or len(ear.heard) < 4:
            with suppress(ssl.SSLWantWriteError):
                left = left[near.send(left[: 1 << 18]) :] if left else left
            before = reads
            await asyncio.sleep(0)
            most = max(most, reads - before)
        # Called by the kernel, and by itself.
        assert 0 < most <= 2 * cable._READS_MAX
        ear.cable.close()
        near.close()

    run(story)


def test_l1_bytes_that_come_one_by_one_make_whole_frames() -> None:
    async def story() -> None:
        near, far = await connected()
        ear = Ear(far)
        ear.start()
        for byte in FRAME.pack(3) + b"abc" + FRAME.pack(0) + FRAME.pack(1) + b"d":
            near.send(bytes([byte]))
            await asyncio.sleep(0.001)
        await until(lambda: ear.heard == [b"abc", b"d"])
        near.close()
        await until(lambda: ear.ends)
        assert isinstance(ear.ends[0], CableEndedError)
        ear.cable.close()

    run(story)


@pytest.mark.parametrize("size", [MAX + 1, FAREWELL - 1])
def test_l2_a_frame_that_is_too_large_ends_the_line_before_it_comes(size: int) -> None:
    async def story() -> None:
        near, far = await connected()
        ear = Ear(far)
        ear.start()
        near.send(FRAME.pack(size))
        await until(lambda: ear.ends)
        assert isinstance(ear.ends[0], RemoteProtocolError)
        assert str(ear.ends[0]) == f"A frame of {size} bytes is larger than max, {MAX}."
        # Nothing was made of it.
        assert len(ear.cable._buffer) == BUFFER_USUAL
        ear.cable.close()
        near.close()

    run(story)


def test_l2_a_farewell_has_a_bound_too() -> None:
    async def story() -> None:
        near, far = await connected()
        ear = Ear(far)
        ear.start()
        near.send(FRAME.pack(FAREWELL | 1025))
        await until(lambda: ear.ends)
        assert isinstance(ear.ends[0], RemoteProtocolError)
        ear.cable.close()
        near.close()

    run(story)


def test_l3_both_ends_may_write_more_than_the_kernel_takes(keys: Path | None) -> None:
    large = bytes(6 << 20)

    async def story() -> None:
        async with cables(keys) as ears:
            for _ in range(3):
                for ear in ears:
                    ear.cable.send([large])
            assert all(ear.cable.is_busy for ear in ears)
            await until(lambda: all(len(ear.heard) == 3 for ear in ears))
            assert all(ear.heard == [large] * 3 for ear in ears)
            await until(lambda: not any(ear.cable.is_busy for ear in ears))
            assert all(ear.taken for ear in ears)

    run(story)


def test_l4_what_somebody_still_looks_at_does_not_change(keys: Path | None) -> None:
    frames = [bytes([number]) * size for number, size in enumerate((5, 200_000, 9, 64, 1 << 20))]

    async def story() -> None:
        async with cables(keys) as (one, other):
            other.keeps = True
            for frame in frames:
                one.cable.send([frame])
                await until(lambda: len(other.kept) > frames.index(frame))  # noqa: B023
            assert [bytes(view) for view in other.kept] == frames
            assert other.heard == frames

    run(story)


def test_l5_a_reason_is_told_once(keys: Path | None) -> None:
    async def story() -> None:
        async with cables(keys) as (one, other):
            one.cable.send([b"last word"])
            await until(lambda: other.heard)
            one.cable.close("Enough was said. Ö")
            await until(lambda: other.ends)
            assert [str(error) for error in other.ends] == ["Enough was said. Ö"]
            # Whoever closes is told nothing, and what is said now is said to nobody.
            one.cable.send([b"late"])
            other.cable.send([b"late"])
            other.cable.beat()
            await asyncio.sleep(0.01)
            assert not one.ends
            assert len(other.ends) == 1

    run(story)


def test_l5_a_connection_that_breaks_is_told_with_its_reason() -> None:
    async def story() -> None:
        async with cables() as (one, other):
            one.cable._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            one.cable.close()
            await until(lambda: other.ends)
            assert str(other.ends[0]) == "The connection broke: Connection reset by peer."

    run(story)


def test_what_a_side_raises_ends_its_line() -> None:
    async def story() -> None:
        async with cables() as (one, other):
            bug = ValueError("a bug")

            def hear(_: memoryview) -> None:
                raise bug

            other.cable._hear = hear
            one.cable.send([b"a"])
            one.cable.send([b"b"])
            await until(lambda: other.ends)
            await asyncio.sleep(0.01)
            assert other.ends == [bug]
            assert not one.ends

    run(story)


def test_a_beat_is_heard_by_nobody_and_counts_as_a_sign(keys: Path | None) -> None:
    async def story() -> None:
        async with cables(keys) as (one, other):
            one.cable.send([b"a"])
            await until(lambda: other.heard)
            assert other.cable.was_heard()
            assert not other.cable.was_heard()
            one.cable.beat()
            await until(other.cable.was_heard)
            assert other.heard == [b"a"]

    run(story)


def test_a_part_of_a_large_frame_counts_as_a_sign() -> None:
    """The kernel is asked to collect, and whoever asks for signs is told of what it has."""

    async def story() -> None:
        near, far = await connected()
        ear = Ear(far)
        ear.start()
        near.send(FRAME.pack(1 << 20) + bytes(100))
        await until(ear.cable.was_heard)
        for _ in range(3):
            assert not ear.cable.was_heard()
            near.send(bytes(10))
            await until(ear.cable.was_heard)
        near.setblocking(True)
        near.sendall(bytes((1 << 20) - 130))
        await until(lambda: ear.heard == [bytes(1 << 20)])
        # What was large is given back when nothing large comes any more.
        assert len(ear.cable._buffer) > BUFFER_USUAL
        ear.cable.was_heard()
        ear.cable.was_heard()
        assert len(ear.cable._buffer) == BUFFER_USUAL
        ear.cable.close()
        near.close()

    run(story)


@pytest.mark.parametrize("count", [BUFFER_USUAL - 1, BUFFER_USUAL, BUFFER_USUAL + 1])
def test_a_large_frame_that_has_begun_keeps_its_room(count: int) -> None:
    async def story() -> None:
        near, far = await connected()
        ear = Ear(far)
        ear.start()
        whole = FRAME.pack(300_000) + bytes(300_000)
        near.send(whole[:count])
        await until(lambda: ear.cable._filled == count)
        for _ in range(3):
            ear.cable.was_heard()
        near.setblocking(True)
        near.sendall(whole[count:])
        await until(lambda: ear.heard or ear.ends)
        assert ear.heard == [bytes(300_000)]
        ear.cable.close()
        near.close()

    run(story)


def test_l5_a_bug_that_comes_when_the_line_is_over_is_told_all_the_same() -> None:
    told: list[object] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        async with cables() as (one, other):
            loop.set_exception_handler(lambda _, what: told.append(what["exception"]))
            bug = InvariantError("a bug")

            def hear(_: memoryview) -> None:
                other.cable.close()
                raise bug

            other.cable._hear = hear
            one.cable.send([b"a"])
            await until(lambda: told)
            assert told == [bug]
            assert not other.ends

    run(story)


def test_a_line_that_was_closed_is_gone() -> None:
    async def used() -> list[weakref.ref[Ear]]:
        async with cables() as ears:
            ears[0].cable.send([bytes(1 << 20)])
            await until(lambda: ears[1].heard)
            return [weakref.ref(ear) for ear in ears]

    async def story() -> None:
        gc.collect()
        gc.disable()
        try:
            held = await used()
            assert [ear() for ear in held] == [None, None]
        finally:
            gc.enable()

    run(story)


def test_tls_is_not_older_than_its_newest_version(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for context in (authority.tls(1).serving_context(), authority.tls(1).calling_context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert authority.tls(1).calling_context().check_hostname
