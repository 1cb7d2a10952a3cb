"""How fast is our producer beside those that others wrote? All towards the same three nodes.

    python -m bench.clients [--seconds 3] [--rounds 3] [--sizes 100,1000] [--only ours,aiokafka]
    python -m bench.clients --profile ours

Each client runs in a process of its own, in turns, with acks=all, idempotence, linger 5 ms and
`batch.size` of 16 KiB, as they come otherwise. That is not the same for all: batches of ours may
grow to 1 MiB while their partition is busy, which is most of its lead where the nodes are the
bottleneck. `ours-16k` is ours with batches held to 16 KiB, for a comparison of like with like.

A figure is records per second from the first `send` after a warm-up to the last acknowledgement;
`cpu` is the client's processor time in that time, for a million records.

Not here: what the nodes can do (`replication.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import pstats
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.replication_cluster import started

PARTITIONS: Final = 6
LINGER_MS: Final = 5
BATCH_BYTES: Final = 16_384
BUFFER_BYTES: Final = 33_554_432
WARM_UP: Final = 2000
# Between two looks at the clock.
STRIDE: Final = 500
# About what stands around a value in a batch.
RECORD_OVERHEAD: Final = 10
FREE_BYTES: Final = 4 * 10**9


class Run(NamedTuple):
    """What a client did between two looks at the clocks."""

    records: int
    seconds: float
    cpu_s: float


class Watch:
    """Time and processor time since it was made."""

    def __init__(self) -> None:
        self._wall_s = time.perf_counter()
        self._cpu_s = time.process_time()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._wall_s

    def run(self, count: int) -> Run:
        return Run(count, self.seconds, time.process_time() - self._cpu_s)


def _drive_ours_16k(bootstrap: str, topic: str, value: bytes, seconds: float) -> Run:
    held = max(1, BATCH_BYTES // (len(value) + RECORD_OVERHEAD))
    return _drive_ours(bootstrap, topic, value, seconds, {"batch.num.messages": held})


def _drive_ours(
    bootstrap: str,
    topic: str,
    value: bytes,
    seconds: float,
    more: Mapping[str, object] | None = None,
) -> Run:
    from ottla import Producer

    with Producer({"bootstrap.servers": bootstrap, **(more or {})}) as producer:
        send = producer.send
        return _timed(lambda: send(topic, value), producer.flush, seconds)


def _drive_ours_async(bootstrap: str, topic: str, value: bytes, seconds: float) -> Run:
    from ottla import AsyncProducer

    async def main() -> Run:
        async with AsyncProducer({"bootstrap.servers": bootstrap}) as producer:
            await producer.partitions_for(topic)
            send = producer.send
            for _ in range(WARM_UP):
                send(topic, value)
            await producer.flush()
            count, watch = 0, Watch()
            while watch.seconds < seconds:
                await producer.room()
                for _ in range(STRIDE):
                    send(topic, value)
                count += STRIDE
                await asyncio.sleep(0)
            await producer.flush()
            return watch.run(count)

    return asyncio.run(main())


def _drive_kafka_python(bootstrap: str, topic: str, value: bytes, seconds: float) -> Run:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap.split(","),
        acks="all",
        enable_idempotence=True,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    try:
        return _timed(lambda: producer.send(topic, value), producer.flush, seconds)
    finally:
        producer.close()


def _drive_confluent(bootstrap: str, topic: str, value: bytes, seconds: float) -> Run:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
        }
    )

    def send() -> None:
        while True:
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.01)
            else:
                producer.poll(0)
                return

    return _timed(send, producer.flush, seconds)


def _drive_aiokafka(bootstrap: str, topic: str, value: bytes, seconds: float) -> Run:
    from aiokafka import AIOKafkaProducer

    async def main() -> Run:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
        )
        await producer.start()
        try:
            for _ in range(WARM_UP):
                await producer.send(topic, value)
            await producer.flush()
            count, watch = 0, Watch()
            while watch.seconds < seconds:
                for _ in range(STRIDE):
                    await producer.send(topic, value)
                count += STRIDE
            await producer.flush()
            return watch.run(count)
        finally:
            await producer.stop()

    return asyncio.run(main())


def _timed(send: Callable[[], object], flush: Callable[[], object], seconds: float) -> Run:
    for _ in range(WARM_UP):
        send()
    flush()
    count, watch = 0, Watch()
    while watch.seconds < seconds:
        for _ in range(STRIDE):
            send()
        count += STRIDE
    flush()
    return watch.run(count)


CLIENTS: Final[dict[str, Callable[[str, str, bytes, float], Run]]] = {
    "ours": _drive_ours,
    "ours-16k": _drive_ours_16k,
    "ours-async": _drive_ours_async,
    "kafka-python": _drive_kafka_python,
    "aiokafka": _drive_aiokafka,
    "confluent-kafka": _drive_confluent,
}


def _drive(options: argparse.Namespace) -> None:
    """Be one client, and print what it did as JSON."""
    drive, value = CLIENTS[options.drive], b"x" * options.size
    run = drive(options.bootstrap, options.topic, value, options.seconds)
    cpu_us = run.cpu_s / run.records * 1e6
    print(json.dumps({"rate": run.records / run.seconds, "cpu_us": cpu_us}))


async def _run_one(name: str, bootstrap: str, topic: str, size: int, seconds: float) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "bench.clients", "--drive", name]
    command += ["--bootstrap", bootstrap, "--topic", topic, "--size", str(size)]
    process = await asyncio.create_subprocess_exec(
        *command, "--seconds", str(seconds), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return json.loads(out)


async def _compare(options: argparse.Namespace, directory: Path) -> None:
    names = options.only.split(",") if options.only else list(CLIENTS)
    print(machine_of(str(directory)).line())
    async with started(directory / "cluster") as cluster:
        for size in map(int, options.sizes.split(",")):
            found = dict[str, list[dict[str, float]]]()
            for number in range(options.rounds):
                topic = f"bench-{size}-{number}"
                await cluster.create(topic, partitions=PARTITIONS, copies=3, configs={})
                for name in names:
                    say(f"{size} B, round {number + 1}: {name}")
                    one = await _run_one(name, cluster.bootstrap, topic, size, options.seconds)
                    found.setdefault(name, []).append(one)
            _tell(size, found)


def _tell(size: int, found: dict[str, list[dict[str, float]]]) -> None:
    rows = []
    for name, rounds in found.items():
        rate = statistics.median(one["rate"] for one in rounds)
        cpu = statistics.median(one["cpu_us"] for one in rounds)
        ratios = []
        for other in ("kafka-python", "aiokafka"):
            pairs = zip(rounds, found.get(other, ()), strict=False)
            shares = [mine["rate"] / theirs["rate"] for mine, theirs in pairs]
            ratios.append(f"{statistics.median(shares):.2f}" if shares else "-")
        rows.append([name, f"{rate:,.0f}", f"{rate * size / 1e6:.1f}", f"{cpu:.2f}", *ratios])
    heading = ["client", "records/s", "MB/s", "cpu s/M", "× kafka-python", "× aiokafka"]
    print(f"\n{size} B, {PARTITIONS} partitions, 3 copies, acks=all\n")
    print(table(heading, rows), flush=True)


async def _profile(options: argparse.Namespace, directory: Path) -> None:
    async with started(directory / "cluster") as cluster:
        await cluster.create("bench", partitions=PARTITIONS, copies=3, configs={})
        value = b"x" * int(options.sizes.split(",")[0])
        profile = cProfile.Profile()
        drive, where = CLIENTS[options.profile], cluster.bootstrap

        def run() -> Run:
            return profile.runcall(drive, where, "bench", value, options.seconds)

        done = await asyncio.to_thread(run)
        print(f"{done.records / done.seconds:,.0f} records/s under the profiler")
        pstats.Stats(profile).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--only", help="names with commas between them")
    parser.add_argument("--profile", choices=CLIENTS)
    parser.add_argument("--dir")
    parser.add_argument("--drive", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        _drive(options)
        return
    # As Ctrl-C does: the nodes are stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with workspace(options.dir, free_bytes_min=FREE_BYTES) as directory:
        work = _profile if options.profile else _compare
        asyncio.run(work(options, Path(directory)))


if __name__ == "__main__":
    main()
