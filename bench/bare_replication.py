"""The hot path of replication alone: what three nodes are held against.

    python -m bench.bare_replication --dir DIR [--port 9092] [--partitions 4] [--fsync]

A limit broker (`limit_broker.py`) with two followers, each a process of its own, which this one
starts and ends. A follower pulls over one stream of grpc.aio that carries raw bytes, one ask at a
time; an answer has all that has queued up, about 1 MiB at most; checksums are checked once more and
the batches written to files of its own. A produce request is answered when both followers hold it,
and with `--fsync` when all three have synced it.

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
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Any, Final

# As `ottla` does for its nodes (ADR 0023): gRPC reads it when it is first imported.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")

import grpc

from bench.limit_broker import Partition, Store, serve
from ottla.node.allocator import keep_memory

FOLLOWERS: Final = 2
_PULL: Final = "/bench.Bare/Pull"
# How many appends the follower holds.
_ASK: Final = Struct(">q")
# An answer is one of these and the batches, once or more: the partition, and how many bytes follow.
_PART: Final = Struct(">ii")
_DRAIN_BYTES_MAX: Final = 1 << 20
_START_S_MAX: Final = 30.0
_OPTIONS: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Follower:
    """One of two, as the leader knows it."""

    def __init__(self) -> None:
        self.queue: Final = deque[bytes]()
        self.news: Final = asyncio.Event()
        self.held = 0
        self.is_there: Final = asyncio.Event()


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
            follower.news.set()
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

    async def pull(self, _: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """Feed one follower."""
        told = dict(context.invocation_metadata() or ())
        follower = self.followers[int(told["follower"])]
        while isinstance(ask := _as_object(await context.read()), bytes):
            (follower.held,) = _ASK.unpack(ask)
            follower.is_there.set()
            self.advance()
            while not follower.queue:
                follower.news.clear()
                await follower.news.wait()
            await context.write(_answer(follower.queue))


def _answer(queue: deque[bytes]) -> bytes:
    """Take what has queued up, about 1 MiB; a frame that is alone is not copied."""
    frames = [queue.popleft()]
    size = len(frames[0])
    while queue and size + len(queue[0]) <= _DRAIN_BYTES_MAX:
        frames.append(queue.popleft())
        size += len(frames[-1])
    return frames[0] if len(frames) == 1 else b"".join(frames)


def _as_object(read: object) -> object:
    """Forget the type: at the end of a stream something else than bytes is read."""
    return read


class Copies:
    """What a follower has."""

    def __init__(self, directory: str, partition_count: int) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        paths = [f"{directory}/{number}" for number in range(partition_count)]
        self._partitions: Final = [Partition(os.open(path, flags, 0o640)) for path in paths]
        self.held = 0

    def take(self, answer: bytes) -> set[int]:
        """Write it; return the files that were written to."""
        view, at = memoryview(answer), 0
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
    async with grpc.aio.insecure_channel(leader, options=_OPTIONS) as channel:
        metadata = grpc.aio.Metadata(("follower", str(number)))
        call: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(_PULL)(
            metadata=metadata
        )
        await call.write(_ASK.pack(copies.held))
        while isinstance(answer := _as_object(await call.read()), bytes):
            touched = copies.take(answer)
            if fsync:
                await loop.run_in_executor(None, _sync_all, touched)
            await call.write(_ASK.pack(copies.held))


async def lead(options: argparse.Namespace) -> None:
    store = ReplicatedStore(options.dir, options.partitions, fsync=options.fsync)
    server = grpc.aio.server(options=_OPTIONS)
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Pull": grpc.stream_stream_rpc_method_handler(store.pull)
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Bare", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    processes = [_started(options, number, f"127.0.0.1:{port}") for number in range(FOLLOWERS)]
    _tell(options.dir, processes)

    def end() -> None:
        for process in processes:
            process.kill()
            process.wait()
        # gRPC would take its time, and nothing is to be kept.
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
        with suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            asyncio.run(follow(options.number, options.follow, copies, fsync=options.fsync))


if __name__ == "__main__":
    main()
