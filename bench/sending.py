"""A log's bytes to a client on this machine: by the kernel from the file, or read and sent.

    python -m bench.sending                 files as they grow by batches of three sizes, in turns
    python -m bench.sending --rounds 11

An answer is four pieces of a mebibyte, as for a fetch of four partitions, and is sent by the node's
own `Outbox`; a process of its own asks for the next one when it has all of the last. Each file is
larger than what the processor keeps, lies in the page cache, and was written batch by batch: how
large the kernel's pieces of it are depends on that, and so does what `sendfile` costs (ADR 0034).

Not here: who asks and how long he takes to use what he got (`bench/versus/`).
"""

from __future__ import annotations

import argparse
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from bench.machine import machine_of
from bench.measure import say, size_name, table, warm_memory, workspace
from ottla.node.kafka.outbox import FilePart, Outbox
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.ports import File

_FILE_BYTES: Final = 512 << 20
_PIECE_BYTES: Final = 1 << 20
_PIECES: Final = 4
_BATCH_BYTES: Final = (16 << 10, 64 << 10, 1_000_000)
_FREE_BYTES_MIN: Final = 6 << 30
_WAYS: Final = {"sendfile": False, "read and sent": True}
_ASK: Final = b"?"
_ANSWER_BYTES: Final = _PIECES * _PIECE_BYTES


def receive(port: int) -> None:
    """Ask for an answer, take all of it, and ask for the next, until the other end closes."""
    view = memoryview(bytearray(_ANSWER_BYTES))
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while True:
            sock.send(_ASK)
            left = _ANSWER_BYTES
            while left:
                received = sock.recv_into(view[:left])
                if not received:
                    return
                left -= received


def written(directory: str, batch_bytes: int) -> File:
    """Return a file that grew batch by batch."""
    file = DiskFiles().open(f"{directory}/of-{batch_bytes}", create=True)
    batch = os.urandom(batch_bytes)
    for position in range(0, _FILE_BYTES, batch_bytes):
        file.write_at(position, [batch])
    # Pages that wait to be written would be written meanwhile.
    file.sync()
    return file


@contextmanager
def asking() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = [sys.executable, "-m", "bench.sending", "--receive", str(server.getsockname()[1])]
        with subprocess.Popen(command) as process:
            sock, _ = server.accept()
            try:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setblocking(False)
                yield sock
            finally:
                sock.close()
                process.wait()


def turn(file: File, *, is_near: bool) -> tuple[float, float]:
    """Send a whole file; return MB/s, and seconds of the sender's processor time for a gigabyte."""
    outbox = Outbox(is_near=is_near)
    with asking() as sock:
        select.select([sock], [], [])
        began, cpu = time.perf_counter(), time.process_time()
        for first in range(0, _FILE_BYTES, _ANSWER_BYTES):
            select.select([sock], [], [])
            sock.recv(1)
            ends = range(first, first + _ANSWER_BYTES, _PIECE_BYTES)
            outbox.add([FilePart(file, position, _PIECE_BYTES) for position in ends])
            while not outbox.send(sock):
                select.select([], [sock], [])
        # Asked for again: all of it has arrived.
        select.select([sock], [], [])
        sock.recv(1)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    return _FILE_BYTES / seconds / 1e6, cpu_s / _FILE_BYTES * 1e9


def measured(directory: str, rounds: int) -> list[list[str]]:
    warm_memory(directory, len(_BATCH_BYTES) * _FILE_BYTES)
    files = {size: written(directory, size) for size in _BATCH_BYTES}
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for size, file in files.items():
            for way in list(_WAYS) if number % 2 else reversed(_WAYS):
                told = turn(file, is_near=_WAYS[way])
                if number:
                    found.setdefault((size, way), []).append(told)
    rows = []
    for (size, way), turns in sorted(found.items()):
        speeds = [speed for speed, _ in turns]
        spread = f"{median(speeds):,.0f} ({min(speeds):,.0f}–{max(speeds):,.0f})"
        rows.append([size_name(size), way, spread, f"{median(cpu for _, cpu in turns):.3f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sending", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir")
    parser.add_argument("--receive", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        receive(options.receive)
        return
    with workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        print(machine_of(directory).line(), flush=True)
        say(f"measuring in {options.rounds} rounds …")
        rows = measured(directory, options.rounds)
    print(table(["grown by", "way", "MB/s", "CPU s/GB of the sender"], rows))


if __name__ == "__main__":
    main()
