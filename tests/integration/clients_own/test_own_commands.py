"""`ottla perf` on our nodes and on Apache Kafka."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

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


def test_reading_is_measured_until_enough_or_the_end(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)

    def perf(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["perf", *arguments, "--bootstrap-server", bootstrap])

    assert perf("produce", topic, "--records", "3000", "--size", "50").exit_code == 0
    everything = json.loads(perf("consume", topic, "--json").stdout)
    assert everything["records"] == 3000
    assert everything["mb_per_s"] > 0
    assert 0 < everything["p50_ms"] <= everything["p99.9_ms"]
    assert json.loads(perf("consume", topic, "--records", "700", "--json").stdout)["records"] == 700
    few = perf("consume", topic, "--records", "3001")
    assert (few.exit_code, few.stderr) == (1, "ottla: there were fewer than 3001 records.\n")
    assert few.stdout.startswith(f"{topic}: 3,000 records, ")


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_a_topic_that_is_not_there_is_told(bootstrap: str, command: str) -> None:
    arguments = ["perf", command, "never-made", "--bootstrap-server", bootstrap]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 1
    assert "topic never-made" in done.stderr
