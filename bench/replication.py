"""Three nodes that replicate: throughput, latency, and what it costs, driven by librdkafka.

    python -m bench.replication                    everything, less than half an hour
    python -m bench.replication --quick            roughly, in two minutes
    python -m bench.replication --only produce     one part: produce, pace
    python -m bench.replication --beside TREE      another copy of this repository, in turn

produce  acks=all, as fast as it goes: 1 KB and 100 B, 1 and 12 partitions, both durabilities;
         then everything is read from the start
pace     acks=all, single records at a fixed rate, an open loop: p50, p99, p99.9; 1,000/s of all
         the loads above, and 300/s of 100 B to 1 partition

Sides take turns at each load, every other round backwards, after one round that is thrown away
(`replication_cases.py` says what the sides are). Every turn has a new topic, which is removed
after it, and begins with memory that was just touched (`replication_cluster.py` says why). A figure
is the median of its rounds, and a ratio the median of the ratios within a round.
Everything shares one machine: nodes, driver, and whoever else is there. Where `driver cores` and
`node cores` together are near what the machine has, nobody waits for anything but a processor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Final

from bench.machine import machine_of
from bench.measure import say, warm_memory, workspace
from bench.node_servers import Durability
from bench.replication_cases import ClusterSide, Figure, LimitSide, Load, Side
from bench.replication_cluster import NODES, started

RATE: Final = 1000
# What is slower is asked for with one load only: bytes, partitions, records/s.
SLOW_PACE: Final = (100, 1, 300)
DURABILITIES: Final[tuple[Durability, ...]] = ("pagecache", "fsync")
_FREE_BYTES_MIN: Final = 6 << 30
_WARM_BYTES: Final = 2 << 30


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    rounds: int
    # Of one turn, with records of 1 KB and of 100 B.
    turn_bytes: int
    small_turn_bytes: int
    sizes_and_partitions: tuple[tuple[int, int], ...]
    pace_s: int
    pace_rounds: int
    with_slow_pace: bool
    with_limit: bool

    def loads(self) -> list[Load]:
        return [
            Load(durability, size, partitions, self._count(size))
            for durability, (size, partitions) in product(DURABILITIES, self.sizes_and_partitions)
        ]

    def _count(self, size: int) -> int:
        total = self.small_turn_bytes if size < 1000 else self.turn_bytes
        return total // size // 1000 * 1000

    def paces(self) -> list[Load]:
        paces = [(size, partitions, RATE) for size, partitions in self.sizes_and_partitions]
        paces += [SLOW_PACE] if self.with_slow_pace else []
        return [
            Load(durability, size, partitions, rate * self.pace_s, rate)
            for durability, (size, partitions, rate) in product(DURABILITIES, paces)
        ]


FULL: Final = Plan(
    rounds=5,
    turn_bytes=256 << 20,
    small_turn_bytes=80 << 20,
    sizes_and_partitions=((1024, 1), (1024, 12), (100, 1), (100, 12)),
    pace_s=8,
    pace_rounds=5,
    with_slow_pace=True,
    with_limit=True,
)
QUICK: Final = Plan(
    rounds=2,
    turn_bytes=96 << 20,
    small_turn_bytes=20 << 20,
    sizes_and_partitions=((1024, 1), (100, 12)),
    pace_s=2,
    pace_rounds=1,
    with_slow_pace=False,
    with_limit=False,
)


async def take_turns(sides: Sequence[Side], load: Load, rounds: int) -> list[Figure]:
    say(f"{load.name} …")
    figures = [Figure(load, side.name, []) for side in sides]
    pairs = list(zip(sides, figures, strict=True))
    for number in range(1 + rounds):
        for side, figure in pairs if number % 2 else pairs[::-1]:
            turn = await side.take(load)
            if number > 0:
                figure.turns.append(turn)
    return figures


def markdown(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _ratio(figures: Sequence[Figure], figure: Figure) -> str:
    """Return the speed of the first figure as a share of another one, round by round."""
    if figure is figures[0]:
        return ""
    pairs = zip(figures[0].turns, figure.turns, strict=True)
    return f"{median(theirs.seconds / ours.seconds for ours, theirs in pairs):.2f}"


def show_produced(groups: Sequence[Sequence[Figure]]) -> str:
    heading = ["produce, acks=all", "side", "MB/s", "rounds", "records/s", "RF 3 is × of it"]
    heading += ["consume MB/s", "CPU s/GB", "of it system", "node cores", "driver cores"]
    heading += ["RSS (anon) MB", "rounds out of sync"]
    rows = []
    for figures in groups:
        for figure in figures:
            speeds, turns = figure.megabytes_per_s, figure.turns
            row = [
                figure.load.name if figure is figures[0] else "",
                figure.side,
                f"{median(speeds):,.0f}",
                f"{min(speeds):,.0f}–{max(speeds):,.0f}",
                f"{figure.records_per_s:,.0f}",
                _ratio(figures, figure),
                f"{figure.consumed_megabytes_per_s:,.0f}",
                f"{figure.cpu_s_per_gb:.1f}",
                f"{figure.system_share:.0%}",
                f"{figure.cores:.2f}",
                f"{median(turn.driver_cores for turn in turns):.2f}",
                f"{max(turn.rss_mb for turn in turns):.0f} "
                f"({max(turn.anon_mb for turn in turns):.0f})",
                str(figure.out_of_sync or ""),
            ]
            rows.append(row)
    return markdown(heading, rows)


def show_paced(groups: Sequence[Sequence[Figure]]) -> str:
    heading = ["single writes, acks=all", "side", "p50 ms", "p99 ms", "p99.9 ms", "most ms"]
    heading += ["p99 of rounds", "done/s", "node CPU µs each", "sent late", "rounds out of sync"]
    rows = []
    for figures in groups:
        for figure in figures:
            p99 = figure.latency_us(0.99)
            row = [figure.load.name if figure is figures[0] else "", figure.side]
            for share in (0.5, 0.99, 0.999, 1.0):
                row.append(f"{median(figure.latency_us(share)) / 1000:.2f}")
            row.append(f"{min(p99) / 1000:.2f}–{max(p99) / 1000:.2f}")
            row.append(f"{figure.records_per_s:,.0f}")
            row.append(f"{figure.cpu_us_per_record:,.0f}")
            row.append(f"{sum(turn.late for turn in figure.turns)}")
            row.append(str(figure.out_of_sync or ""))
            rows.append(row)
    return markdown(heading, rows)


@asynccontextmanager
async def sides_of(
    directory: Path, plan: Plan, beside: Path | None
) -> AsyncIterator[tuple[list[Side], list[Side]]]:
    """Yield those who are driven as fast as they go, and those who are paced."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(started(directory / "cluster"))
        sides: list[Side] = [ClusterSide("RF 3", cluster, NODES)]
        if beside is not None:
            other = await stack.enter_async_context(started(directory / "beside", tree=beside))
            sides.append(ClusterSide("RF 3, other tree", other, NODES))
        sides.append(ClusterSide("RF 1", cluster, 1))
        bare = LimitSide(directory, bare=True)
        limit: list[Side] = [LimitSide(directory)] if plan.with_limit else []
        yield [*sides, bare, *limit], [*sides, bare]


async def measure(directory: Path, plan: Plan, given: argparse.Namespace) -> dict[str, object]:
    facts: dict[str, object] = {}
    loads = [load for load in plan.loads() if given.match in load.name]
    paces = [load for load in plan.paces() if given.match in load.name]
    warm_memory(str(directory), _WARM_BYTES)
    async with sides_of(directory, plan, given.beside) as (produced, paced):
        if given.only != "pace":
            groups = [await take_turns(produced, load, plan.rounds) for load in loads]
            print(show_produced(groups), end="\n\n", flush=True)
            facts["produce"] = [one.facts() for figures in groups for one in figures]
        if given.only != "produce":
            groups = [await take_turns(paced, load, plan.pace_rounds) for load in paces]
            print(show_paced(groups), end="\n\n", flush=True)
            facts["pace"] = [one.facts() for figures in groups for one in figures]
    return facts


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.replication", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--quick", action="store_true", help="two minutes, and rough")
    parser.add_argument("--only", choices=("produce", "pace"))
    parser.add_argument("--match", default="", help="only loads whose names have this in them")
    parser.add_argument("--beside", type=Path, metavar="TREE", help="another copy of the code")
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    given = parser.parse_args()
    # Nodes are stopped and files removed also when somebody loses patience.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    plan = QUICK if given.quick else FULL
    with workspace(given.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        machine = machine_of(directory)
        print(machine.line())
        print(f"{plan.rounds} rounds after one of warm-up; {NODES} nodes\n", flush=True)
        facts = asyncio.run(measure(Path(directory), plan, given))
    after = os.getloadavg()
    print(f"load averages at the end: {after[0]:.1f}, {after[1]:.1f}, {after[2]:.1f}")
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine.facts(), "load_after": after, **facts}, file, indent=2)


if __name__ == "__main__":
    main()
