"""What is still to be sent: bytes and pieces of files in order, none twice and none lost."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.node.kafka.outbox import FilePart, Outbox, Part, is_near
from ottla.replication.storage.disk import DiskFile, DiskFiles
from ottla.replication.storage.ports import File

CONTENT = Random(7).randbytes(300_000)


@pytest.fixture
def file(tmp_path: Path) -> File:
    path = tmp_path / "segment"
    path.write_bytes(CONTENT)
    return DiskFiles().open(str(path), writable=False)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    for sock in (ours, theirs):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture(params=[False, True], ids=["elsewhere", "on-this-machine"])
def outbox(request: pytest.FixtureRequest) -> Outbox:
    return Outbox(is_near=request.param)


def send_all(outbox: Outbox, ends: tuple[socket.socket, socket.socket]) -> bytes:
    """Send and read in turns until nothing is left; return what arrived."""
    ours, theirs = ends
    arrived = bytearray()
    for _ in range(10_000):
        is_done = outbox.send(ours)
        try:
            while chunk := theirs.recv(1 << 16):
                arrived += chunk
        except BlockingIOError:
            pass
        if is_done:
            return bytes(arrived)
    raise AssertionError("it never ends")


def expected(parts: list[Part]) -> bytes:
    return b"".join(
        CONTENT[part.position : part.position + part.size]
        if isinstance(part, FilePart)
        else bytes(part)
        for part in parts
    )


def test_bytes_and_files_leave_in_the_order_in_which_they_were_added(
    outbox: Outbox, file: File, ends: tuple[socket.socket, socket.socket]
) -> None:
    parts: list[Part] = [
        b"head",
        FilePart(file, 10, 200_000),
        b"middle" * 1000,
        # Small enough to be read and sent with its neighbours.
        FilePart(file, 5, 100),
        memoryview(b"a view"),
        FilePart(file, 0, len(CONTENT)),
        b"end",
    ]
    wanted = expected(parts)
    outbox.add(parts)
    assert send_all(outbox, ends) == wanted
    assert outbox.sent_bytes == len(wanted)
    assert (outbox.memory_bytes, len(outbox), bool(outbox)) == (0, 0, False)


def test_empty_parts_are_no_parts(
    outbox: Outbox, file: File, ends: tuple[socket.socket, socket.socket]
) -> None:
    """A socket takes none of nothing: with an empty part left it would be tried for ever."""
    outbox.add([b"", memoryview(b""), FilePart(file, 3, 0)])
    assert not outbox
    parts: list[Part] = [b"", b"a", b"", FilePart(file, 0, 50_000), b"", FilePart(file, 0, 0), b""]
    wanted = expected(parts)
    outbox.add(parts)
    assert send_all(outbox, ends) == wanted


def test_a_piece_of_a_file_costs_no_memory_and_bytes_do(file: File) -> None:
    outbox = Outbox()
    outbox.add([b"12345", FilePart(file, 0, len(CONTENT)), FilePart(file, 0, 100)])
    assert outbox.memory_bytes == 105


def test_what_the_socket_does_not_take_waits(
    file: File, ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = ends
    outbox = Outbox()
    outbox.add([bytes(100_000)])
    assert not outbox.send(ours)
    waiting = outbox.memory_bytes
    assert 0 < waiting < 100_000
    assert outbox.sent_bytes == 100_000 - waiting
    # Nothing changes while nobody reads.
    assert not outbox.send(ours)
    assert outbox.memory_bytes == waiting
    theirs.recv(1 << 16)
    outbox.send(ours)
    assert outbox.memory_bytes < waiting


def test_more_parts_than_the_kernel_takes_at_once(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    outbox = Outbox()
    outbox.add([b"%04d" % number for number in range(2000)])
    assert send_all(outbox, ends) == b"".join(b"%04d" % number for number in range(2000))


def test_one_reader_does_not_hold_up_the_others(outbox: Outbox, tmp_path: Path) -> None:
    """A call sends at most a mebibyte of files, and then others have their turn."""
    path = tmp_path / "large"
    path.write_bytes(bytes(4 << 20))
    large = DiskFiles().open(str(path), writable=False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        outbox.add([FilePart(large, 0, 4 << 20)])
        outbox.send(ours)
        assert outbox.sent_bytes <= 1 << 20
        assert outbox


@pytest.mark.parametrize("size", [100, 200_000])
def test_a_file_that_became_shorter_is_an_error_and_no_hang(
    outbox: Outbox, tmp_path: Path, ends: tuple[socket.socket, socket.socket], size: int
) -> None:
    path = tmp_path / "short"
    path.write_bytes(CONTENT[:50])
    short = DiskFiles().open(str(path), writable=False)

    def send() -> None:
        outbox.add([b"head", FilePart(short, 0, size)])
        send_all(outbox, ends)

    with pytest.raises(OSError, match="a file ended"):
        send()


def test_a_file_is_sent_although_its_name_is_gone(
    outbox: Outbox, tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    path = tmp_path / "deleted"
    path.write_bytes(CONTENT)
    outbox.add([FilePart(DiskFiles().open(str(path), writable=False), 0, len(CONTENT))])
    os.unlink(path)
    assert send_all(outbox, ends) == CONTENT


@pytest.mark.parametrize("seed", range(30))
def test_any_mixture_arrives_whole(
    outbox: Outbox, file: File, ends: tuple[socket.socket, socket.socket], seed: int
) -> None:
    random = Random(seed)
    wanted, arrived = b"", b""
    for _ in range(random.randrange(1, 6)):
        parts = list[Part]()
        for _ in range(random.randrange(0, 12)):
            size = random.choice([0, 1, 100, 16_384, 16_385, 40_000])
            start = random.randrange(len(CONTENT) - size)
            if random.random() < 0.5:
                parts.append(FilePart(file, start, size))
            else:
                parts.append(CONTENT[start : start + size])
        wanted += expected(parts)
        outbox.add(parts)
        outbox.send(ends[0])
    arrived += send_all(outbox, ends)
    assert arrived == wanted


class Counted(DiskFile):
    """A file that knows how much of it was read."""

    read_bytes = 0

    def read_at(self, position: int, size: int) -> bytes:
        self.read_bytes += size
        return super().read_at(position, size)


def test_a_slow_reader_on_this_machine_costs_few_reads_in_vain(
    tmp_path: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    """What the socket does not take is read again: as little as it shows that it takes."""
    size = 8 << 20
    path = tmp_path / "large"
    path.write_bytes(bytes(size))
    file = Counted(os.open(path, os.O_RDONLY))
    outbox = Outbox(is_near=True)
    outbox.add([FilePart(file, 0, size)])
    turns = 0
    ours, theirs = ends
    while not outbox.send(ours):
        theirs.recv(1 << 14)
        turns += 1
        # The first one asks for a mebibyte, and none after it for more than the least.
        assert file.read_bytes <= (1 << 20) + turns * (64 << 10)
    assert turns > 100


def test_a_socket_that_takes_much_is_given_much(tmp_path: Path) -> None:
    """A mebibyte with one call, also after a time in which the socket was full."""
    path = tmp_path / "large"
    path.write_bytes(bytes(8 << 20))
    file = Counted(os.open(path, os.O_RDONLY))
    outbox = Outbox(is_near=True)
    outbox.add([FilePart(file, 0, 8 << 20)])
    narrow, other = socket.socketpair()
    with narrow, other:
        narrow.setblocking(False)
        narrow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        assert not outbox.send(narrow)
    sizes = list[int]()

    class Wide(socket.socket):
        def send(self, data: Any, flags: int = 0) -> int:
            sizes.append(len(data))
            return len(data)

    with Wide(socket.AF_UNIX) as wide:
        while not outbox.send(wide):
            pass
    assert sizes[0] <= 128 << 10
    assert max(sizes) == 1 << 20
    assert outbox.sent_bytes == 8 << 20


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1"])
def test_who_calls_from_the_address_that_he_calls_is_on_this_machine(host: str) -> None:
    with socket.create_server((host, 0), family=_family(host)) as server:
        port = server.getsockname()[1]
        with socket.create_connection((host, port), source_address=(host, 0)) as caller:
            ours, name = server.accept()
            with ours:
                assert is_near(ours, name[0])
                assert not is_near(ours, "10.0.0.7")
                assert caller.getpeername()[0] == host


def test_a_socket_without_an_address_is_not_near() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert not is_near(ours, "")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
