"""`ottla health` and `ottla quorum` when nobody answers."""

from __future__ import annotations

import json
import socket

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from ottla.clients.cli.cluster import told_unreachable


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
    assert done.stdout == (
        f"unavailable\n  None of {nobody.replace(',', ', ')} can be reached (connection refused). "
        "`ottla cluster start` or `ottla node` starts one.\n"
    )


def test_addresses_with_different_reasons_keep_them() -> None:
    refused, silent = "a:1 cannot be reached: refused.", "b:2 did not answer within 8 s."
    unknown = "c:3 cannot be reached: the name is not known."
    for reasons in ([refused], [refused, silent], [refused, unknown]):
        told = told_unreachable(reasons)
        assert told.startswith(" ".join(reasons))
        assert told.count("Is a node running there?") == 1


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
