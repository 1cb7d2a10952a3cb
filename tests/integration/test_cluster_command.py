"""`ottla cluster`, `ottla health` and `ottla quorum`, as a person types them."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from tests.integration.nodes import wait_until
from tests.integration.test_make_run import Terminal
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.integration

DEADLINE_S = 60.0
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}


class Typed(NamedTuple):
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


def typed(*arguments: str) -> Typed:
    """Run a command as a process of its own: nodes outlive it."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env=ENVIRONMENT,
    )
    return Typed(done.returncode, done.stdout, done.stderr)


def asked(*arguments: str) -> Typed:
    """Run a command that begins no process here, which is quicker."""
    done = CliRunner().invoke(main, arguments)
    return Typed(done.exit_code, done.stdout, done.stderr)


class Local:
    """The cluster in one directory, through the command."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def run(self, *arguments: str) -> Typed:
        return typed("cluster", *arguments, "--data", str(self.root))

    def done(self, *arguments: str) -> str:
        ended = self.run(*arguments)
        assert ended.code == 0, ended.out + ended.err
        return ended.out

    def start(self, *arguments: str) -> str:
        return self.done("start", "--detach", "--base-port", "0", *arguments)

    def status(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(
            asked("cluster", "status", "--json", "--data", str(self.root)).out
        )
        return told

    def states(self) -> list[str]:
        return [one["state"] for one in self.status()["nodes"]]

    @property
    def bootstrap(self) -> str:
        return ",".join(one["client"] for one in self.status()["nodes"])

    def ask(self, *arguments: str) -> Typed:
        return asked(*arguments, "--bootstrap-server", self.bootstrap)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    made = Local(tmp_path / "cluster")
    try:
        yield made
    finally:
        if (made.root / "cluster.json").exists():
            made.run("stop")


def test_a_cluster_of_one_lives_dies_and_comes_back(local: Local) -> None:
    told = local.start("--nodes", "1")
    assert "1 node is ready after" in told
    assert "cluster stop" in told.splitlines()[-1]
    (before,) = local.status()["nodes"]
    assert before["roles"] == ["broker", "controller"]
    assert before["state"] == "ready"
    os.kill(before["pid"], 0)
    assert local.ask("topics", "create", "kept").code == 0

    assert local.done("kill", "1") == f"node 1 killed (pid {before['pid']})\n"
    (dead,) = local.status()["nodes"]
    assert (dead["state"], dead["pid"]) == ("dead", None)
    assert "is not running" in local.run("kill", "1").err
    assert local.done("restart", "1").startswith("node 1 is ready (pid ")
    assert "kept" in local.ask("topics", "list").out

    assert local.done("stop") == "Stopped cleanly: node 1.\n"
    assert local.states() == ["stopped"]
    assert local.done("stop") == "No node was running.\n"
    # The same cluster on the same ports, without being told again.
    local.done("start", "--detach")
    (after,) = local.status()["nodes"]
    assert (after["client"], after["http"]) == (before["client"], before["http"])
    assert "kept" in local.ask("topics", "list").out


def test_a_node_can_be_paused_and_goes_on_and_stop_does_not_hang_on_it(local: Local) -> None:
    local.start("--nodes", "1")
    assert local.done("pause", "1").startswith("node 1 paused")
    assert local.states() == ["paused"]
    assert local.done("resume", "1").startswith("node 1 goes on")
    # It may have been away for longer than its session, and is let in again first.
    wait_until(lambda: local.states() == ["ready"], DEADLINE_S, "node 1 is ready again")
    local.done("pause", "1")
    assert local.done("stop") == "Stopped cleanly: node 1.\n"


def test_with_json_each_thing_that_was_done_is_one_object_on_a_line(local: Local) -> None:
    def told(*arguments: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in local.done(*arguments, "--json").splitlines()]

    (ready,) = told("start", "--detach", "--base-port", "0", "--nodes", "2")
    assert (ready["event"], ready["data"]) == ("ready", str(local.root))
    assert ready["bootstrap.servers"] == local.bootstrap
    seen = {one["id"]: one for one in local.status()["nodes"]}
    for one in ready["nodes"]:
        assert one == {name: seen[one["id"]][name] for name in one}
        assert one["pid"] is not None
    pid = seen[2]["pid"]
    assert told("pause", "2") == [{"event": "paused", "id": 2, "pid": pid}]
    assert told("resume", "2") == [{"event": "resumed", "id": 2, "pid": pid}]
    killed = [{"event": "killed", "id": one, "pid": seen[one]["pid"]} for one in (2, 1)]
    assert told("kill", "2", "1") == killed
    back = told("restart", "1", "2")
    pids = {one["id"]: one["pid"] for one in local.status()["nodes"]}
    assert sorted(back, key=lambda one: int(one["id"])) == [
        {"event": "restarted", "id": one, "pid": pids[one]} for one in (1, 2)
    ]
    refused = local.run("kill", "7", "--json")
    assert (refused.code, refused.out) == (2, "")
    assert "has no node 7" in refused.err
    assert told("stop") == [{"event": "stopped", "ids": [1, 2], "killed": []}]
    assert told("stop") == [{"event": "stopped", "ids": [], "killed": []}]


def test_what_cannot_be_done_is_said_and_nothing_is_started(local: Local, tmp_path: Path) -> None:
    for command in ("stop", "status", "kill 1", "restart 1"):
        refused = local.run(*command.split())
        assert refused.code == 1
        assert "there is no cluster in" in refused.err
    assert "say how many nodes" in local.run("start", "--detach").err
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1] - 100
        refused = local.run("start", "--nodes", "1", "--detach", "--base-port", str(port))
    assert refused.code == 2
    assert f"port {port + 100} is for INTERNAL of node 1, and it is in use." in refused.err
    assert not (local.root / "cluster.json").exists()
    wrong = local.run("start", "--nodes", "1", "--detach", "--base-port", "0", "no.such=1")
    assert wrong.code == 2
    assert "no.such" in wrong.err
    clash = local.run("start", "--nodes", "1", "--detach", "--base-port", "0", "node.id=9")
    assert "node.id follows from --nodes" in clash.err

    assert not local.root.exists()

    local.start("--nodes", "1")
    log = (local.root / "node-1" / "node.log").read_text()
    assert log
    assert "Ctrl-C stops it." not in log
    again = local.run("start", "--nodes", "1")
    assert again.code == 1
    assert "is running already (node 1)" in again.err
    unknown = local.run("pause", "7")
    assert unknown.code == 2
    assert "has no node 7, only 1." in unknown.err
    local.done("stop")
    another = local.run("start", "--nodes", "3", "--detach")
    assert another.code == 2
    assert "has 1 nodes, and not 3" in another.err


def test_a_start_that_fails_tells_the_log_and_leaves_no_process(local: Local) -> None:
    local.start("--nodes", "1")
    local.done("stop")
    meta = local.root / "node-1" / "data" / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=8"))
    failed = local.run("start", "--detach")
    assert failed.code == 1
    reason, heading, *_ = failed.err.splitlines()
    assert reason.startswith("ottla: node 1 ended while it started: ")
    assert "belongs to node 8" in reason
    assert heading.startswith("Its log, ")
    assert local.states() == ["stopped"]


@pytest.fixture
def terminal(local: Local) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "ottla", "cluster", "start", "--nodes", "1"]
    made = Terminal(*command, "--base-port", "0", "--data", str(local.root))
    try:
        yield made
    finally:
        if made.process.poll() is None:
            os.killpg(made.process.pid, signal.SIGKILL)
            made.process.wait(DEADLINE_S)
        if made.process.stdout is not None:
            made.process.stdout.close()


def test_ctrl_c_stops_all_nodes_cleanly(local: Local, terminal: Terminal) -> None:
    terminal.read_until("Ctrl-C stops it.")
    found = re.search(r"^  make a topic +ottla (.+)$", terminal.said, re.MULTILINE)
    assert found is not None
    assert asked(*found[1].split()).code == 0
    local.done("kill", "1")
    local.done("restart", "1")
    terminal.read_until("node 1 ended with SIGKILL")
    assert terminal.press_ctrl_c() == 0
    assert "Stopped cleanly: node 1." in terminal.said
    assert local.states() == ["stopped"]


def test_a_cluster_that_is_stopped_elsewhere_ends_the_command(
    local: Local, terminal: Terminal
) -> None:
    terminal.read_until("Ctrl-C stops it.")
    local.done("stop")
    terminal.read_until("All nodes were stopped.")
    assert terminal.process.wait(DEADLINE_S) == 0


def test_three_nodes_bear_the_loss_of_the_active_controller(local: Local) -> None:
    local.start("--nodes", "3")
    status = local.status()
    first = status["active_controller"]
    assert [one["state"] for one in status["nodes"]] == ["ready"] * 3
    assert first in (1, 2, 3)
    healthy = local.ask("health")
    assert (healthy.code, healthy.out.partition(":")[0]) == (0, "healthy"), healthy.out
    quorum = json.loads(local.ask("quorum", "--json").out)
    assert quorum["leader"] == first
    assert sorted(one["id"] for one in quorum["members"] if one["voter"]) == [1, 2, 3]

    assert local.ask("topics", "create", "copied", "--partitions", "3").code == 0
    whole = json.loads(local.ask("topics", "describe", "copied", "--json").out)[0]["partitions"]
    assert [sorted(one["isr"]) for one in whole] == [[1, 2, 3]] * 3
    assert [one["problems"] for one in whole] == [[]] * 3

    local.done("kill", str(first))
    wait_until(
        lambda: local.status()["active_controller"] not in (None, first),
        DEADLINE_S,
        "another controller is active",
    )
    later = json.loads(local.ask("quorum", "--json").out)
    assert later["leader"] != first
    assert later["term"] > quorum["term"]
    # The next controller fences it in a moment, after it has asked whether it is there.
    wait_until(
        lambda: json.loads(local.ask("health", "--json").out)["brokers"]["fenced"] == [first],
        DEADLINE_S,
        "the node that is gone is fenced",
    )
    degraded = json.loads(local.ask("health", "--json").out)
    assert degraded["verdict"] == "degraded"
    short = json.loads(local.ask("topics", "describe", "copied", "--json").out)[0]["partitions"]
    assert all(one["leader"] not in (None, first) for one in short)
    assert {problem["sentence"] for one in short for problem in one["problems"]} == {
        f"not in sync: broker {first} (fenced: dead, cut off, or still starting)."
    }
    not_proven = local.ask("replicas", "verify", "copied")
    assert not_proven.code == 1
    assert f"not compared: node {first} is not there" in not_proven.out

    local.done("restart", str(first))
    wait_until(lambda: local.ask("health").code == 0, DEADLINE_S, "the cluster is healthy again")
    proven = local.ask("replicas", "verify", "copied")
    assert proven.code == 0, proven.out
    assert proven.out.count(": identical, ") == 3
    assert local.done("stop") == "Stopped cleanly: node 1, node 2, node 3.\n"


@pytest.mark.long
def test_without_a_majority_the_cluster_is_unavailable_and_says_so(local: Local) -> None:
    local.start("--nodes", "3")
    local.done("kill", "1", "2")

    def verdict() -> dict[str, Any]:
        told: dict[str, Any] = json.loads(local.ask("health", "--json").out)
        return told

    wait_until(lambda: verdict()["verdict"] == "unavailable", DEADLINE_S, "it is noticed")
    assert verdict()["reasons"][0]["code"] == "no_controller"
    told = local.ask("health")
    assert told.code == 2
    assert told.out.startswith(
        "unavailable: no controller is active; what follows is as last known"
    )
    quorum = local.ask("quorum")
    assert (quorum.code, quorum.out) == (1, "")
    assert quorum.err.startswith("ottla: The controllers have no leader.")
    local.done("restart", "1", "2")
    wait_until(lambda: verdict()["verdict"] == "healthy", DEADLINE_S, "it is whole again")
