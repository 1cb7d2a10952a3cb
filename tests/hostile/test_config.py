"""hostile-input.md, "Config/env": a node that is told nonsense does not start.

Every sentence of every wrong option stands in `tests/unit/proto/options/test_bad_config.py`. Here
the real command is run, once for each row of the list: exit code 2, the sentence on standard
error, and nothing on the disk.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.hostile.stage import Target

pytestmark = pytest.mark.integration

LISTENERS: Final = "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"
WRONG_OPTIONS: Final = 2


class Row(NamedTuple):
    """Options, and the sentence that refuses them."""

    flags: dict[str, str]
    sentence: str


ROWS: Final[dict[str, Row]] = {
    "non-numeric": Row({"num.partitions": "many"}, "num.partitions must be a whole number"),
    "negative": Row({"num.partitions": "-1"}, "num.partitions must be at least 1"),
    "lag < fetch wait": Row(
        {"replica.lag.time.max.ms": "400"},
        "replica.lag.time.max.ms (400) must be more than 3 times replica.fetch.wait.max.ms (500)",
    ),
    "heartbeat > session": Row(
        {"broker.heartbeat.interval.ms": "3000"},
        "broker.session.timeout.ms (2000) must be at least 2 times",
    ),
    "duplicate ids": Row(
        {"controller.quorum.voters": "1@a:9093,1@b:9093", "node.id": "1"},
        "names each id once, and 1 is there twice",
    ),
    "unknown key": Row({"replica.lag.max.ms": "1"}, "did you mean replica.lag.time.max.ms?"),
    "bad host list": Row(
        {"controller.quorum.voters": "1@a..b:9093"}, "a name or an address as host"
    ),
    "bad listener": Row({"listeners": "127.0.0.1:9092"}, "must be a list of NAME://host:port"),
    "a port that is none": Row({"listeners": "CLIENT://a:65536"}, "a port from 0 to 65535"),
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("OTTLA_")}
    return subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def arguments_of(flags: dict[str, str], data_dir: Path) -> list[str]:
    chosen = {"listeners": LISTENERS, "log.dirs": str(data_dir), **flags}
    return [f"{name}={text}" for name, text in chosen.items()]


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_a_node_that_is_told_nonsense_does_not_start(tmp_path: Path, row: Row) -> None:
    ended = run("node", *arguments_of(row.flags, tmp_path / "data"))
    assert ended.returncode == WRONG_OPTIONS
    assert row.sentence in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


def test_the_environment_and_a_file_are_checked_as_well(tmp_path: Path) -> None:
    flags = arguments_of({}, tmp_path / "data")
    from_environment = run("node", *flags, OTTLA_NUM_PARTITIONS="many")
    assert from_environment.returncode == WRONG_OPTIONS
    assert "num.partitions must be a whole number" in from_environment.stderr
    file = tmp_path / "node.properties"
    file.write_text("num.partitions=many\n")
    from_file = run("node", "--config", str(file), *flags)
    assert from_file.returncode == WRONG_OPTIONS
    assert "num.partitions must be a whole number" in from_file.stderr


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    flags = {"num.partitions": "many", "no.such.option": "1"}
    ended = run("config", "check", *arguments_of(flags, tmp_path / "data"))
    assert ended.returncode == WRONG_OPTIONS
    assert "num.partitions must be a whole number" in ended.stderr
    assert 'unknown option "no.such.option"' in ended.stderr


@pytest.mark.parametrize("name", ["CLIENT", "HTTP"])
def test_a_port_in_use(attacked: Target, tmp_path: Path, name: str) -> None:
    """By another node, which goes on, or by anybody."""
    taken = attacked.node.bootstrap if name == "CLIENT" else attacked.node.http
    listeners = LISTENERS.replace(f"{name}://127.0.0.1:0", f"{name}://{taken}")
    ended = run("node", *arguments_of({"listeners": listeners}, tmp_path / "data"))
    assert ended.returncode == WRONG_OPTIONS
    assert taken in ended.stderr
    assert "in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()


def test_a_port_in_use_is_found_before_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        listeners = LISTENERS.replace("CLIENT://127.0.0.1:0", f"CLIENT://{address}")
        ended = run("config", "check", *arguments_of({"listeners": listeners}, tmp_path / "data"))
    assert ended.returncode == WRONG_OPTIONS
    assert f"CLIENT cannot listen on {address}: the port is in use" in ended.stderr


def test_two_nodes_in_one_directory(attacked: Target) -> None:
    ended = run("node", *arguments_of({}, attacked.node.data_dir))
    assert ended.returncode != 0
    assert str(attacked.node.data_dir) in ended.stderr
    assert "Traceback" not in ended.stderr
