"""What the node is as a process: its memory, its start, its cost with many topics, its profile.

Not here: how fast it is (`node_load.py`).
"""

from __future__ import annotations

import pstats
import shutil
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.measure import say, share, table, take_turns
from bench.node_cases import Stream, driven, streamed
from bench.node_plan import Plan, make_topic
from bench.node_servers import both, launch, limit_command, node_command, profiled, running
from bench.node_wire import batch, produce_frame, wire_to

# Produce with many topics in the node may cost so much more than with one (issue 4).
TOPICS_COST_MAX: Final = 1.10
_TOPICS_PER_REQUEST: Final = 100
_SETTLE_S: Final = 1.0
_PROFILE_ROWS: Final = 40


def measure_memory(directory: Path, plan: Plan) -> dict[str, object]:
    say("memory …")
    rows, facts = [], []
    with both(directory / "memory", "pagecache", itself=plan.itself) as servers:
        make_topic(servers, plan, "t", 4)
        time.sleep(_SETTLE_S)
        idle = [server.anon_mb() for server in servers]
        asked: dict[str, Any] = {"topic": "t", "partitions": 4, "size": 1024}
        asked["count"] = plan.count(1024)
        for server, idle_mb in zip(servers, idle, strict=True):
            peaks = []
            for command in ("produce", "consume"):
                turns = driven(server, command, **asked)
                turns.case.run()
                turns.case.run()
                peaks.append(turns.peak_mb)
            after_mb = server.anon_mb()
            rows.append([server.name, *(f"{mb:.1f}" for mb in (idle_mb, *peaks, after_mb))])
            facts.append({"name": server.name, "idle_mb": idle_mb, "peaks_mb": peaks})
    shutil.rmtree(directory / "memory")
    print(table(["RssAnon, MB", "idle", "producing", "consuming", "after"], rows), end="\n\n")
    return {"memory": facts}


def first_write_s(name: str, directory: Path, command: list[str], *, create: bool) -> float:
    """Return the seconds from the start of the process to its first acknowledged write."""
    frame = produce_frame("t", 0, batch(100, 1))
    server = launch(name, directory, command)
    try:
        server.wait_for_address()
        with wire_to(server.host_and_port) as wire:
            if create:
                wire.create_topics(["t"], 1)
            wire.send(frame)
            wire.produced("t")
        return time.perf_counter() - server.started_at
    finally:
        server.stop()


def measure_start(directory: Path, plan: Plan) -> dict[str, object]:
    say("start …")
    ours = limit_command if plan.itself else node_command
    limits, nodes = [], []
    # The first of each is the warm-up: the files of Python come into memory.
    for number in range(1 + plan.starts):
        place = directory / f"start-{number}"
        left, right = place / "limit", place / "node"
        command = limit_command(left, "fsync")
        limits.append(first_write_s("limit", left, command, create=False))
        command = ours(right, "fsync")
        nodes.append(first_write_s("node", right, command, create=not plan.itself))
    rows = [
        [name, f"{median(times[1:]):.2f}", f"{min(times[1:]):.2f}–{max(times[1:]):.2f}"]
        for name, times in (("limit", limits), ("node", nodes))
    ]
    heading = ["seconds to the first acknowledged write", "median", "rounds"]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"start": {"limit_s": limits[1:], "node_s": nodes[1:]}}


def measure_topics(directory: Path, plan: Plan) -> dict[str, object]:
    """Compare a node with one topic and a node with many, in the same rounds."""
    say(f"1 topic and {plan.topics:,} topics …")
    names = [f"t{number:05}" for number in range(plan.topics)]
    ours = limit_command if plan.itself else node_command
    left, right = directory / "one", directory / "many"
    with (
        running("one", left, ours(left, "pagecache")) as one,
        running("many", right, ours(right, "pagecache")) as many,
    ):
        for server, wanted in ((one, names[:1]), (many, names)):
            with wire_to(server.host_and_port) as wire:
                for at in range(0, 0 if plan.itself else len(wanted), _TOPICS_PER_REQUEST):
                    wire.create_topics(wanted[at : at + _TOPICS_PER_REQUEST], 1)
        stream = Stream(100, 1, plan.requests, 1)
        cases = [
            streamed(one, lambda: names[:1], stream),
            streamed(many, lambda: names[:1], stream),
            streamed(many, lambda: names, stream),
        ]
        take_turns([turns.case for turns in cases], plan.rounds)
    first = cases[0]
    rows, facts = [], []
    labels = (
        "1 topic",
        f"{plan.topics:,} topics, one written",
        f"{plan.topics:,} topics, all written",
    )
    for label, turns in zip(labels, cases, strict=True):
        cost = 1 / share(first.case, turns.case)
        told = "PASS" if cost <= TOPICS_COST_MAX else f"above {TOPICS_COST_MAX:.0%}"
        cpu = f"{turns.cpu_us_per_op:,.0f}"
        rows.append([label, f"{turns.case.median_us:,.1f}", cpu, f"{cost:.0%}", told])
        facts.append({"name": label, "cost": round(cost, 3), **turns.facts()})
    heading = ["Produce of 100 B", "µs", "CPU µs", "of 1 topic", ""]
    print(table(heading, rows), end="\n\n", flush=True)
    return {"topics": facts}


def show_profile(directory: Path, plan: Plan) -> dict[str, object]:
    """Run the node under Python's profiler, which makes it slower and its calls look dearer."""
    for command, size in (("produce", 1024), ("consume", 1024), ("write", 100)):
        place = directory / f"profile-{command}"
        output = directory / f"{command}.prof"
        count = plan.writes if command == "write" else plan.count(size)
        with running("node", place, profiled(node_command(place, "pagecache"), output)) as server:
            make_topic([server], plan, "t", 4)
            asked: dict[str, Any] = {"topic": "t", "partitions": 4, "size": size, "count": count}
            if command == "consume":
                driven(server, "produce", **asked).case.run()
            seconds = driven(server, command, **asked).case.run()
        print(f"{command}: {count:,} records of {size} B in {seconds:.2f} s under the profiler")
        pstats.Stats(str(output)).strip_dirs().sort_stats("tottime").print_stats(_PROFILE_ROWS)
        shutil.rmtree(place)
    return {}
