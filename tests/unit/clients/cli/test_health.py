"""`ottla health` and `ottla quorum` when nobody answers."""

from __future__ import annotations

import json
import socket

import pytest
from click.testing import CliRunner

from ottla.__main__ import main


@pytest.fixture
def nobody() -> str:
    """Two addresses at which nobody listens."""
    with socket.socket() as one, socket.socket() as other:
        one.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        return ",".join(f"127.0.0.1:{held.getsockname()[1]}" for held in (one, other))


def test_a_cluster_of_which_nobody_answers_is_unavailable_with_every_reason(nobody: str) -> None:
    done = CliRunner().invoke(main, ["health", "--bootstrap-server", nobody])
    assert done.exit_code == 2
    assert done.stdout.startswith("unavailable\n  ")
    for address in nobody.split(","):
        assert f"{address} cannot be reached: connection refused." in done.stdout


def test_programs_get_the_verdict_as_json(nobody: str) -> None:
    done = CliRunner().invoke(main, ["health", "--json", "--bootstrap-server", nobody])
    told = json.loads(done.stdout)
    assert (done.exit_code, told["verdict"]) == (2, "unavailable")
    assert [one["code"] for one in told["reasons"]] == ["unreachable"]


def test_the_quorum_of_nobody_is_one_sentence(nobody: str) -> None:
    done = CliRunner().invoke(main, ["quorum", "--bootstrap-server", nobody])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("ottla: ")
    assert done.stderr.count("\n") == 1
