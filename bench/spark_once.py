"""What does it cost to write exactly once, beside at least once, with Spark's sink?

    python -m bench.spark_once [--rounds 3]

Three nodes, a topic of four partitions with records of 100 bytes, and a stream on two threads that
copies it to another one. Batches of 1,000 records show what a batch costs by itself (latency: a row
is readable when its batch is over), batches of 100,000 what a record costs. The first batch of a
stream, in which Python starts, is left out. Both guarantees take turns in one Spark; a figure is
the median of all batches, a ratio the median of the ratios within a round.

Not here: reading (`spark.py`, `spark_count.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.cluster_nodes import Started, started
from bench.machine import machine_of
from bench.measure import say, table, workspace
from ottla.clients.admin.answers import NewTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.producer.client import Producer
from ottla.clients.spark.session import start_session

_FREE_BYTES: Final = 4 << 30
_PARTITIONS: Final = 4
_SIZE: Final = 100
# Records of a batch → batches of a turn, without the first.
_KINDS: Final = {1_000: 10, 100_000: 3}
_GUARANTEES: Final = ("at least once", "exactly once")


class Copying:
    """A Spark, a cluster, and streams that copy one topic to another."""

    def __init__(self, spark: Any, bootstrap: str, place: Path) -> None:
        self._spark: Final = spark
        self._bootstrap: Final = bootstrap
        self._place: Final = place
        self._turns = 0

    def fill(self) -> None:
        records = max(size * (count + 1) for size, count in _KINDS.items())
        self._make("source")
        with Producer({"bootstrap.servers": self._bootstrap}) as producer:
            for number in range(records):
                producer.send("source", b"%0*d" % (_SIZE, number), key=b"%d" % (number % 1000))

    def turn(self, per_batch: int, guarantee: str) -> list[float]:
        """Copy once, in a query of its own; return the seconds of each batch but the first."""
        self._turns += 1
        target = f"target-{self._turns}"
        self._make(target)
        address = {"kafka.bootstrap.servers": self._bootstrap}
        wanted = per_batch * (_KINDS[per_batch] + 1)
        ends = json.dumps({"source": {str(one): 0 for one in range(_PARTITIONS)}})
        reading = {"subscribe": "source", "startingOffsets": ends}
        reading["maxOffsetsPerTrigger"] = str(per_batch)
        rows = self._spark.readStream.format("ottla").options(**address, **reading).load()
        writing = {"topic": target}
        if guarantee == "exactly once":
            writing |= {"exactlyOnce": "true", "transactionalIdPrefix": target}
        query = (
            rows.select("key", "value")
            .writeStream.format("ottla")
            .options(**address, **writing)
            .option("checkpointLocation", str(self._place / target))
            .trigger(processingTime="0 seconds")
            .start()
        )
        told = list[dict[str, Any]]()
        while sum(one["numInputRows"] for one in told) < wanted:
            if query.exception() is not None:
                raise SystemExit(str(query.exception()))
            query.awaitTermination(0.2)
            told = [one for one in query.recentProgress if one["numInputRows"]]
        query.stop()
        return [one["batchDuration"] / 1000 for one in told[1 : _KINDS[per_batch] + 1]]

    def _make(self, topic: str) -> None:
        with Admin({"bootstrap.servers": self._bootstrap}) as admin:
            admin.create_topics([NewTopic(topic, _PARTITIONS, 3)])


@contextmanager
def _spark() -> Iterator[Any]:
    spark = start_session("bench", url="local[2]", conf={"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def measure(bootstrap: str, place: Path, rounds: int) -> list[list[str]]:
    rows = list[list[str]]()
    with _spark() as spark:
        copying = Copying(spark, bootstrap, place)
        copying.fill()
        for guarantee in _GUARANTEES:
            say(f"warm-up: {guarantee} …")
            copying.turn(1_000, guarantee)
        for per_batch in _KINDS:
            took: dict[str, list[list[float]]] = {one: [] for one in _GUARANTEES}
            for number in range(rounds):
                for guarantee in _GUARANTEES[:: 1 if number % 2 == 0 else -1]:
                    say(f"batches of {per_batch:,}, round {number + 1}: {guarantee} …")
                    took[guarantee].append(copying.turn(per_batch, guarantee))
            least, once = (took[one] for one in _GUARANTEES)
            ratios = [median(b) / median(a) for a, b in zip(least, once, strict=True)]
            for guarantee in _GUARANTEES:
                batch_s = median(one for turn in took[guarantee] for one in turn)
                told = "" if guarantee == _GUARANTEES[0] else f"{median(ratios):.2f}"
                by_round = "" if not told else " ".join(f"{one:.2f}" for one in ratios)
                rows.append(
                    [
                        f"{per_batch:,}",
                        guarantee,
                        f"{batch_s * 1000:,.0f}",
                        f"{per_batch / batch_s:,.0f}",
                        told,
                        by_round,
                    ]
                )
    return rows


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.spark_once", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with workspace(options.dir, free_bytes_min=_FREE_BYTES) as directory:
        print(machine_of(directory).line(), flush=True)
        asyncio.run(_on_a_cluster(Path(directory), options.rounds))


async def _on_a_cluster(place: Path, rounds: int) -> None:
    async with started(place / "cluster", 3) as cluster:
        rows = await asyncio.to_thread(measure, _bootstrap(cluster), place / "state", rounds)
    heads = ["records of a batch", "guarantee", "a batch, ms", "records/s", "time, ratio", "rounds"]
    print(table(heads, rows), flush=True)


def _bootstrap(cluster: Started) -> str:
    return ",".join(str(node.plan.listeners["CLIENT"]) for node in cluster.record.nodes.values())


if __name__ == "__main__":
    main()
