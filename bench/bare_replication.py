"""The hot path of replication alone: what three nodes are held against.

    python -m bench.bare_replication --dir DIR [--port 9092] [--partitions 4] [--fsync]

A limit broker (`limit_broker.py`) with two followers, each a process of its own, which this one
starts and ends. A follower pulls over one cable like those of nodes
(`ottla/node/internal/cable.py`), one ask at a time; an answer has all that has queued up, about
1 MiB at most; checksums are checked once more and the batches written to files of its own. A
produce request is answered when both followers hold it, and with `--fsync` when all three have
synced it.

It keeps no other promise: nobody leaves or joins, there are no epochs and no failover, nothing is
checked that a stranger might send, nothing is left after a restart. One process leads everything.
What the nodes do besides this is what their promises cost.

S1  an answer names everything that was appended, once, in the order in which it was
S2  a produce request is answered when both followers have asked for what comes behind it
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import Struct
from typing import Final

from bench.limit_broker import Partition, Store, serve
from ottla.node.allocator import keep_memory
from ottla.node.internal.cable import Cable, prepare

FOLLOWERS: Final = 2
_HOST: Final = "127.0.0.1"
# How many appends the follower holds.
_ASK: Final = Struct(">q")
# An answer is one of these and the batches, once or more: the partition, and how many bytes follow.
_PART: Final = Struct(">ii")
_DRAIN_BYTES_MAX: Final = 1 << 20
_FRAME_BYTES_MAX: Final = 64 << 20
_START_S_MAX: Final = 30.0


class Follower:
    """One of two, as the leader knows it."""

    def __init__(self) -> None:
        self.queue: Final = deque[bytes]()
        self.held = 0
        self.is_there: Final = asyncio.Event()
        self._cable: Cable | None = None
        self._is_asking = False

    def come(self, cable: Cable) -> None:
        self._cable = cable

    def ask(self) -> None:
        self._is_asking = True
        self.is_there.set()
        self.look()

    def look(self) -> None:
        """Answer, if that is asked for and there is something."""
        if self._is_asking and self.queue and self._cable is not None:
            self._is_asking = False
            self._cable.send(_answer(self.queue))


class ReplicatedStore(Store):
    """Answers when the followers hold it, too."""

    def __init__(self, directory: str, partition_count: int, *, fsync: bool) -> None:
        super().__init__(directory, partition_count, fsync=fsync)
        self.followers: Final = [Follower() for _ in range(FOLLOWERS)]
        # Appends so far, and how many of them everybody holds.
        self._appended = 0
        self._held_here = 0
        self._answers: Final = deque[tuple[int, Callable[[], None]]]()

    @property
    def must_wait(self) -> bool:
        return True

    def append(self, partition: Partition, records: memoryview) -> int:
        first = super().append(partition, records)
        self._appended += 1
        number = next(n for n, one in enumerate(self._only_topic()) if one is partition)
        # The buffer will be read into again; this copy is shared by both answers.
        frame = b"".join((_PART.pack(number, len(records)), records))
        for follower in self.followers:
            follower.queue.append(frame)
            follower.look()
        return first

    def _only_topic(self) -> list[Partition]:
        (partitions,) = self.topics.values()
        return partitions

    def when_held(self, fds: list[int], answer: Callable[[], None]) -> None:
        end = self._appended
        self._answers.append((end, answer))
        if self.fsync:
            super().when_held(fds, lambda: self._hold(end))
        else:
            self._hold(end)

    def _hold(self, end: int) -> None:
        self._held_here = max(self._held_here, end)
        self.advance()

    def advance(self) -> None:
        """Answer what everybody holds."""
        held = min(self._held_here, *(follower.held for follower in self.followers))
        while self._answers and self._answers[0][0] <= held:
            self._answers.popleft()[1]()

    def greet(self, number: int, cable: Cable) -> None:
        """Feed one follower from now on."""
        follower = self.followers[number]
        follower.come(cable)

        def hear(ask: memoryview) -> None:
            (follower.held,) = _ASK.unpack(ask)
            self.advance()
            follower.ask()

        cable.start(hear, on_taken=_nothing, on_end=_raise)


def _nothing() -> None:
    """Do nothing: an answer is asked for when the one before is there."""


def _raise(error: Exception) -> None:
    raise error


def _answer(queue: deque[bytes]) -> Sequence[bytes]:
    """Take what has queued up, about 1 MiB; nothing is copied."""
    frames = [queue.popleft()]
    size = len(frames[0])
    while queue and size + len(queue[0]) <= _DRAIN_BYTES_MAX:
        frames.append(queue.popleft())
        size += len(frames[-1])
    return frames


class Copies:
    """What a follower has."""

    def __init__(self, directory: str, partition_count: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        paths = [f"{directory}/{number}" for number in range(partition_count)]
        self._partitions: Final = [Partition(os.open(path, flags, 0o640)) for path in paths]
        self.held = 0

    def take(self, view: memoryview) -> set[int]:
        """Write an answer; return the files that were written to."""
        at = 0
        touched = set[int]()
        while at < len(view):
            number, size = _PART.unpack_from(view, at)
            at += _PART.size
            partition = self._partitions[number]
            partition.append(view[at : at + size], stamp=False)
            at += size
            touched.add(partition.fd)
            self.held += 1
        return touched


def _sync_all(fds: set[int]) -> None:
    for fd in fds:
        os.fdatasync(fd)


async def follow(number: int, leader: str, copies: Copies, *, fsync: bool) -> None:
    """Pull until the leader is gone."""
    loop = asyncio.get_running_loop()
    host, _, port = leader.rpartition(":")
    sock = socket.create_connection((host, int(port)))
    sock.send(bytes([number]))
    prepare(sock)
    cable = Cable(sock, frame_bytes_max=_FRAME_BYTES_MAX)
    is_over = asyncio.Event()

    def ask(_: object = None) -> None:
        cable.send([_ASK.pack(copies.held)])

    def hear(answer: memoryview) -> None:
        touched = copies.take(answer)
        if fsync:
            loop.run_in_executor(None, _sync_all, touched).add_done_callback(ask)
        else:
            ask()

    cable.start(hear, on_taken=_nothing, on_end=lambda _: is_over.set())
    ask()
    await is_over.wait()


async def lead(options: argparse.Namespace) -> None:
    store = ReplicatedStore(options.dir, options.partitions, fsync=options.fsync)
    with socket.create_server((_HOST, 0)) as door:
        port = door.getsockname()[1]
        processes = [_started(options, number, f"{_HOST}:{port}") for number in range(FOLLOWERS)]
        _tell(options.dir, processes)
        for _ in range(FOLLOWERS):
            sock, _ = door.accept()
            (number,) = sock.recv(1)
            prepare(sock)
            store.greet(number, Cable(sock, frame_bytes_max=_FRAME_BYTES_MAX))

    def end() -> None:
        for process in processes:
            process.kill()
            process.wait()
        # Nothing is to be kept.
        os._exit(0)

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end)
    async with asyncio.timeout(_START_S_MAX):
        for follower in store.followers:
            await follower.is_there.wait()
    await serve(store, options.dir, options.port)


def _tell(directory: str, processes: list[subprocess.Popen[bytes]]) -> None:
    Path(directory, "followers").write_text(" ".join(str(one.pid) for one in processes))


def _started(options: argparse.Namespace, number: int, leader: str) -> subprocess.Popen[bytes]:
    place = Path(options.dir, f"follower-{number}")
    place.mkdir()
    command = [sys.executable, "-m", "bench.bare_replication", "--dir", str(place)]
    command += ["--partitions", str(options.partitions), "--follow", leader]
    command += ["--number", str(number)] + (["--fsync"] if options.fsync else [])
    return subprocess.Popen(command)


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.bare_replication", description=summary)
    parser.add_argument("--dir", required=True, help="an existing directory")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--partitions", type=int, default=4, help="of the one topic")
    parser.add_argument("--fsync", action="store_true", help="answer when three disks have it")
    # For the processes that this one starts.
    parser.add_argument("--follow", help=argparse.SUPPRESS)
    parser.add_argument("--number", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    keep_memory()
    if options.follow is None:
        asyncio.run(lead(options))
    else:
        copies = Copies(options.dir, options.partitions)
        asyncio.run(follow(options.number, options.follow, copies, fsync=options.fsync))


if __name__ == "__main__":
    main()
