"""`ottla perf` on our nodes and on Apache Kafka."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from tests.integration.clients_own.conftest import MakeTopic

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("command", ["produce", "latency"])
def test_figures_are_told_and_every_record_is_acknowledged(
    bootstrap: str, make_topic: MakeTopic, command: str
) -> None:
    arguments = ["perf", command, make_topic(2), "--records", "300", "--json"]
    done = CliRunner().invoke(main, [*arguments, "--bootstrap-server", bootstrap])
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["records"], told["failed"]) == (300, 0)
    assert told["records_per_s"] > 0
    assert 0 < told["p50_ms"] <= told["p99.9_ms"]


def test_a_topic_that_is_not_there_is_told(bootstrap: str) -> None:
    arguments = ["perf", "produce", "never-made", "--bootstrap-server", bootstrap]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "topic never-made" in done.stderr
