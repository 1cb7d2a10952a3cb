"""What the node is as a process: its memory, its start, its cost with many topics, its profile.

Not here: how fast it is (`node_load.py`).
"""

from __future__ import annotations

import pstats
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final

from bench.measure import say, table
from bench.node_cases import TOPIC, Action, Result, driven, streamed
from bench.node_plan import Plan, make_topics
from bench.node_servers import Server, limit_command, node_command, profiled, running
from bench.node_wire import batch, produce_frame, wire_to

# Produce with many topics in the node may cost so much more than with one (issue 4).
TOPICS_COST_MAX: Final = 1.10
_TOPICS_PER_REQUEST: Final = 100
_SETTLE_S: Final = 1.0
_PROFILE_ROWS: Final = 40


def measure_memory(directory: Path, plan: Plan) -> dict[str, object]:
    say("memory …")
    ours = limit_command if plan.itself else node_command
    rows, facts = [], []
    for name, command in (("limit", limit_command), ("node", ours)):
        place = directory / name
        with running(name, place, command(place, "pagecache")) as server:
            time.sleep(_SETTLE_S)
            sizes_mb = [server.anon_mb()]
            make_topics(server, plan, [TOPIC], 4)
            for what in ("produce", "consume"):
                action = driven(what, what, partitions=4, size=1024, count=plan.count(1024))
                sizes_mb.append(max(action.run(server).peak_mb for _ in range(2)))
            sizes_mb.append(server.anon_mb())
        rows.append([name, *(f"{size:.1f}" for size in sizes_mb)])
        facts.append({"name": name, "idle_producing_consuming_after_mb": sizes_mb})
        shutil.rmtree(place)
    heading = ["RssAnon, MB", "idle", "producing", "consuming", "after"]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"memory": facts}


def measure_start(directory: Path, plan: Plan) -> dict[str, object]:
    """Start in an empty directory, make a topic, write. The first start of each is thrown away."""
    say("start …")
    ours = limit_command if plan.itself else node_command
    commands = {"limit": limit_command, "node": ours}
    frame = produce_frame(TOPIC, 0, batch(100, 1))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(1 + plan.rounds):
        for name, command in commands.items():
            place = directory / name
            with running(name, place, command(place, "fsync")) as server:
                make_topics(server, plan, [TOPIC], 1)
                with wire_to(server.host_and_port) as wire:
                    wire.send(frame)
                    wire.produced(len(TOPIC))
                seconds = time.perf_counter() - server.started_at
                taken[name].append((seconds, server.cpu_s()))
            shutil.rmtree(place)
    rows = []
    for name, turns in taken.items():
        times = [seconds for seconds, _ in turns[1:]]
        cpu = median(cpu_s for _, cpu_s in turns[1:])
        rows.append([name, f"{median(times):.2f}", f"{min(times):.2f}–{max(times):.2f}"])
        rows[-1].append(f"{cpu:.2f}")
    heading = ["from start to the first acknowledged write", "s", "rounds", "CPU s"]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"start": {name: turns[1:] for name, turns in taken.items()}}


def measure_topics(directory: Path, plan: Plan) -> dict[str, object]:
    """Compare a node with one topic and a node with many, in the same rounds."""
    say(f"1 topic and {plan.topics:,} topics …")
    names = tuple(f"t{number:05}" for number in range(plan.topics))
    ours = limit_command if plan.itself else node_command
    left, right = directory / "one", directory / "many"
    with (
        running("one", left, ours(left, "pagecache")) as one,
        running("many", right, ours(right, "pagecache")) as many,
    ):
        make_topics(one, plan, names[:1], 1)
        start = time.perf_counter()
        for at in range(0, len(names), _TOPICS_PER_REQUEST):
            make_topics(many, plan, names[at : at + _TOPICS_PER_REQUEST], 1)
        created_s = time.perf_counter() - start
        single = streamed(100, 1, plan.requests, 1, names[:1])
        every = streamed(100, 1, plan.requests, 1, names)
        base = ("1 topic", one, single)
        # One after the other: the checkpoint of 2,000 logs would be felt by whoever comes next. To
        # write all of them is another thing, told because it is asked: 2,000 files are in no cache.
        figures = [
            _compared(plan, base, (f"{plan.topics:,} topics, one written", many, single)),
            _compared(plan, base, (f"{plan.topics:,} topics, all written", many, every)),
        ]
    for place in (left, right):
        shutil.rmtree(place)
    print(f"{plan.topics:,} topics were made in {created_s:.1f} s")
    return {"topics": _show_topics(figures, plan.requests)}


Side = tuple[str, Server, Action]


def _compared(plan: Plan, alone: Side, other: Side) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {alone[0]: [], other[0]: []}
    for number in range(1 + plan.rounds):
        for label, server, action in (alone, other) if number % 2 else (other, alone):
            result = action.run(server)
            if number > 0:
                results[label].append(result)
    return results


def _show_topics(
    figures: Sequence[dict[str, list[Result]]], requests: int
) -> list[dict[str, object]]:
    rows, facts = list[list[str]](), list[dict[str, object]]()
    for results in figures:
        alone, other = results.values()
        pairs = list(zip(alone, other, strict=True))
        cost = median(result.seconds / base.seconds for base, result in pairs)
        cpu_cost = median(result.server_cpu_s / base.server_cpu_s for base, result in pairs)
        told = ""
        if results is figures[0]:
            told = "PASS" if cost <= TOPICS_COST_MAX else f"above {TOPICS_COST_MAX:.0%}"
        base_row, row = (
            [
                label,
                f"{median(result.seconds for result in turns) / requests * 1e6:,.1f}",
                f"{median(result.server_cpu_s for result in turns) / requests * 1e6:,.1f}",
            ]
            for label, turns in results.items()
        )
        rows += [[*base_row, "", "", ""], [*row, f"{cost:.0%}", f"{cpu_cost:.0%}", told]]
        facts.append({"name": row[0], "cost": round(cost, 3), "cpu_cost": round(cpu_cost, 3)})
    heading = ["Produce of 100 B", "µs", "CPU µs", "of 1 topic", "its CPU", ""]
    print(table(heading, rows), end="\n\n", flush=True)
    return facts


def show_profile(directory: Path, plan: Plan) -> dict[str, object]:
    """Run the node under Python's profiler, which makes it slower and its calls look dearer."""
    count = plan.count(1024)
    produce = driven("produce", "produce", partitions=4, size=1024, count=count)
    consume = driven("consume", "consume", partitions=4, size=1024, count=count)
    single = streamed(100, 1, plan.requests, 8)
    for title, actions in (
        ("produce", [produce]),
        ("produce and consume", [produce, consume]),
        (single.name, [single]),
    ):
        place, output = directory / "node", directory / "profile"
        command = profiled(node_command(place, "pagecache"), output)
        with running("node", place, command) as server:
            make_topics(server, plan, [TOPIC], 4)
            for action in actions:
                action.run(server)
        print(f"{title}, under the profiler")
        pstats.Stats(str(output)).strip_dirs().sort_stats("tottime").print_stats(_PROFILE_ROWS)
        shutil.rmtree(place)
    return {}
