"""How much is done, and how the turns of two brokers become a figure with its limit.

Not here: what is asked of the brokers (`node_cases.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.measure import best_share, say, share, take_turns, verdict
from bench.node_cases import Turns
from bench.node_servers import Server
from bench.node_wire import wire_to

_TOUCH_BYTES: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done."""

    rounds: int
    # Of one turn of produce, with records of 1 KB; small records take longer.
    turn_bytes: int
    small_turn_bytes: int
    writes: int
    starts: int
    topics: int
    requests: int
    warm_bytes: int
    sizes: tuple[int, ...]
    # A limit in place of the node.
    itself: bool = False

    def count(self, size: int) -> int:
        return (self.small_turn_bytes if size < 1000 else self.turn_bytes) // size


FULL: Final = Plan(
    rounds=5,
    turn_bytes=384 << 20,
    small_turn_bytes=100 << 20,
    writes=1000,
    starts=5,
    topics=2000,
    requests=2000,
    warm_bytes=5 << 30,
    sizes=(1024, 100),
)
QUICK: Final = Plan(
    rounds=2,
    turn_bytes=64 << 20,
    small_turn_bytes=20 << 20,
    writes=200,
    starts=2,
    topics=2000,
    requests=500,
    warm_bytes=2 << 30,
    sizes=(1024,),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure of the node and its limit."""

    name: str
    limit: Turns
    node: Turns

    @property
    def share(self) -> float:
        return share(self.limit.case, self.node.case)

    def row(self) -> list[str]:
        limit, node = self.limit, self.node
        return [
            self.name,
            f"{limit.case.megabytes_per_s:,.0f}",
            f"{node.case.megabytes_per_s:,.0f}",
            node.spread(),
            f"{node.records_per_s:,.0f}",
            f"{limit.cpu_s_per_gb:.2f}",
            f"{node.cpu_s_per_gb:.2f}",
            f"{node.driver_share:.1f}" if node.driver_cpu_s else "-",
            f"{self.share:.0%}",
            f"{best_share(limit.case, node.case):.0%}",
            verdict(self.share),
        ]

    def request_row(self) -> list[str]:
        """Return the same for requests that are too small for their bytes to matter."""
        limit, node = self.limit, self.node
        return [
            self.name,
            f"{limit.case.megabytes_per_s:,.1f}",
            f"{node.case.megabytes_per_s:,.1f}",
            f"{limit.records_per_s:,.0f}",
            f"{node.records_per_s:,.0f}",
            f"{limit.cpu_us_per_op:,.0f}",
            f"{node.cpu_us_per_op:,.0f}",
            f"{self.share:.0%}",
            f"{best_share(limit.case, node.case):.0%}",
        ]

    def facts(self) -> dict[str, object]:
        return {
            "name": self.name,
            "share": round(self.share, 3),
            "limit": self.limit.facts(),
            "node": self.node.facts(),
        }


def touch_memory(size_bytes: int) -> None:
    """Use so much memory once, so that the page cache gets memory that is not new."""
    pieces = [b"." * _TOUCH_BYTES for _ in range(size_bytes // _TOUCH_BYTES)]
    pieces.clear()


def taken(
    name: str, plan: Plan, servers: Sequence[Server], make: Callable[[Server], Turns]
) -> Pair:
    """Take the turns of both brokers."""
    say(f"{name} …")
    limit, node = (make(server) for server in servers)
    take_turns([limit.case, node.case], plan.rounds)
    return Pair(name, limit, node)


def make_topic(servers: Sequence[Server], plan: Plan, topic: str, partitions: int) -> None:
    """Make the topic in the node. The limit makes topics when they are named."""
    for server in servers:
        if server.name == "node" and not plan.itself:
            with wire_to(server.host_and_port) as wire:
                wire.create_topics([topic], partitions)
