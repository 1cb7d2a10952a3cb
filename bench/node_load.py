"""What the node does under load: produced, consumed, plain requests, and single writes.

Not here: one turn (`node_cases.py`); memory, start and many topics (`node_process.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.measure import table
from bench.node_cases import Stream, driven, streamed
from bench.node_plan import Pair, Plan, make_topic, taken
from bench.node_servers import Durability, both

DURABILITIES: Final[tuple[Durability, ...]] = ("pagecache", "fsync")
PARTITIONS: Final = (1, 4)


def show(title: str, pairs: Sequence[Pair]) -> list[dict[str, object]]:
    heading = [title, "limit MB/s", "node MB/s", "rounds", "records/s", "limit CPU s/GB"]
    heading += ["node CPU s/GB", "driver cores", "share", "of best", ""]
    print(table(heading, [pair.row() for pair in pairs]), end="\n\n", flush=True)
    return [pair.facts() for pair in pairs]


def size_text(size: int) -> str:
    return "1 KB" if size == 1024 else f"{size} B"


def measure_produce(directory: Path, plan: Plan) -> dict[str, object]:
    produced, consumed = [], []
    for durability, size, partitions in product(DURABILITIES, plan.sizes, PARTITIONS):
        name = f"{size_text(size)}, {partitions} partitions, {durability}"
        place = directory / f"produce-{durability}-{size}-{partitions}"
        asked: dict[str, Any] = {
            "topic": "t",
            "partitions": partitions,
            "size": size,
            "count": plan.count(size),
        }
        with both(place, durability, itself=plan.itself) as servers:
            make_topic(servers, plan, "t", partitions)
            turn = partial(driven, command="produce", **asked)
            produced.append(taken(f"produce {name}", plan, servers, turn))
            if durability == "pagecache":
                turn = partial(driven, command="consume", **asked)
                consumed.append(taken(f"consume {name}", plan, servers, turn))
        shutil.rmtree(place)
    facts: dict[str, object] = {
        "produce": show("librdkafka, acks=1", produced),
        "consume": show("librdkafka, from the start", consumed),
    }
    for read in consumed:
        written = next(pair for pair in produced if pair.name[8:] == read.name[8:])
        ratio = median(
            w / r for w, r in zip(written.node.case.rounds, read.node.case.rounds, strict=True)
        )
        print(f"the node consumes {ratio:.2f} times as fast as it is produced to: {read.name[8:]}")
    print(flush=True)
    return facts


def measure_stream(directory: Path, plan: Plan) -> dict[str, object]:
    streams = [
        Stream(1024, 960, max(50, plan.turn_bytes >> 20), 4),
        Stream(1024, 16, plan.requests, 8),
        Stream(100, 1, plan.requests * 2, 8),
        Stream(100, 1, plan.requests, 1),
    ]
    pairs = []
    for durability in DURABILITIES:
        with both(directory / f"stream-{durability}", durability, itself=plan.itself) as servers:
            make_topic(servers, plan, "t", 1)
            for stream in streams:
                turn = partial(streamed, topics=lambda: ["t"], stream=stream)
                pairs.append(taken(f"{stream.name}, {durability}", plan, servers, turn))
        shutil.rmtree(directory / f"stream-{durability}")
    heading = ["plain requests, acks=1", "limit MB/s", "node MB/s", "limit requests/s"]
    heading += ["node requests/s", "limit CPU µs", "node CPU µs", "share", "of best"]
    print(table(heading, [pair.request_row() for pair in pairs]), end="\n\n", flush=True)
    return {"stream": [pair.facts() for pair in pairs]}


def measure_write(directory: Path, plan: Plan) -> dict[str, object]:
    pairs = []
    for durability in DURABILITIES:
        with both(directory / f"write-{durability}", durability, itself=plan.itself) as servers:
            make_topic(servers, plan, "t", 1)
            turn = partial(
                driven, command="write", topic="t", partitions=1, size=100, count=plan.writes
            )
            pairs.append(taken(f"100 B, one at a time, {durability}", plan, servers, turn))
    rows = [
        [
            pair.name,
            *(f"{median(turns.p50_us[1:]):,.0f}" for turns in (pair.limit, pair.node)),
            *(f"{median(turns.p99_us[1:]):,.0f}" for turns in (pair.limit, pair.node)),
            f"{pair.limit.cpu_us_per_op:,.0f}",
            f"{pair.node.cpu_us_per_op:,.0f}",
            f"{pair.share:.0%}",
        ]
        for pair in pairs
    ]
    heading = ["acknowledged write, librdkafka", "limit p50 µs", "node p50 µs", "limit p99 µs"]
    heading += ["node p99 µs", "limit CPU µs", "node CPU µs", "share"]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"write": [pair.facts() for pair in pairs]}
