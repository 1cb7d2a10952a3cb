"""How much is done, in which order, and how the turns of two brokers become a figure.

A turn is a new broker in an empty directory, everything that is asked of it, and its end. Brokers
take turns, so that what the machine does meanwhile hits both; the first turn of each is thrown
away. What a turn wrote is removed before the next one begins: memory that the page cache never had
before, or not for a while, is ten times dearer on a virtual machine, and with files that grow from
turn to turn one would measure that.

Not here: what is asked of the brokers (`node_cases.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import say, warm_memory
from bench.node_cases import TOPIC, Action, Result
from bench.node_servers import Durability, Server, limit_command, node_command, running
from bench.node_wire import wire_to


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    rounds: int
    # Of one turn of produce, with records of 1 KB, and with smaller ones, which take longer.
    turn_bytes: int
    small_turn_bytes: int
    writes: int
    topics: int
    requests: int
    sizes: tuple[int, ...]
    # A limit in place of the node.
    itself: bool = False

    def count(self, size: int) -> int:
        return (self.small_turn_bytes if size < 1000 else self.turn_bytes) // size


FULL: Final = Plan(
    rounds=5,
    turn_bytes=384 << 20,
    small_turn_bytes=80 << 20,
    writes=1000,
    topics=2000,
    requests=2000,
    sizes=(1024, 100),
)
QUICK: Final = Plan(
    rounds=2,
    turn_bytes=64 << 20,
    small_turn_bytes=20 << 20,
    writes=200,
    topics=500,
    requests=500,
    sizes=(1024,),
)


@dataclass(slots=True)
class Pair:
    """An action, and the turns of both brokers at it, the warm-up left out."""

    name: str
    action: Action
    limit: list[Result] = field(default_factory=list)
    node: list[Result] = field(default_factory=list)

    @property
    def sides(self) -> tuple[list[Result], list[Result]]:
        return self.limit, self.node

    def megabytes_per_s(self, results: Sequence[Result]) -> list[float]:
        done = self.action.op_bytes * self.action.ops / 1e6
        return [done / result.seconds for result in results]

    def ops_per_s(self, results: Sequence[Result]) -> float:
        return median(self.action.ops / result.seconds for result in results)

    def cpu_s_per_gb(self, results: Sequence[Result]) -> float:
        done = self.action.op_bytes * self.action.ops / 1e9
        return median(result.server_cpu_s / done for result in results)

    def cpu_us_per_op(self, results: Sequence[Result]) -> float:
        return median(result.server_cpu_s / self.action.ops * 1e6 for result in results)

    @property
    def share(self) -> float:
        """Return what part of the limit was reached, round by round."""
        pairs = zip(self.limit, self.node, strict=True)
        return median(limit.seconds / node.seconds for limit, node in pairs)

    @property
    def best_share(self) -> float:
        limit, node = (min(result.seconds for result in side) for side in self.sides)
        return limit / node

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "share": round(self.share, 3),
            "best_share": round(self.best_share, 3),
            "limit": self._facts(self.limit),
            "node": self._facts(self.node),
        }

    def _facts(self, results: Sequence[Result]) -> dict[str, object]:
        facts: dict[str, object] = {
            "mb_per_s": [round(speed, 2) for speed in self.megabytes_per_s(results)],
            "ops_per_s": round(self.ops_per_s(results)),
            "cpu_us_per_op": round(self.cpu_us_per_op(results), 3),
            "peak_anon_mb": round(max(result.peak_mb for result in results), 1),
        }
        if results[0].driver_cores is not None:
            facts["driver_cores"] = round(median(r.driver_cores or 0.0 for r in results), 2)
        if results[0].p50_us:
            facts["p50_us"] = round(median(result.p50_us for result in results), 1)
            facts["p99_us"] = round(median(result.p99_us for result in results), 1)
        return facts


def make_topics(server: Server, plan: Plan, names: Sequence[str], partitions: int) -> None:
    """Make the topics in a node. The limit makes a topic when it is named."""
    if server.name == "limit" or plan.itself:
        return
    with wire_to(server.host_and_port) as wire:
        wire.create_topics(names, partitions)


def take_pairs(
    directory: Path,
    plan: Plan,
    actions: Sequence[Action],
    *,
    durability: Durability,
    partitions: int,
) -> list[Pair]:
    """Take turns at the actions, in their order within a turn."""
    pairs = [Pair(f"{action.name}, {durability}", action) for action in actions]
    say(f"{pairs[0].name} …")
    ours = limit_command if plan.itself else node_command
    commands = {"limit": limit_command, "node": ours}
    turn_bytes = sum(action.op_bytes * action.ops for action in actions)
    for number in range(1 + plan.rounds):
        for name in commands if number % 2 else reversed(commands):
            place = directory / name
            warm_memory(str(directory), turn_bytes)
            with running(name, place, commands[name](place, durability)) as server:
                make_topics(server, plan, [TOPIC], partitions)
                for pair in pairs:
                    result = pair.action.run(server)
                    if number > 0:
                        (pair.limit if name == "limit" else pair.node).append(result)
            shutil.rmtree(place)
    return pairs
