"""Starts that must fail: one sentence that names the setting to change, and an exit code by kind.

What is wrong with options alone stands in `tests/hostile/test_config.py` and in
`tests/unit/proto/options`; what a cluster refuses in `test_cluster_refusals.py`. Here is what only
a real machine shows, and how the sentences reach whoever reads a log of JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

pytestmark = pytest.mark.integration

DEADLINE_S: Final = 120.0
NAMES: Final = ("CLIENT", "INTERNAL", "REPLICATION", "HTTP")
LISTENERS: Final = ",".join(f"{name}://127.0.0.1:0" for name in NAMES)
OPTIONS_ARE_WRONG, DISK_IS_WRONG = 2, 1
META: Final = "version=1\nnode.id=7\ndirectory.id=abcdefghijklmnopqrstuv\n"


class Row(NamedTuple):
    """An environment, and how a node ends in it."""

    environment: Mapping[str, str]
    code: int
    # Each must stand in the sentence.
    told: tuple[str, ...]


def rows(place: Path, taken: str) -> dict[str, Row]:
    """Return all rows; at `taken` somebody listens."""
    (place / "file").touch()
    (place / "of-7").mkdir()
    (place / "of-7" / "meta.properties").write_text(META)
    listeners = {
        name: LISTENERS.replace(f"{name}://127.0.0.1:0", f"{name}://{taken}") for name in NAMES
    }
    in_use = (
        f"cannot listen on {taken}: ",
        "ddress already in use",
        "(environment OTTLA_LISTENERS)",
    )
    return {
        **{
            f"the port of {name} is taken": Row(
                {"OTTLA_LISTENERS": told}, OPTIONS_ARE_WRONG, (*in_use, f"listeners={name}://")
            )
            for name, told in listeners.items()
        },
        "the data directory cannot be made": Row(
            {"OTTLA_LOG_DIRS": str(place / "file" / "below" / "data")},
            DISK_IS_WRONG,
            ("cannot be made", "with log.dirs", "(environment OTTLA_LOG_DIRS)"),
        ),
        "the data directory is none": Row(
            {"OTTLA_LOG_DIRS": str(place / "file")},
            DISK_IS_WRONG,
            ("cannot be used", "with log.dirs", "(environment OTTLA_LOG_DIRS)"),
        ),
        "the data directory is that of another node": Row(
            {"OTTLA_LOG_DIRS": str(place / "of-7"), "OTTLA_NODE_ID": "1"},
            OPTIONS_ARE_WRONG,
            ("belongs to node 7, and this is node 1", "(environment OTTLA_NODE_ID)"),
        ),
        "a variable is misspelt": Row(
            {"OTTLA_NUM_PARTITION": "3"},
            OPTIONS_ARE_WRONG,
            ("did you mean OTTLA_NUM_PARTITIONS?",),
        ),
        "this node does not vote": Row(
            {
                "OTTLA_CONTROLLER_QUORUM_VOTERS": "2@a:9093,3@b:9093",
                "OTTLA_NODE_ID": "1",
            },
            OPTIONS_ARE_WRONG,
            ("(environment OTTLA_CONTROLLER_QUORUM_VOTERS, OTTLA_NODE_ID)",),
        ),
    }


def begin(place: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("OTTLA_")}
    defaults = {"OTTLA_LISTENERS": LISTENERS, "OTTLA_LOG_DIRS": str(place / "data")}
    return subprocess.Popen(
        [sys.executable, "-m", "ottla", "node", "--quiet"],
        env={**kept, **defaults, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )


@pytest.fixture
def taken() -> Iterator[str]:
    """An address at which somebody else listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_start_that_must_fail_ends_with_one_sentence_that_says_what_to_change(
    tmp_path: Path, taken: str
) -> None:
    table = rows(tmp_path, taken)
    # Together, because most of it is waiting for an interpreter to start; half of them log JSON.
    running = {
        (name, form): begin(tmp_path, {**row.environment, "OTTLA_LOG_FORMAT": form})
        for (name, row), form in zip(table.items(), ["text", "json"] * len(table), strict=False)
    }
    try:
        ended = {key: one.communicate(timeout=DEADLINE_S)[1] for key, one in running.items()}
    finally:
        for one in running.values():
            one.kill()
            one.communicate()
    for (name, form), printed in ended.items():
        process, row = running[name, form], table[name]
        assert process.returncode == row.code, (name, printed)
        last = printed.splitlines()[-1]
        if form == "json":
            lines = [json.loads(line) for line in printed.splitlines()]
            assert [one["event"] for one in lines].count("node_ended") == 1, name
            last = f"ottla: {lines[-1]['reason']}"
            assert lines[-1]["exit_code"] == row.code
        assert last.startswith("ottla: "), (name, printed)
        assert "Traceback" not in printed
        for told in row.told:
            assert told in last, (name, printed)
    assert not (tmp_path / "data").exists()
