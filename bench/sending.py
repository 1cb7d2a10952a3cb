"""A log's bytes to a client on this machine: by the kernel from the file, or read and sent.

    python -m bench.sending                 files as they grow by batches of three sizes, in turns
    python -m bench.sending --cluster       two clusters, one for each way, read by librdkafka

An answer is four pieces of a mebibyte, as for a fetch of four partitions, and is sent by the node's
own `Outbox`; a process of its own asks for the next one when it has all of the last. Each file is
larger than what the processor keeps, lies in the page cache, and was written batch by batch: how
large the kernel's pieces of it are depends on that, and so does what `sendfile` costs (ADR 0034).

With `--cluster` the nodes of one cluster are told that nobody is on this machine, by a hook that
Python runs before anything else; each round reads the same 820 MB from both (`consume-warm` of
`bench/versus/`), in turns.

Not here: who is on this machine (`outbox.py`).
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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from bench.machine import machine_of
from bench.measure import say, size_name, table, warm_memory, workspace
from bench.peers.ottla import OttlaPeer
from bench.peers.peer import Peer
from bench.peers.table import VARIANTS
from bench.versus.results import Figures
from bench.versus.stage import Stage
from bench.versus.turns import consume
from bench.versus.workloads import WORKLOADS
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
_HOOK: Final = """import ottla.node.kafka.connection as connection

connection.is_near = lambda sock, host: False
"""


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


def clusters_measured(directory: str, rounds: int) -> list[list[str]]:
    hook = Path(directory) / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(_HOOK, encoding="utf-8")
    row, variant = WORKLOADS["consume-warm"], VARIANTS["ottla-pagecache"]
    found: dict[str, list[Figures]] = {way: [] for way in _WAYS}
    with ExitStack() as stack:
        peers = dict[str, Peer]()
        for way, is_near in _WAYS.items():
            if not is_near:
                os.environ["PYTHONPATH"] = str(hook)
            peer = OttlaPeer(Path(directory) / way.replace(" ", "-"))
            os.environ.pop("PYTHONPATH", None)
            peer.directory.mkdir()
            peers[way] = stack.enter_context(peer)
            peer.start()
        stages = {
            way: Stage(variant, peer, [one for one in peers.values() if one is not peer])
            for way, peer in peers.items()
        }
        for number in range(rounds + 1):
            for way in list(_WAYS) if number % 2 else reversed(_WAYS):
                told = consume(stages[way], row)
                if number:
                    found[way].append(told)
    return [_row(way, turns) for way, turns in found.items()]


def _row(way: str, turns: list[Figures]) -> list[str]:
    speeds = [float(one["mb_per_s"]) for one in turns]
    cpu = median(float(one["cpu_s_per_gb"]) for one in turns)
    return ["a cluster", way, _told(speeds), f"{cpu:.3f}"]


def _told(speeds: list[float]) -> str:
    return f"{median(speeds):,.0f} ({min(speeds):,.0f}–{max(speeds):,.0f})"


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
        spread = _told([speed for speed, _ in turns])
        rows.append([size_name(size), way, spread, f"{median(cpu for _, cpu in turns):.3f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.sending", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cluster", action="store_true")
    parser.add_argument("--dir")
    parser.add_argument("--receive", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.receive:
        receive(options.receive)
        return
    with workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        print(machine_of(directory).line(), flush=True)
        say(f"measuring in {options.rounds} rounds …")
        measure = clusters_measured if options.cluster else measured
        rows = measure(directory, options.rounds)
    print(table(["grown by", "way", "MB/s", "CPU s/GB of who sends"], rows))


if __name__ == "__main__":
    main()
