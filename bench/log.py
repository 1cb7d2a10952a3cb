"""The log against the limit of this machine, in the same run, taking turns.

    python -m bench.log                   append, synced append, read, copies, where time goes
    python -m bench.log --only append     one part of it: append, sync, read, copies, time
    python -m bench.log --json

append   one by one, and 16 at a time          against   writev of the same bytes, rolled alike
sync     append and `sync`, batch by batch    against   writev and fdatasync
         `GroupCommit`, so many waiting       against   so many writev and one fdatasync
read     `Log.read` and sendfile              against   sendfile of the same bytes, same pieces

The log checks, numbers and indexes what the limit only writes. It also asks the file system for
room ahead (ADR 0035), which a plain `writev` does not, so that its share may be above 100 %; beside
it stands the share of a `writev` that asks for as much.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Final

from bench import log_cases as cases
from bench.anatomy import anatomy_of_append, copies_of, finding_of, profile_of_append
from bench.drain import running
from bench.machine import machine_of
from bench.measure import (
    Case,
    best_share,
    say,
    share,
    size_name,
    table,
    take_turns,
    verdict,
    warm_memory,
    workspace,
)

SIZES: Final = (4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20)
GROUP_SIZES: Final = (4 << 10, 16 << 10, 64 << 10, 256 << 10)
WAITERS: Final = 16
READ_SIZES: Final = (64 << 10, 1 << 20)
_PRODUCER_ID: Final = 7
_FREE_BYTES_MIN: Final = 4 << 30
# Batches that have queued up for a partition while the one before was written.
QUEUE: Final = 16
PARTS: Final = ("append", "sync", "read", "copies", "time")


@dataclass(frozen=True, slots=True)
class Pair:
    """A figure and its limit."""

    limit: Case
    ours: Case
    # The same limit if it asks for room ahead, as the log does.
    ahead: Case | None = None

    @property
    def cases(self) -> list[Case]:
        return [case for case in (self.limit, self.ahead, self.ours) if case is not None]

    def row(self) -> list[str]:
        reached = share(self.limit, self.ours)
        return [
            self.ours.name,
            size_name(self.ours.op_bytes),
            f"{self.limit.megabytes_per_s:,.0f}",
            f"{self.ours.megabytes_per_s:,.0f}",
            f"{self.limit.median_us:,.1f}",
            f"{self.ours.median_us:,.1f}",
            f"{reached:.0%}",
            f"{best_share(self.limit, self.ours):.0%}",
            "" if self.ahead is None else f"{share(self.ahead, self.ours):.0%}",
            verdict(reached),
        ]

    def facts(self) -> dict[str, object]:
        reached = share(self.limit, self.ours)
        ahead = self.ahead
        more = {} if ahead is None else {"share_of_ahead": round(share(ahead, self.ours), 4)}
        return {
            **more,
            "limit": self.limit.facts(),
            "ours": self.ours.facts(),
            "share": round(reached, 4),
            "share_of_best": round(best_share(self.limit, self.ours), 4),
            "verdict": verdict(reached),
        }


def append_pairs(directory: str) -> list[Pair]:
    pairs = []
    for queue, producer_id in product((1, QUEUE), (-1, _PRODUCER_ID)):
        for size in SIZES:
            limit, ahead, ours = cases.append_cases(
                directory, size, producer_id=producer_id, queue=queue
            )
            pairs.append(Pair(limit, ours, ahead))
    return pairs


def sync_pairs(directory: str) -> list[Pair]:
    alone = [Pair(*cases.sync_cases(directory, size)) for size in SIZES]
    return alone + [Pair(*cases.group_cases(directory, size, WAITERS)) for size in GROUP_SIZES]


def run_pairs(pairs: list[Pair], round_count: int) -> None:
    for pair in pairs:
        # Pair by pair, so that the two that are compared are as close as can be.
        take_turns(pair.cases, round_count)


def show_pairs(title: str, pairs: list[Pair]) -> None:
    heading = [
        title,
        "size",
        "limit MB/s",
        "log MB/s",
        "limit µs",
        "log µs",
        "share",
        "of best",
        "with room",
        "",
    ]
    print(table(heading, [pair.row() for pair in pairs]))
    print()


def measure_pairs(directory: str, part: str, round_count: int) -> list[Pair]:
    if part == "read":
        with running() as drain, cases.readable_log(directory) as log:
            pairs = [Pair(*cases.read_cases(log, drain, size)) for size in READ_SIZES]
            run_pairs(pairs, round_count)
            return pairs
    make: Callable[[str], list[Pair]] = append_pairs if part == "append" else sync_pairs
    pairs = make(directory)
    run_pairs(pairs, round_count)
    return pairs


def show_copies(directory: str) -> list[dict[str, object]]:
    rows = copies_of(directory)
    print(
        table(
            ["bytes copied per byte appended", "in user space", "into the page cache"],
            [[name, f"{copied:.4f}", "1"] for name, copied in rows],
        )
    )
    print()
    return [{"path": name, "user_space": copied, "kernel": 1} for name, copied in rows]


def show_time(directory: str, round_count: int) -> list[dict[str, object]]:
    rows = [anatomy_of_append(directory, size, round_count) for size in SIZES]
    heading = ["µs of one append", "all", "pwritev", "CRC-32C", "validation", "the rest"]
    print(table(heading, [[size_name(row.size), *row.cells()] for row in rows]))
    print()
    with cases.readable_log(directory) as log:
        found = {size: finding_of(log, size, round_count) for size in READ_SIZES}
    pieces = [[size_name(size), f"{taken:.1f}"] for size, taken in found.items()]
    print(table(["µs of finding a piece, without sending it", "best"], pieces))
    print()
    print(profile_of_append(directory, SIZES[0]))
    return [row.facts() for row in rows] + [
        {"piece": size, "finding_us": round(taken, 2)} for size, taken in found.items()
    ]


def main() -> None:
    summary = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.log", description=summary)
    parser.add_argument("--dir", help="where to write; a directory of its own is made in it")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--json", metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    parts = [options.only] if options.only else list(PARTS)
    facts: dict[str, object] = {}
    with workspace(options.dir, free_bytes_min=_FREE_BYTES_MIN) as directory:
        machine = machine_of(directory)
        print(machine.line())
        say(f"measuring in {options.rounds} rounds …")
        warm_memory(directory, 256 << 20)
        for part in parts:
            if part == "copies":
                facts[part] = show_copies(directory)
            elif part == "time":
                facts[part] = show_time(directory, options.rounds)
            else:
                pairs = measure_pairs(directory, part, options.rounds)
                show_pairs(part, pairs)
                facts[part] = [pair.facts() for pair in pairs]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": machine.facts(), **facts}, file, indent=2)


if __name__ == "__main__":
    main()
