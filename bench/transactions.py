"""What do transactions cost? Ours and Apache Kafka's, driven by the same librdkafka, in one run.

    python -m bench.transactions              5 min; needs Java 17 and Maven
    python -m bench.transactions --only ours  without Kafka

Three nodes each, one system after the other; a topic of three partitions and three replicas, two of
them in sync at least, acks=all; records of 1,000 bytes. In turns: records without a transaction, as
many as can be sent, and transactions of 1,000 records each. The ratio is that of a turn to the one
beside it, so whatever else the machine or the system does is in both. A commit is timed from the
call, with every record acknowledged before, to its answer.

Kafka has its own defaults, and so it acknowledges what no disk has; ours sync first. So ratios can
be compared, and rates cannot.

Not here: how many transactions there may be at once (`tests/hostile`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.cluster_nodes import started
from bench.machine import machine_of
from bench.measure import say, table, workspace
from bench.peers.kafka import KafkaPeer
from tests.interop.kafka import missing_tools

FREE_BYTES: Final = 4 * 10**9
RECORD: Final = bytes(range(250)) * 4
IN_TRANSACTION: Final = 1_000
PARTITIONS: Final = 3
DEADLINE_S: Final = 60.0
OURS: Final = "Ottla"
KAFKA: Final = "Apache Kafka 4.3.1"


@dataclass(slots=True)
class Figures:
    """What the rounds of one system came to."""

    name: str
    # Records per second, by round.
    plain: list[float] = field(default_factory=list)
    flushed: list[float] = field(default_factory=list)
    transactional: list[float] = field(default_factory=list)
    commits_s: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        pairs = zip(self.transactional, self.plain, strict=True)
        return median(one / other for one, other in pairs)

    @property
    def ratio_to_flushed(self) -> float:
        pairs = zip(self.transactional, self.flushed, strict=True)
        return median(one / other for one, other in pairs)

    def commit_ms(self, percent: int) -> float:
        return quantiles(self.commits_s, n=100)[percent - 1] * 1000

    def facts(self) -> dict[str, Any]:
        return {
            "plain_per_s": self.plain,
            "flushed_per_s": self.flushed,
            "transactional_per_s": self.transactional,
            "ratio": self.ratio,
            "ratio_to_flushed": self.ratio_to_flushed,
            "commits": len(self.commits_s),
            "commit_p50_ms": self.commit_ms(50),
            "commit_p99_ms": self.commit_ms(99),
        }


class Drive:
    """Producers of one cluster that take turns."""

    def __init__(self, bootstrap: str, topic: str, seconds: float) -> None:
        self._topic: Final = topic
        self._seconds: Final = seconds
        common: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,
        }
        self._plain: Final = Producer(common)
        self._writer: Final = Producer({**common, "transactional.id": "bench"})
        self._failures = list[str]()

    def begin(self) -> None:
        """Hold the transactional id; the coordinator may have to be made first."""
        end_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._writer.init_transactions(DEADLINE_S)
            except KafkaException as failure:
                if not failure.args[0].retriable() or time.monotonic() > end_s:
                    raise
            else:
                return

    def _take(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _send(self, producer: Producer, count: int) -> None:
        for number in range(count):
            while True:
                try:
                    producer.produce(
                        self._topic, RECORD, partition=number % PARTITIONS, on_delivery=self._take
                    )
                except BufferError:
                    producer.poll(0.01)
                else:
                    break
        producer.poll(0)

    def _turn(self, producer: Producer, step: Callable[[], None]) -> float:
        """Do steps of 1,000 records for as long as a turn lasts; return records per second."""
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < self._seconds:
            step()
            steps += 1
        if producer.flush(DEADLINE_S):
            raise SystemExit("not all records were sent")
        took_s = time.perf_counter() - began
        if self._failures:
            raise SystemExit(f"{len(self._failures)} records failed: {self._failures[0]}")
        return steps * IN_TRANSACTION / took_s

    def plain(self) -> float:
        return self._turn(self._plain, lambda: self._send(self._plain, IN_TRANSACTION))

    def flushed(self) -> float:
        def step() -> None:
            self._send(self._plain, IN_TRANSACTION)
            self._plain.flush(DEADLINE_S)

        return self._turn(self._plain, step)

    def transactional(self, commits_s: list[float]) -> float:
        writer = self._writer

        def step() -> None:
            writer.begin_transaction()
            self._send(writer, IN_TRANSACTION)
            writer.flush(DEADLINE_S)
            began = time.perf_counter()
            writer.commit_transaction(DEADLINE_S)
            commits_s.append(time.perf_counter() - began)

        return self._turn(writer, step)


def measured(name: str, bootstrap: str, rounds: int, seconds: float) -> Figures:
    topic = "bench-transactions"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    options = {"min.insync.replicas": "2"}
    wanted = NewTopic(topic, PARTITIONS, 3, config=options)
    admin.create_topics([wanted])[topic].result(DEADLINE_S)
    drive, figures = Drive(bootstrap, topic, seconds), Figures(name)
    drive.begin()
    say(f"{name}: warming up")
    for step in (drive.plain, drive.flushed, lambda: drive.transactional([])):
        step()
    for number in range(rounds):
        say(f"{name}: round {number + 1} of {rounds}")
        # Backwards every other time, so that nobody always comes after the same one.
        order = ["plain", "flushed", "transactional"][:: -1 if number % 2 else 1]
        for kind in order:
            if kind == "transactional":
                figures.transactional.append(drive.transactional(figures.commits_s))
            else:
                getattr(figures, kind).append(getattr(drive, kind)())
    return figures


@asynccontextmanager
async def ours(root: Path) -> AsyncIterator[str]:
    async with started(root, 3) as cluster:
        nodes = cluster.record.nodes.values()
        yield ",".join(str(one.plan.listeners["CLIENT"]) for one in nodes)


async def _run(options: argparse.Namespace, directory: Path) -> list[Figures]:
    found = list[Figures]()
    if options.only != "kafka":
        async with ours(directory / "ours") as bootstrap:
            work = (OURS, bootstrap, options.rounds, options.seconds)
            found.append(await asyncio.to_thread(measured, *work))
    if options.only != "ours":
        with KafkaPeer(directory / "kafka") as peer:
            peer.start()
            work = (KAFKA, peer.bootstrap, options.rounds, options.seconds)
            found.append(await asyncio.to_thread(measured, *work))
    return found


def _rows(found: list[Figures]) -> list[list[str]]:
    def row(name: str, of: Callable[[Figures], str]) -> list[str]:
        return [name, *map(of, found)]

    return [
        row("without transactions, records per s", lambda one: f"{median(one.plain):,.0f}"),
        row("the same, flushed every 1,000", lambda one: f"{median(one.flushed):,.0f}"),
        row("1,000 a transaction, records per s", lambda one: f"{median(one.transactional):,.0f}"),
        row("ratio", lambda one: f"{one.ratio:.2f}"),
        row("ratio to flushed", lambda one: f"{one.ratio_to_flushed:.2f}"),
        row("a commit, p50", lambda one: f"{one.commit_ms(50):.1f} ms"),
        row("a commit, p99", lambda one: f"{one.commit_ms(99):.1f} ms"),
        row("commits timed", lambda one: f"{len(one.commits_s):,}"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--dir", default=None, help="where to write (default: $TMPDIR, target/)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one turn")
    parser.add_argument("--only", choices=["ours", "kafka"])
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    options = parser.parse_args()
    missing = None if options.only == "ours" else missing_tools()
    if missing is not None:
        raise SystemExit(f"Apache Kafka {missing}; or say --only ours")
    # As Ctrl-C does: the nodes are stopped, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with workspace(options.dir, free_bytes_min=FREE_BYTES) as directory:
        print(machine_of(str(directory)).line())
        found = asyncio.run(_run(options, Path(directory)))
    print(table(["", *(one.name for one in found)], _rows(found)))
    if options.json is not None:
        options.json.write_text(json.dumps({one.name: one.facts() for one in found}, indent=1))


if __name__ == "__main__":
    main()
