"""The harness itself: a node that starts, one that cannot, and one that ends badly."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ottla.replication.storage.kernel_aio import open_kernel_aio
from tests.integration.nodes import NodeFailedError, RunningNode, running_node, wait_until

pytestmark = pytest.mark.integration


def test_a_node_is_ready_and_stops_when_it_is_asked_to(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        assert node.get("/health/ready")[0] == 200
        assert json.loads(node.get("/status")[1])
        assert node.stop() == 0

    assert not node.is_running


def test_a_node_lets_the_kernel_sync_where_it_is_willing(tmp_path: Path) -> None:
    door = open_kernel_aio()
    if door is not None:
        door.close()
    with running_node(tmp_path) as node:
        maps = Path(f"/proc/{node.pid}/maps").read_text(encoding="utf-8")
        # What has ended lies in memory that the kernel shares with the process (ADR 0031).
        assert ("[aio]" in maps) is (door is not None)


def test_a_node_that_cannot_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(
            NodeFailedError, match=r"(?s)ended with 2 while it started.*no\.such\.option"
        ),
        running_node(tmp_path, options={"no.such.option": "1"}),
    ):
        pytest.fail("it started")


def test_a_node_that_ends_by_itself_fails_the_test(tmp_path: Path) -> None:
    with (
        pytest.raises(NodeFailedError, match="ended by itself with -9"),
        running_node(tmp_path) as node,
    ):
        _end_behind_its_back(node)


def _end_behind_its_back(node: RunningNode) -> None:
    os.kill(node.pid, signal.SIGKILL)
    wait_until(lambda: not node.is_running, 10.0, "it has ended")


def test_a_second_node_takes_over_the_directory_of_a_killed_one(tmp_path: Path) -> None:
    with running_node(tmp_path) as first:
        first.kill()
    with running_node(tmp_path) as second:
        assert second.pid != first.pid
        assert second.get("/health/live")[0] == 200


def test_settings_of_whoever_runs_the_tests_do_not_reach_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_NO_SUCH_OPTION", "1")
    with running_node(tmp_path) as node:
        assert node.is_running
