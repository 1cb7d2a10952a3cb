"""How fast is our consumer beside those that others wrote? All from the same topic.

    python -m bench.clients_consume [--records 200000] [--rounds 3] [--sizes 100,1000]
    python -m bench.clients_consume --vary    values of half to one and a half times the size
    python -m bench.clients_consume --bootstrap host:port    a cluster that runs already

Values have all the same size, or differ: our consumer reads rows of records that are built alike by
columns (`clients/consumer/columns.py`), and others one by one.

Each client runs in a process of its own, in turns, assigned all partitions from the beginning, with
fetches of 1 MiB a partition. A figure is records per second from the first record to the last;
`cpu` is the client's processor time for a million records, which a busy machine changes less.

Not here: groups, and what the nodes can do (`replication.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.replication_cluster import started

PARTITIONS: Final = 6
FREE_BYTES: Final = 4 * 10**9
POLL_RECORDS: Final = 500
FETCH_BYTES: Final = 1 << 20


class _Clock:
    """From the first record to the last, with the processor time between."""

    def __init__(self, wanted: int) -> None:
        self.left = wanted
        self._first: tuple[int, float, float] | None = None
        self._wanted: Final = wanted

    def took(self, count: int) -> bool:
        """Note that so many came; return whether more are wanted."""
        self.left -= count
        if count and self._first is None:
            self._first = (self._wanted - self.left, time.perf_counter(), _cpu_s())
        return self.left > 0

    def told(self) -> dict[str, float]:
        assert self._first is not None
        before, began, cpu_s = self._first
        count = self._wanted - self.left - before
        return {
            "rate": count / (time.perf_counter() - began),
            "cpu_us": (_cpu_s() - cpu_s) / count * 1e6,
        }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _drive_ours(bootstrap: str, topic: str, clock: _Clock) -> None:
    from ottla import Consumer, TopicPartition

    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while clock.took(len(consumer.consume(POLL_RECORDS, 10.0))):
            pass


def _drive_ours_poll(bootstrap: str, topic: str, clock: _Clock) -> None:
    from ottla import Consumer, TopicPartition

    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        while clock.took(consumer.poll(10.0) is not None):
            pass


def _drive_ours_async(bootstrap: str, topic: str, clock: _Clock) -> None:
    from ottla import AsyncConsumer, TopicPartition

    async def main() -> None:
        config = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(config) as consumer:
            await consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            while clock.took(len(await consumer.consume(POLL_RECORDS, 10.0))):
                pass

    asyncio.run(main())


def _drive_kafka_python(bootstrap: str, topic: str, clock: _Clock) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        auto_offset_reset="earliest",
        max_poll_records=POLL_RECORDS,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    while clock.took(sum(map(len, consumer.poll(10_000).values()))):
        pass
    consumer.close()


def _drive_aiokafka(bootstrap: str, topic: str, clock: _Clock) -> None:
    async def read(consumer: Any) -> None:
        more = True
        while more:
            found = await consumer.getmany(timeout_ms=10_000, max_records=POLL_RECORDS)
            more = clock.took(sum(map(len, found.values())))

    _with_aiokafka(bootstrap, topic, read)


def _drive_aiokafka_one(bootstrap: str, topic: str, clock: _Clock) -> None:
    async def read(consumer: Any) -> None:
        while clock.took(await consumer.getone() is not None):
            pass

    _with_aiokafka(bootstrap, topic, read)


def _with_aiokafka(bootstrap: str, topic: str, read: Callable[[Any], Awaitable[None]]) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        await consumer.start()
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        try:
            await read(consumer)
        finally:
            await consumer.stop()

    asyncio.run(main())


def _drive_confluent(bootstrap: str, topic: str, clock: _Clock) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    # A record counts when its value is in Python's hands, as with the others.
    while clock.took(len([one.value() for one in consumer.consume(POLL_RECORDS, 10.0)])):
        pass
    consumer.close()


CLIENTS: Final[dict[str, Callable[[str, str, _Clock], None]]] = {
    "ours": _drive_ours,
    "ours, poll": _drive_ours_poll,
    "ours-async": _drive_ours_async,
    "kafka-python": _drive_kafka_python,
    "aiokafka": _drive_aiokafka,
    "aiokafka, getone": _drive_aiokafka_one,
    "confluent-kafka": _drive_confluent,
}


def _fill(bootstrap: str, topic: str, sizes: range, records: int, copies: int) -> None:
    from confluent_kafka import Producer

    from ottla import Admin, NewTopic

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, copies)])
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 262_144})
    dice = random.Random(records)
    for number in range(records):
        value = b"x" * dice.choice(sizes)
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


async def _run_one(name: str, bootstrap: str, topic: str, records: int) -> Any:
    command = [sys.executable, "-W", "ignore", "-m", "bench.clients_consume", "--drive", name]
    command += ["--bootstrap", bootstrap, "--topic", topic, "--records", str(records)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return json.loads(out)


async def _compare(options: argparse.Namespace, bootstrap: str, copies: int) -> None:
    names = options.only.split("/") if options.only else list(CLIENTS)
    for size in map(int, options.sizes.split(",")):
        topic = f"bench-consume-{size}-{time.time_ns()}"
        say(f"{size} B: writing {options.records:,} records")
        spread = size // 2 if options.vary else 0
        sizes = range(size - spread, size + spread + 1)
        await asyncio.to_thread(_fill, bootstrap, topic, sizes, options.records, copies)
        found = dict[str, list[dict[str, float]]]()
        for number in range(options.rounds):
            for name in names:
                say(f"{size} B, round {number + 1}: {name}")
                one = await _run_one(name, bootstrap, topic, options.records)
                found.setdefault(name, []).append(one)
        _tell(size, options.records, found)


def _tell(size: int, records: int, found: dict[str, list[dict[str, float]]]) -> None:
    rows = []
    for name, rounds in found.items():
        rate = statistics.median(one["rate"] for one in rounds)
        cpu = statistics.median(one["cpu_us"] for one in rounds)
        ratios = []
        for what in ("rate", "cpu_us"):
            for other in ("kafka-python", "aiokafka"):
                pairs = list(zip(rounds, found.get(other, ()), strict=False))
                shares = [mine[what] / theirs[what] for mine, theirs in pairs]
                if what == "cpu_us":
                    shares = [1 / share for share in shares]
                ratios.append(f"{statistics.median(shares):.2f}" if shares else "-")
        rows.append([name, f"{rate:,.0f}", f"{rate * size / 1e6:.1f}", f"{cpu:.2f}", *ratios])
    heading = ["client", "records/s", "MB/s", "cpu s/M", "× kafka-python", "× aiokafka"]
    heading += ["cpu: × kafka-python", "× aiokafka"]
    print(f"\n{size} B, {PARTITIONS} partitions, {records:,} records\n")
    print(table(heading, rows), flush=True)


async def _with_own_cluster(options: argparse.Namespace, directory: Path) -> None:
    async with started(directory / "cluster") as cluster:
        await _compare(options, cluster.bootstrap, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--vary", action="store_true", help="values that differ in size")
    parser.add_argument("--only", help="names with slashes between them")
    parser.add_argument("--bootstrap", help="a cluster that runs already; one copy is written")
    parser.add_argument("--dir")
    parser.add_argument("--drive", choices=CLIENTS, help=argparse.SUPPRESS)
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        clock = _Clock(options.records)
        CLIENTS[options.drive](options.bootstrap, options.topic, clock)
        print(json.dumps(clock.told()))
        return
    print(machine_of(".").line())
    if options.bootstrap:
        asyncio.run(_compare(options, options.bootstrap, 1))
        return
    with workspace(options.dir, free_bytes_min=FREE_BYTES) as directory:
        asyncio.run(_with_own_cluster(options, Path(directory)))


if __name__ == "__main__":
    main()
