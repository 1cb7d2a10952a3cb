"""Truthful health: `/health/ready`, `/status` and `ottla health` say the same, and it is so.

One cluster of which every node has other roles, from its first second to its last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from tests.integration.clusters import ClusterNode, RunningCluster, living, make_cluster
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 60.0
ROLES = {1: "broker,controller", 2: "controller", 3: "broker"}
OF_BROKERS = {"disk_works", "logs_recovered", "registered", "unfenced"}
OF_ALL = {"staying", "quorum_has_leader", "metadata_caught_up", "listening"}
# So that a silence is noticed soon.
OPTIONS = {"broker.session.timeout.ms": "1200", "broker.heartbeat.interval.ms": "300"}
HEALTHY, UNAVAILABLE = 0, 2
TRIES = 50


def roles_of(node_id: int) -> Mapping[str, str]:
    return {"process.roles": ROLES[node_id]}


def health(*arguments: str) -> tuple[int, dict[str, Any]]:
    """Return the exit code of `ottla health`, and what it prints for programs."""
    done = CliRunner().invoke(main, ["health", "--json", *arguments])
    return done.exit_code, json.loads(done.stdout)


def told_by(node: ClusterNode) -> tuple[int, dict[str, Any]]:
    status, page = node.get("/health/ready")
    return status, json.loads(page)


def held_in(told: Mapping[str, Any]) -> dict[str, bool]:
    return {one["name"]: one["holds"] for one in told["conditions"]}


def all_told(node: ClusterNode) -> tuple[tuple[int, int], list[dict[str, Any]]]:
    """Ask everybody who tells of a node; return how the first and the last ended, and what all say.

    All of them told of the same moment: nothing happened meanwhile.
    """
    for _ in range(TRIES):
        code, page = told_by(node)
        status = node.status()
        exit_code, answer = health("--http", node.http)
        if held_in(told_by(node)[1]) == held_in(page):
            return (code, exit_code), [page, status, *answer["nodes"]]
    raise AssertionError(f"node {node.node_id} does not come to rest")


def agreed(node: ClusterNode) -> dict[str, str]:
    """Return the conditions that do not hold, after all who tell of them were compared."""
    codes, told = all_told(node)
    held = [held_in(one) for one in told]
    assert held[0] == held[1] == held[2]
    is_ready = all(held[0].values())
    for one in told:
        assert (one["node_id"], one["ready"]) == (node.node_id, is_ready)
        assert (one["reason"] is None) is is_ready
    assert codes == ((200, HEALTHY) if is_ready else (503, UNAVAILABLE))
    assert node.get("/health/live")[0] == 200
    assert set(held[0]) == OF_ALL | (OF_BROKERS if "broker" in ROLES[node.node_id] else set())
    return {one["name"]: one["reason"] for one in told[0]["conditions"] if not one["holds"]}


def wait_for(node: ClusterNode, *names: str) -> dict[str, str]:
    """Wait until these conditions do not hold; return what everybody says of it then."""

    def is_so() -> bool:
        held = held_in(told_by(node)[1])
        return not any(held[name] for name in names)

    wait_until(is_so, DEADLINE_S, f"node {node.node_id} does not meet {names}")
    return agreed(node)


def _says(node: ClusterNode, sentence: str) -> bool:
    return sentence in node.get("/health/ready")[1]


def wait_until_all_are_ready(cluster: RunningCluster) -> None:
    cluster.wait_until_ready(deadline_s=DEADLINE_S)
    everybody = ",".join(node.http for node in cluster.running)

    def are_ready() -> bool:
        return all(agreed(node) == {} for node in cluster.running)

    def is_healthy() -> bool:
        codes = health("--http", everybody)[0], health("--bootstrap-server", cluster.bootstrap)[0]
        return codes == (HEALTHY, HEALTHY)

    wait_until(are_ready, DEADLINE_S, "everybody says of every node that it is ready")
    wait_until(is_healthy, DEADLINE_S, "and of all of them together")


def test_everybody_who_tells_of_health_says_the_same_from_start_to_stop(tmp_path: Path) -> None:
    made = make_cluster(tmp_path, 3, voters=2, options=OPTIONS, options_of=roles_of)
    both, controller, broker = (made[one] for one in (1, 2, 3))
    with living(made):
        made.start()
        wait_until_all_are_ready(made)

        # Without a majority of the voters nobody is ready, and everybody says what is missing.
        controller.kill()
        for node, sentence in (
            (both, "no controller is active"),
            (broker, "no active controller has answered this broker for"),
        ):
            # Which of the silences it notices first depends on who led.
            wait_until(partial(_says, node, sentence), DEADLINE_S, f"somebody says {sentence!r}")
            told = wait_for(node, "quorum_has_leader", "metadata_caught_up", "unfenced")
            assert sentence in told["quorum_has_leader"]
            assert "controller.quorum.voters must run" in told["quorum_has_leader"]
        code, verdict = health("--bootstrap-server", both.bootstrap)
        assert (code, verdict["verdict"]) == (UNAVAILABLE, "unavailable")
        assert "no_controller" in {one["code"] for one in verdict["reasons"]}

        controller.start()
        wait_until_all_are_ready(made)

        # A node that leaves says so before it has given anything away: while its controllers are
        # silent it cannot, and waits.
        controller.pause()
        both.is_expected = False
        both.ask_to_stop()
        told = wait_for(both, "staying")
        assert "the node is stopping" in told["staying"]
        assert "registered" not in told
        assert both.is_running
        controller.resume()
        assert both.wait_stopped() == 0
