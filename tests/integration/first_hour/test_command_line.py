"""Every command line that people type in their first hour, once, with what it must come to."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.integration.first_hour.typing_in import DEADLINE_S, Shell
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration


def test_topics_are_created_listed_described_altered_and_deleted(shell: Shell) -> None:
    shell.done(
        "ottla topics create first --partitions 3 --replication-factor 3 "
        "--config retention.ms=3600000"
    )
    assert "first" in shell.done("ottla topics list")
    (described,) = shell.told("ottla topics describe first")
    assert described["configs"] == {"retention.ms": "3600000"}
    for one in described["partitions"]:
        assert sorted(one["replicas"]) == sorted(one["isr"]) == [1, 2, 3]
    assert "topic first, 3 partitions, replication factor 3" in shell.done("ottla topics describe")
    shell.done("ottla topics alter first --partitions 4")
    assert shell.told("ottla topics describe first")[0]["partition_count"] == 4
    shell.done("ottla topics delete first")
    assert "first" not in {one["topic"] for one in shell.told("ottla topics list")}


def test_options_of_a_topic_are_shown_set_and_unset(shell: Shell, topic: str) -> None:
    shell.done(f"ottla configs alter topic {topic} --set retention.ms=1000")
    assert "retention.ms" in shell.done(f"ottla configs describe topic {topic}")
    shell.done(f"ottla configs alter topic {topic} --unset retention.ms")
    assert shell.told(f"ottla configs describe topic {topic}") == []


def test_lines_are_written_and_read_back(shell: Shell, topic: str, tmp_path: Path) -> None:
    written = f"ottla produce {topic} --key-separator : --acks all --compression lz4"
    shell.done(written, given="a:1\nb:2\n")
    file = tmp_path / "lines"
    file.write_text("c:3\nd:4\n")
    shell.done(f"{written} --file {file}")
    read = f"ottla consume {topic} --from-beginning --max-messages 4 --format '{{key}}={{value}}'"
    assert sorted(shell.done(read).split()) == ["a=1", "b=2", "c=3", "d=4"]


def test_reading_begins_at_an_offset_or_a_time_of_one_partition(shell: Shell, topic: str) -> None:
    shell.done(f"ottla produce {topic} --partition 1", given="one\ntwo\nthree\n")
    read = f"ottla consume {topic} --partition 1 --until-end"
    assert shell.done(f"{read} --offset 1") == "two\nthree\n"
    assert shell.done(f"{read} --offset earliest") == "one\ntwo\nthree\n"
    assert shell.done(f"{read} --offset latest") == ""
    (first, *_) = shell.done(f"{read} --offset earliest --json").splitlines()
    time_ms = json.loads(first)["timestamp"]
    assert shell.done(f"{read} --offset @{time_ms}").startswith("one\n")
    assert shell.done(f"{read} --offset @{time_ms + 3_600_000}") == ""


def test_a_group_reads_on_where_it_stopped_and_ctrl_c_leaves_it_well(
    shell: Shell, topic: str
) -> None:
    shell.done(f"ottla produce {topic} --partition 0", given="1\n2\n3\n")
    group = f"{topic}-readers"
    first = shell.done(f"ottla consume {topic} --from-beginning --group {group} --max-messages 2")
    assert first == "1\n2\n"
    with shell.started(f"ottla consume {topic} --group {group}") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "3\n"
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=DEADLINE_S)
    assert (reader.returncode, out, err) == (0, "", "")
    (described,) = shell.told(f"ottla groups describe {group}")
    # It has left, and what it printed is committed: nobody waits for a session to end.
    assert (described["state"], described["members"], described["lag"]) == ("Empty", [], 0)


def test_groups_are_listed_described_reset_and_deleted(shell: Shell, topic: str) -> None:
    shell.done(f"ottla produce {topic} --partition 2", given="a\nb\nc\n")
    group = f"{topic}-moved"
    shell.done(f"ottla consume {topic} --group {group} --from-beginning --max-messages 3")
    assert group in shell.done("ottla groups list")
    assert f"group {group}, Empty, 0 members, lag 0" in shell.done(f"ottla groups describe {group}")

    def lag() -> int:
        found: int = shell.told(f"ottla groups describe {group}")[0]["lag"]
        return found

    move = f"ottla groups reset {group} --topic {topic}"
    shell.done(f"{move} --to-earliest --dry-run")
    assert lag() == 0
    shell.done(f"{move} --to-earliest")
    assert lag() == 3
    shell.done(f"{move} --to-latest")
    assert lag() == 0
    shell.done(f"{move}:2 --to-offset 1")
    assert lag() == 2
    shell.done(f"{move} --to-datetime 2020-01-01T00:00:00Z")
    assert lag() == 3
    shell.done(f"ottla groups delete {group}")
    assert group not in {one["group"] for one in shell.told("ottla groups list")}


def test_segments_are_dumped_and_directories_and_replicas_verified(
    shell: Shell, topic: str
) -> None:
    shell.done(f"ottla produce {topic} --partition 0", given="look at me\n")
    data = shell.directory / "data-cluster"
    (segment,) = sorted(data.glob(f"*/data/{topic}-0/*.log"))[:1]
    dumped = shell.done(f"ottla log dump {segment}")
    assert "look at me" in dumped
    assert f"{topic}-0: identical" in shell.done(f"ottla replicas verify {topic}")


def test_a_directory_is_verified_when_its_node_is_stopped(shell: Shell, topic: str) -> None:
    shell.done(f"ottla produce {topic}", given="kept\n")
    shell.done("ottla cluster kill 3")
    try:
        shell.done(f"ottla log verify {shell.directory / 'data-cluster' / 'node-3' / 'data'}")
    finally:
        shell.done("ottla cluster restart 3")


@pytest.mark.parametrize("what", ["produce", "consume", "latency"])
def test_a_cluster_is_measured(shell: Shell, topic: str, what: str) -> None:
    if what == "consume":
        shell.done(f"ottla perf produce {topic} --records 2000")
    told = shell.told(f"ottla perf {what} {topic} --records 200")
    assert told["records"] == 200
    assert told["records_per_s"] > 0
    assert told["p50_ms"] <= told["p99.9_ms"]


def test_nodes_are_killed_paused_resumed_and_restarted_one_by_one(shell: Shell) -> None:
    def states() -> list[str]:
        return [one["state"] for one in shell.told("ottla cluster status")["nodes"]]

    assert states() == ["ready"] * 3
    assert "leader" in shell.done("ottla quorum")
    assert shell.told("ottla cluster pause 2")["event"] == "paused"
    assert shell.told("ottla cluster resume 2")["event"] == "resumed"
    shell.done("ottla cluster kill 2")
    assert states() == ["ready", "dead", "ready"]
    assert shell.run("ottla health").code == 1
    shell.done("ottla cluster restart 2")
    wait_until(lambda: shell.run("ottla health").code == 0, DEADLINE_S, "the cluster is healthy")


@pytest.mark.parametrize(
    "line",
    [
        "ottla topics list",
        "ottla topics describe",
        "ottla groups list",
        "ottla groups describe",
        "ottla health",
        "ottla quorum",
    ],
)
def test_json_is_json_and_nothing_else(shell: Shell, line: str) -> None:
    json.loads(shell.run(f"{line} --json").out)


@pytest.mark.parametrize(
    "command",
    [
        "topics create", "topics list", "topics describe", "topics alter", "topics delete",
        "configs describe", "configs alter", "produce", "consume", "groups list",
        "groups describe", "groups reset", "groups delete", "replicas verify", "perf produce",
        "perf consume", "perf latency", "health", "quorum",
    ],
)  # fmt: skip
def test_every_client_command_takes_json_and_a_bootstrap_server_at_localhost_9092(
    command: str,
) -> None:
    told = Shell(Path()).run(f"ottla {command} --help").out
    flat = re.sub(r"\s+", " ", told)
    assert "--json" in flat
    assert "[default: localhost:9092]" in flat


@pytest.mark.parametrize(
    "command", ["start", "stop", "status", "kill", "pause", "resume", "restart"]
)
def test_every_command_of_a_local_cluster_takes_json(command: str) -> None:
    assert "--json" in Shell(Path()).run(f"ottla cluster {command} --help").out


@pytest.mark.parametrize("line", ["ottla topics describe nowhere", "ottla groups delete nobody"])
def test_what_was_not_done_is_not_exit_code_0(shell: Shell, line: str) -> None:
    assert shell.run(line).code == 1
