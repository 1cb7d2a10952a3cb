"""Judges a run by what the nodes told of themselves (`docs/trace.md`), beside what clients saw.

The numbers are those of the rows that a checker of histories has:

    12  an acknowledgement with acks=all names an offset below the high watermark of the leader
    17  no epoch has two leaders
    18  a new leader was in sync or eligible before
    19  enough were in sync, at some moment while the write was on its way
    20  no node goes back: in metadata versions, epochs of partitions, lives of brokers

And all nodes tell the same of a partition at one partition epoch.

Not here: what was read (`judge.py`).
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.integration.replicated.history import Attempt, Fate

Line = dict[str, Any]
# How late a line about a high watermark may be, and a little for the clocks of two processes.
LATE_S: Final = 0.010 + 0.005
_STATE: Final = ("leader", "leader_epoch", "replicas", "isr", "elr")


def read_trace(paths: Iterable[Path]) -> list[Line]:
    """Return all lines, in the order of the clock. A line that a kill has cut is no line."""
    lines = list[Line]()
    for path in paths:
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
    return sorted(lines, key=lambda line: int(line["t_ns"]))


def judge_trace(lines: Sequence[Line], attempts: Iterable[Attempt]) -> list[str]:
    """Return what must not be, in sentences."""
    acknowledged = [one for one in attempts if one.fate is Fate.OK and one.node is not None]
    return [
        *_two_leaders(lines),
        *_elections(lines),
        *_steps_back(lines),
        *_acknowledgements(lines, acknowledged),
        *_too_few(lines, acknowledged),
    ]


def _place(line: Line) -> tuple[str, int]:
    return line["topic"], line["partition"]


def _two_leaders(lines: Iterable[Line]) -> Iterator[str]:
    leaders = defaultdict[tuple[str, int, int], set[int]](set)
    for line in lines:
        if line["event"] == "led":
            leaders[*_place(line), line["leader_epoch"]].add(line["node"])
    for (topic, index, epoch), nodes in leaders.items():
        if len(nodes) > 1:
            yield f"17: {topic}-{index} was led in epoch {epoch} by {sorted(nodes)}"


def _elections(lines: Iterable[Line]) -> Iterator[str]:
    states = defaultdict[tuple[str, str, int], dict[int, Line]](dict)
    for line in lines:
        if line["event"] != "partition":
            continue
        known = states[line["topic_id"], *_place(line)].setdefault(line["partition_epoch"], line)
        if [known[name] for name in _STATE] != [line[name] for name in _STATE]:
            yield f"nodes {known['node']} and {line['node']} disagree: {known} and {line}"
    for (_, topic, index), by_epoch in states.items():
        for (at, before), (then, after) in pairwise(sorted(by_epoch.items())):
            leader = after["leader"]
            if then != at + 1 or leader in (None, before["leader"]):
                continue
            if leader not in (*before["isr"], *before["elr"]):
                yield f"18: {topic}-{index} got leader {leader}: {before} and then {after}"


def _steps_back(lines: Iterable[Line]) -> Iterator[str]:
    highest = dict[tuple[Any, ...], int]()
    for line in lines:
        if line["event"] == "started":
            # A new process may have to catch up.
            highest = {key: value for key, value in highest.items() if key[0] != line["node"]}
        for key, value in _growing(line).items():
            if value < highest.get(key, -1):
                yield f"20: {key} went from {highest[key]} to {value}: {line}"
            highest[key] = value


def _growing(line: Line) -> dict[tuple[Any, ...], int]:
    """Return what a line tells that never falls."""
    node = line["node"]
    match line["event"]:
        case "metadata":
            return {(node, "version"): line["version"]}
        case "partition":
            names = ("leader_epoch", "partition_epoch")
            return {(node, line["topic_id"], line["partition"], one): line[one] for one in names}
        case "registered":
            return {(node, "broker", line["broker"]): line["broker_epoch"]}
        case _:
            return {}


def _acknowledgements(lines: Iterable[Line], acknowledged: Iterable[Attempt]) -> Iterator[str]:
    """Compare with the highest watermark that a node had told by then; kills end a trace early."""
    told = defaultdict[tuple[int, str, int], list[tuple[int, int]]](list)
    ends = dict[int, list[int]]()
    for line in lines:
        if line["event"] == "started":
            ends.setdefault(line["node"], []).append(line["t_ns"])
        if "high_watermark" in line:
            key = (line["node"], *_place(line))
            before = told[key][-1][1] if told[key] else 0
            told[key].append((line["t_ns"], max(before, line["high_watermark"])))
    for one in acknowledged:
        known = told[one.node or 0, one.place.topic, one.place.partition]
        by_ns = int((one.ended_s + LATE_S) * 1e9)
        at = bisect_right(known, (by_ns, 1 << 62))
        if at and known[at - 1][1] > one.offset:
            continue
        # What was held back when a process was killed was never written.
        later = [moment for moment, _ in known[at:]]
        lives = ends.get(one.node or 0, [])
        is_cut = not later or bisect_right(lives, by_ns) != bisect_right(lives, later[0])
        if not is_cut:
            yield f"12: node {one.node} acknowledged {one.place} {one.offset} above {known[at - 1]}"


def _too_few(lines: Iterable[Line], acknowledged: Iterable[Attempt]) -> Iterator[str]:
    sets = defaultdict[tuple[int, str, int], list[tuple[int, bool]]](list)
    for line in lines:
        if line["event"] in ("led", "isr"):
            is_enough = len(line["isr"]) >= line["min_isr"]
            sets[line["node"], *_place(line)].append((line["t_ns"], is_enough))
    for one in acknowledged:
        known = sets[one.node or 0, one.place.topic, one.place.partition]
        first = bisect_right(known, (int(one.began_s * 1e9), True))
        last = bisect_right(known, (int((one.ended_s + LATE_S) * 1e9), True))
        if not any(is_enough for _, is_enough in known[max(0, first - 1) : last]):
            yield f"19: node {one.node} acknowledged {one.place} {one.offset} with too few in sync"
