"""What a judge sees of a cluster: `trace.file`, `/digest`, `ottla replicas verify`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.proto.records.header import HEADER_SIZE
from tests.integration.nodes import wait_until
from tests.integration.test_cluster_command import DEADLINE_S, Local

pytestmark = pytest.mark.integration

LINES = 300


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local(tmp_path / "cluster")
    try:
        yield made
    finally:
        if (made.root / "cluster.json").exists():
            made.run("stop")


def _trace(path: Path) -> list[dict[str, Any]]:
    """Return all lines in the order of the clock."""
    return sorted(map(json.loads, path.read_text().splitlines()), key=lambda one: one["t_ns"])


def test_what_nodes_tell_of_their_replicas_fits_together(local: Local, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    local.start("--nodes", "3", f"trace.file={trace}")
    assert local.ask("topics", "create", "seen", "--partitions", "3").code == 0
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(LINES)))
    assert local.ask("produce", "seen", "--file", str(lines)).code == 0
    _judge_verdicts(local)

    local.done("kill", "3")
    wait_until(
        lambda: any(one["event"] == "fenced" and one["broker"] == 3 for one in _trace(trace)),
        DEADLINE_S,
        "the others know that node 3 is fenced",
    )
    assert local.ask("produce", "seen", "--file", str(lines)).code == 0
    local.done("restart", "3")
    wait_until(lambda: local.ask("health").code == 0, DEADLINE_S, "all are in sync again")
    proven = local.ask("replicas", "verify", "seen")
    assert proven.code == 0, proven.out
    local.done("stop")
    _judge_trace(_trace(trace))


def _judge_verdicts(local: Local) -> None:
    proven = json.loads(local.ask("replicas", "verify", "seen", "--json").out)["partitions"]
    assert [one["identical"] for one in proven] == [True] * 3
    assert sum(one["end_offset"] for one in proven) == LINES
    assert all(one["nodes"] == sorted(one["nodes"]) or len(one["nodes"]) == 3 for one in proven)
    # A bit of a record on one of the three disks, behind everybody's back.
    index = next(at for at, one in enumerate(proven) if one["end_offset"])
    (segment,) = (local.root / "node-2" / "data" / f"seen-{index}").glob("*.log")
    before = segment.read_bytes()
    at = HEADER_SIZE + 5
    _write(segment, before[:at] + bytes([before[at] ^ 4]) + before[at + 1 :])
    damaged = local.ask("replicas", "verify", "seen", "--partition", str(index))
    assert damaged.code == 1
    assert damaged.out.startswith(f"seen-{index}: damaged on node 2: ")
    _write(segment, before)
    assert local.ask("replicas", "verify", "seen").code == 0


def _write(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.write(data)


def _judge_trace(trace: list[dict[str, Any]]) -> None:
    assert {one["event"] for one in trace} >= {
        "started", "led", "followed", "committed", "synced", "isr_proposed", "isr_answered", "isr",
        "metadata", "partition", "registered", "fenced", "unfenced", "stopped",
    }  # fmt: skip
    assert not any("lines_lost" in one for one in trace)
    leaders = defaultdict[tuple[str, int, int], set[int]](set)
    watermarks = dict[tuple[int, str, int], int]()
    for one in trace:
        if one["event"] == "started":
            # What a replica remembers of its high watermark over a kill is a little old.
            watermarks = {key: at for key, at in watermarks.items() if key[0] != one["node"]}
        if one["event"] == "led":
            leaders[one["topic"], one["partition"], one["leader_epoch"]].add(one["node"])
        if one["event"] == "committed":
            key = (one["node"], one["topic"], one["partition"])
            assert one["high_watermark"] > watermarks.get(key, 0), one
            watermarks[key] = one["high_watermark"]
    assert all(len(nodes) == 1 for nodes in leaders.values())
    ends = defaultdict[int, int](int)
    for (node, _, _), offset in watermarks.items():
        ends[node] += offset
    assert ends == {1: 2 * LINES, 2: 2 * LINES, 3: 2 * LINES}
