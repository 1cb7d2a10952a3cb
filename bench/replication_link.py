"""What a replication stream costs by itself: two processes, no log, no partitions.

    python -m bench.replication_link              about 30 s
    python -m bench.replication_link --rounds 1

bytes      the leader answers every ask with 1 MiB, as often as the follower asks
exchanges  the same with 64 bytes: what a message costs, however small
lost       from kill -9 of the leader's process to the moment when the follower knows

Both ends run with the memory of the C library as it is, and as `node/allocator.py` sets it, in
turns. CPU is that of one end, the follower's after the stroke.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final
from uuid import UUID

from bench.machine import machine_of
from bench.measure import say, table
from ottla.node.allocator import keep_memory
from ottla.node.internal.cable import Buffer
from ottla.node.internal.channels import Channels
from ottla.node.internal.entrance import Entrance
from ottla.node.internal.identity import WhoIAm
from ottla.node.internal.listener import InternalListener
from ottla.node.internal.replication_service import ReplicationService
from ottla.node.internal.replication_stream import Follower, ReplicationStream, Whereabouts
from ottla.proto.ids import BrokerId
from ottla.proto.options.endpoints import Address

_LEADER, _FOLLOWER = BrokerId(1), BrokerId(2)
_LARGE, _SMALL, _COST = b"L", b"S", b"C"
_WARM_S: Final = 0.7
_KILLS: Final = 8
_PIECE: Final = memoryview(os.urandom(1 << 20))


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def cost() -> dict[str, float]:
    """Return what this process has used so far, and its memory now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "cpu_s": used.ru_utime + used.ru_stime,
        "faults": used.ru_minflt,
        "rss_mb": pages * resource.getpagesize() / 1e6,
    }


class Answering:
    """The leader's side: an answer for each ask."""

    def __init__(self) -> None:
        self._asked: bytes | None = None

    def take(self, ask: Buffer) -> None:
        self._asked = bytes(ask)

    def next_answer(self) -> list[bytes | memoryview] | None:
        asked, self._asked = self._asked, None
        if asked == _COST:
            return [json.dumps(cost()).encode()]
        if asked is None:
            return None
        return [bytes(64), _PIECE] if asked == _LARGE else [bytes(64)]

    def due_ms(self) -> int | None:
        return None

    def close(self) -> None: ...


class Asking:
    """The follower's side: asks again as soon as it is answered."""

    def __init__(self) -> None:
        self.asks = asyncio.Queue[bytes]()
        self.answer = b""
        self.answered = asyncio.Event()
        self._again: bytes | None = None
        self.count = self.size = 0
        self.until_s = 0.0

    def connected(self) -> None: ...

    def next_asks(self) -> list[bytes]:
        if self._again is not None:
            again, self._again = self._again, None
            return [again]
        return [] if self.asks.empty() else [self.asks.get_nowait()]

    def take(self, answer: Buffer) -> None:
        self.count += 1
        self.size += len(answer)
        if time.perf_counter() < self.until_s:
            self._again = self.kind
            return
        self.answer = bytes(answer)
        self.answered.set()

    def due_ms(self) -> int | None:
        return None

    kind = _SMALL


async def lead() -> None:
    """Serve until somebody ends this process."""
    entrance = Entrance(Address("127.0.0.1", 0), None)
    told = entrance.bind()
    service = ReplicationService(
        me=WhoIAm(_LEADER, UUID(int=1), "bench"),
        make_feeder=lambda follower, wake, look: Answering(),
        is_broker=lambda broker: True,
        now_ms=now_ms,
        verifier=None,
        where=lambda: told,
    )
    entrance.start(service.redeem)
    listener = InternalListener(Address("127.0.0.1", 0), None)
    listener.add(service.handler)
    print(listener.bind().port, flush=True)
    await listener.start()
    await asyncio.Event().wait()


class Pulling:
    """The follower's end, in this process."""

    def __init__(self, port: int) -> None:
        self.side = Asking()
        me = WhoIAm(_FOLLOWER, UUID(int=2), "bench")
        follower = Follower(me, Channels(None), lambda: 1, now_ms, lambda: 8 << 20)
        self.stream = ReplicationStream(_LEADER, follower)
        self.stream.point_at(Whereabouts(Address("127.0.0.1", port), UUID(int=1)))
        self.task = asyncio.get_running_loop().create_task(self.stream.run(self.side))

    async def ask(self, kind: bytes, seconds: float = 0) -> bytes:
        self.side.count = self.side.size = 0
        self.side.kind = kind
        self.side.until_s = time.perf_counter() + seconds
        self.side.answered.clear()
        self.side.asks.put_nowait(kind)
        self.stream.wake()
        await self.side.answered.wait()
        return self.side.answer

    async def measure(self, kind: bytes, seconds: float) -> dict[str, float]:
        await self.ask(kind, _WARM_S)
        theirs, ours = json.loads(await self.ask(_COST)), cost()
        began = time.perf_counter()
        await self.ask(kind, seconds)
        took_s = time.perf_counter() - began
        count, size = self.side.count, self.side.size
        after, theirs_after = cost(), json.loads(await self.ask(_COST))
        return {
            "count_s": count / took_s,
            "mb_s": size / took_s / 1e6,
            "leader_us": 1e6 * (theirs_after["cpu_s"] - theirs["cpu_s"]) / count,
            "follower_us": 1e6 * (after["cpu_s"] - ours["cpu_s"]) / count,
            "faults": (after["faults"] - ours["faults"]) / count,
            "leader_mb": theirs_after["rss_mb"],
            "follower_mb": after["rss_mb"],
        }

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


async def follow(port: int, seconds: float) -> None:
    pulling = Pulling(port)
    small = await pulling.measure(_SMALL, seconds)
    large = await pulling.measure(_LARGE, seconds)
    print(json.dumps({"small": small, "large": large}), flush=True)
    await pulling.stop()


# ── Processes ─────────────────────────────────────────────────────────────────────────────────


def _command(role: str, *, is_kept: bool, more: tuple[str, ...] = ()) -> list[str]:
    kept = ["--keep-memory"] if is_kept else []
    return [sys.executable, "-m", "bench.replication_link", "--role", role, *kept, *more]


@contextmanager
def leading(*, is_kept: bool) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = _command("leader", is_kept=is_kept)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def one_round(seconds: float, *, is_kept: bool) -> dict[str, dict[str, float]]:
    with leading(is_kept=is_kept) as (_, port):
        more = ("--port", str(port), "--seconds", str(seconds))
        command = _command("follower", is_kept=is_kept, more=more)
        told = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=120)
        found: dict[str, dict[str, float]] = json.loads(told.stdout)
        return found


async def lost_ms() -> float:
    with leading(is_kept=False) as (process, port):
        pulling = Pulling(port)
        await pulling.ask(_SMALL, 0.05)
        process.kill()
        began = time.perf_counter()
        while pulling.stream.is_connected:  # noqa: ASYNC110  # it is to be seen at once
            await asyncio.sleep(0)
        took_s = time.perf_counter() - began
        await pulling.stop()
        return 1000 * took_s


def report(rounds: int, seconds: float) -> None:
    found: dict[bool, list[dict[str, dict[str, float]]]] = {False: [], True: []}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds} …")
        for is_kept in (False, True) if number % 2 == 0 else (True, False):
            found[is_kept].append(one_round(seconds, is_kept=is_kept))

    def middle(is_kept: bool, kind: str, name: str) -> float:
        return median(one[kind][name] for one in found[is_kept])

    rows = []
    for kind, what in (("large", "1 MiB"), ("small", "64 B")):
        for is_kept, memory in ((False, "as it is"), (True, "kept")):
            one = {name: middle(is_kept, kind, name) for name in found[is_kept][0][kind]}
            cpu = f"{one['leader_us']:.0f} / {one['follower_us']:.0f}"
            held = f"{one['leader_mb']:.0f} / {one['follower_mb']:.0f}"
            rate = [f"{one['mb_s']:.0f}", f"{one['count_s']:.0f}"]
            rows.append([what, memory, *rate, cpu, f"{one['faults']:.0f}", held])
    heading = ["answers", "memory", "MB/s", "exchanges/s", "CPU µs each", "pages each", "RSS MB"]
    print(table(heading, rows))
    pairs = zip(found[True], found[False], strict=True)
    ratios = [kept["large"]["mb_s"] / plain["large"]["mb_s"] for kept, plain in pairs]
    print(f"\nbytes, kept to as it is: {median(ratios):.2f}×")
    lost = sorted(asyncio.run(lost_ms()) for _ in range(_KILLS))
    print(f"lost after kill -9: {median(lost):.1f} ms, at most {lost[-1]:.1f} of {_KILLS}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5)
    # For the processes that this one starts.
    parser.add_argument("--role", choices=("leader", "follower"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--keep-memory", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.keep_memory:
        keep_memory()
    if args.role == "leader":
        asyncio.run(lead())
    elif args.role == "follower":
        asyncio.run(follow(args.port, args.seconds))
    else:
        print(machine_of(".").line(), end="\n\n")
        report(args.rounds, args.seconds)


if __name__ == "__main__":
    main()
