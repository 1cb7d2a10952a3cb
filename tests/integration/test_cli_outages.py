"""The commands while a node goes away and comes back, and when it makes topics by itself."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from tests.integration.nodes import RunningNode, running_node

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
DEADLINE_S = 30.0


def _started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # A test that runs in the background would hand down that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def _produce(node: RunningNode, topic: str, lines: bytes) -> None:
    arguments = ["produce", topic, "--bootstrap-server", node.bootstrap]
    result = CliRunner().invoke(main, arguments, input=lines)
    assert result.exit_code == 0, result.stderr


def test_a_reader_survives_the_death_of_a_node(tmp_path: Path) -> None:
    create = {"auto.create.topics.enable": "true"}
    with running_node(tmp_path, options=create) as node:
        _produce(node, "outage", b"before\n")
        reader = _started(
            "consume", "outage", "--from-beginning", "--bootstrap-server", node.bootstrap
        )
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stdout.readline() == b"before\n"
        node.kill()
        told = reader.stderr.readline()
        assert told == b"ottla: no broker can be reached any more; trying again until Ctrl-C.\n"

    again = {"listeners": f"CLIENT://{node.bootstrap},INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"}
    with running_node(tmp_path, options=again) as node:
        _produce(node, "outage", b"after\n")
        assert reader.stdout.readline() == b"after\n"
        reader.send_signal(signal.SIGINT)
        out, err = reader.communicate(timeout=DEADLINE_S)
    assert (reader.returncode, out, err) == (0, b"", b"")


def test_a_silence_because_nobody_is_there_is_no_success(tmp_path: Path) -> None:
    with running_node(tmp_path, options={"auto.create.topics.enable": "true"}) as node:
        _produce(node, "silence", b"before\n")
        reader = _started(
            "consume", "silence", "--from-beginning", "--timeout", "1",
            "--bootstrap-server", node.bootstrap,
        )  # fmt: skip
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"before\n"
        node.kill()
        out, err = reader.communicate(timeout=DEADLINE_S)
    assert (reader.returncode, out) == (1, b"")
    assert err.decode().splitlines() == [
        "ottla: no broker can be reached any more; trying again until --timeout is over.",
        "ottla: nothing came for 1 s, and no broker can be reached.",
    ]


def test_a_writer_tells_what_was_not_acknowledged(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        towards = ("--bootstrap-server", node.bootstrap)
        assert CliRunner().invoke(main, ["topics", "create", "outage", *towards]).exit_code == 0
        writer = _started("produce", "outage", "--timeout", "5", *towards)
        assert writer.stdin is not None
        writer.stdin.write(b"written\n")
        writer.stdin.flush()
        read = ["consume", "outage", "--from-beginning", "--max-messages", "1", "--timeout", "20"]
        assert CliRunner().invoke(main, [*read, *towards]).stdout == "written\n"
        node.kill()
        out, err = writer.communicate(b"lost\n", timeout=DEADLINE_S)
    assert (writer.returncode, out) == (1, b"")
    written, not_acknowledged = err.decode().splitlines()
    assert written == "outage: 1 record written"
    # The connection broke before: it was never sent, and so it is not called unknown.
    assert not_acknowledged.startswith(
        "ottla: 1 record not acknowledged: outage-0: delivery.timeout.ms (5000) is over: broker 1: "
    )
    assert "cannot be reached: connection refused" in not_acknowledged
    assert "may or may not" not in not_acknowledged


def test_the_first_address_that_answers_is_enough(tmp_path: Path) -> None:
    with socket.socket() as held, running_node(tmp_path) as node:
        held.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{held.getsockname()[1]}"
        towards = ["--bootstrap-server", f"{nobody},{node.bootstrap}"]
        for command in (["topics", "create", "t"], ["topics", "list"], ["produce", "t"]):
            result = CliRunner().invoke(main, [*command, *towards], input=b"line\n")
            assert result.exit_code == 0, result.stderr
        read = ["consume", "t", "--from-beginning", "--until-end"]
        assert CliRunner().invoke(main, [*read, *towards]).stdout == "line\n"


def test_the_wrong_port_of_a_node_is_told(tmp_path: Path) -> None:
    with running_node(tmp_path) as node:
        result = CliRunner().invoke(main, ["topics", "list", "--bootstrap-server", node.http])
    assert result.exit_code == 1
    assert result.stderr == (
        f"ottla: {node.http} speaks HTTP, not Kafka's protocol; a node serves Kafka clients on "
        "another port, 9092 by default.\n"
    )
