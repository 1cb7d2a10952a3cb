"""What the node does under load: produced, consumed, plain requests, and single writes.

Not here: what is done in a turn (`node_cases.py`); memory, start and topics (`node_process.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import table, verdict
from bench.node_cases import driven, streamed
from bench.node_plan import Pair, Plan, take_pairs
from bench.node_servers import Durability

DURABILITIES: Final[tuple[Durability, ...]] = ("pagecache", "fsync")
PARTITIONS: Final = (1, 4)


def measure_produce(directory: Path, plan: Plan) -> dict[str, object]:
    produced, consumed = list[Pair](), list[Pair]()
    for durability, size, partitions in product(DURABILITIES, plan.sizes, PARTITIONS):
        name = f"{'1 KB' if size == 1024 else f'{size} B'}, {partitions} partitions"
        count = plan.count(size)
        actions = [
            driven(command, name, partitions=partitions, size=size, count=count)
            for command in ("produce", "consume")
        ]
        pairs = take_pairs(directory, plan, actions, durability=durability, partitions=partitions)
        produced.append(pairs[0])
        consumed.append(pairs[1])
    _show("produced by librdkafka, acks=1", produced)
    _show("consumed by librdkafka", consumed)
    for written, read in zip(produced, consumed, strict=True):
        pairs_of_turns = zip(written.node, read.node, strict=True)
        ratio = median(wrote.seconds / took.seconds for wrote, took in pairs_of_turns)
        print(f"the node is read {ratio:.2f} times as fast as it is written: {written.name}")
    print(flush=True)
    return {
        "produce": [pair.facts() for pair in produced],
        "consume": [pair.facts() for pair in consumed],
    }


def _show(title: str, pairs: Sequence[Pair]) -> None:
    heading = [title, "limit MB/s", "node MB/s", "rounds", "node records/s", "limit CPU s/GB"]
    heading += ["node CPU s/GB", "driver cores", "share", "of best", ""]
    rows = []
    for pair in pairs:
        limit, node = (pair.megabytes_per_s(side) for side in pair.sides)
        rows.append(
            [
                pair.name,
                f"{median(limit):,.0f}",
                f"{median(node):,.0f}",
                f"{min(node):,.0f}–{max(node):,.0f}",
                f"{pair.ops_per_s(pair.node):,.0f}",
                f"{pair.cpu_s_per_gb(pair.limit):.2f}",
                f"{pair.cpu_s_per_gb(pair.node):.2f}",
                f"{median(result.driver_cores or 0.0 for result in pair.node):.1f}",
                f"{pair.share:.0%}",
                f"{pair.best_share:.0%}",
                verdict(pair.share),
            ]
        )
    print(table(heading, rows), end="\n\n", flush=True)


def measure_stream(directory: Path, plan: Plan) -> dict[str, object]:
    actions = [
        streamed(1024, 960, max(50, plan.turn_bytes >> 20), 4),
        streamed(1024, 16, plan.requests, 8),
        streamed(100, 1, plan.requests * 2, 8),
        streamed(100, 1, plan.requests, 1),
    ]
    pairs = [
        pair
        for durability in DURABILITIES
        for pair in take_pairs(directory, plan, actions, durability=durability, partitions=1)
    ]
    heading = ["plain requests, acks=1", "limit MB/s", "node MB/s", "limit requests/s"]
    heading += ["node requests/s", "limit CPU µs", "node CPU µs", "share", "of best"]
    rows = [
        [
            pair.name,
            *(f"{median(pair.megabytes_per_s(side)):,.1f}" for side in pair.sides),
            *(f"{pair.ops_per_s(side):,.0f}" for side in pair.sides),
            *(f"{pair.cpu_us_per_op(side):,.0f}" for side in pair.sides),
            f"{pair.share:.0%}",
            f"{pair.best_share:.0%}",
        ]
        for pair in pairs
    ]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"stream": [pair.facts() for pair in pairs]}


def measure_write(directory: Path, plan: Plan) -> dict[str, object]:
    action = driven("write", "100 B at a time", partitions=1, size=100, count=plan.writes)
    pairs = [
        pair
        for durability in DURABILITIES
        for pair in take_pairs(directory, plan, [action], durability=durability, partitions=1)
    ]
    heading = ["acknowledged write, librdkafka", "limit p50 µs", "node p50 µs", "limit p99 µs"]
    heading += ["node p99 µs", "limit CPU µs", "node CPU µs", "share"]
    rows = [
        [
            pair.name,
            *(f"{median(result.p50_us for result in side):,.0f}" for side in pair.sides),
            *(f"{median(result.p99_us for result in side):,.0f}" for side in pair.sides),
            *(f"{pair.cpu_us_per_op(side):,.0f}" for side in pair.sides),
            f"{pair.share:.0%}",
        ]
        for pair in pairs
    ]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"write": [pair.facts() for pair in pairs]}
