"""The command `ottla`: what it prints, its exit codes, and that it starts fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.__main__ import COMMANDS, CommandRow, LazyGroup, main
from ottla.node.commands.docs import PAGES
from ottla.proto.errors import ConfigError, InvariantError, StorageError

ROOT = Path(__file__).parents[3]
FREE_PORTS = "listeners=CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0,HTTP://127.0.0.1:0"


@pytest.fixture(autouse=True)
def _no_options_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("OTTLA_")]:
        monkeypatch.delenv(variable)


def test_help_names_every_command_and_imports_none() -> None:
    program = (
        "import sys, contextlib\n"
        "from ottla.__main__ import main\n"
        "with contextlib.suppress(SystemExit): main(['--help'])\n"
        "heavy = {'lmdb', 'cramjam', 'crc32c', 'asyncio', 'ottla.node', 'ottla.replication'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
    for name, row in COMMANDS.items():
        assert f"  {name}  " in result.stdout
        assert row.summary in result.stdout


def test_an_unknown_command_is_exit_code_2() -> None:
    assert CliRunner().invoke(main, ["conifg"]).exit_code == 2


@click.command()
@click.argument("kind")
def fails(kind: str) -> None:
    raise {
        "config": ConfigError("one.", "two."),
        "storage": StorageError("the disk is gone"),
        "bug": InvariantError("ends meet"),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "exit_code", "told"),
    [
        ("config", 2, "ottla: one.\nottla: two.\n"),
        ("storage", 1, "ottla: the disk is gone\n"),
        ("bug", 70, "ottla: this is a bug: ends meet\n"),
    ],
)
def test_each_family_of_errors_has_its_exit_code(kind: str, exit_code: int, told: str) -> None:
    group = LazyGroup(name="ottla", rows={"fails": CommandRow(__name__, "fails", "Fails.")})
    result = CliRunner().invoke(group, ["fails", kind])
    assert result.exit_code == exit_code
    assert result.stderr.endswith(told)


def test_check_prints_what_is_not_a_default_and_from_where(tmp_path: Path) -> None:
    path = tmp_path / "s.properties"
    path.write_text("log.retention.hours=1\nnum.io.threads=8\n")
    result = CliRunner().invoke(
        main, ["config", "check", "--config", str(path), FREE_PORTS], env={"OTTLA_NODE_ID": "5"}
    )
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "node.id = 5    (environment OTTLA_NODE_ID)"
    assert lines[1].startswith("listeners = CLIENT://127.0.0.1:0,")
    assert lines[1].endswith("    (command line)")
    assert lines[2] == f"log.retention.ms = 3600000    ({path}, line 1, as log.retention.hours)"
    assert lines[-1] == "ok"
    assert result.stderr == (
        "warning: num.io.threads has no effect: a node is one process with one event loop, and has "
        f"no pools of threads to size ({path}, line 2).\n"
    )


def test_check_prints_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["config", "check", "--json", FREE_PORTS, "node.id=5"])
    told = json.loads(result.stdout)
    assert told["ok"] is True
    assert told["options"][0] == {
        "name": "node.id",
        "value": "5",
        "source": "flag",
        "where": "command line",
    }


def test_describe_tells_what_segment_bytes_does() -> None:
    result = CliRunner().invoke(main, ["config", "describe", "segment.bytes"])
    assert result.exit_code == 0
    assert "The size at which a log begins a new segment file." in result.stdout


def test_describe_finds_an_option_by_its_other_names() -> None:
    result = CliRunner().invoke(main, ["config", "describe", "log.retention.hours", "--json"])
    assert [row["name"] for row in json.loads(result.stdout)] == ["log.retention.ms"]


def test_describe_without_a_name_lists_them_all() -> None:
    result = CliRunner().invoke(main, ["config", "describe"])
    assert "topic  segment.bytes " in result.stdout
    assert "node   replica.lag.time.max.ms " in result.stdout


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("segment.byte", 'unknown option "segment.byte": did you mean segment.bytes?'),
        ("xyzzy", 'unknown option "xyzzy": `ottla config describe` lists those there are.'),
        (
            "flush.ms",
            "flush.ms is an option of Kafka's that has no effect here: "
            "ottla.durability decides when bytes are synced.",
        ),
        (
            "zookeeper.connect",
            "zookeeper.connect is refused: there is no ZooKeeper here, controllers elect each "
            "other; list them in controller.quorum.voters and take this line out.",
        ),
    ],
)
def test_describe_knows_what_is_not_there(name: str, told: str) -> None:
    result = CliRunner().invoke(main, ["config", "describe", name])
    assert (result.exit_code, result.stderr) == (2, f"ottla: {told}\n")


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_fresh(name: str) -> None:
    page = (ROOT / "docs" / "generated" / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "run `ottla docs`"


def test_docs_writes_what_it_then_finds_fresh(tmp_path: Path) -> None:
    runner = CliRunner()
    to = ["--to", str(tmp_path / "generated"), "--boards-to", str(tmp_path / "boards")]
    assert runner.invoke(main, ["docs", "--check", *to]).exit_code == 1
    assert runner.invoke(main, ["docs", *to]).exit_code == 0
    assert runner.invoke(main, ["docs", "--check", *to]).exit_code == 0
    (tmp_path / "generated" / "CONFIG.md").write_text("old")
    stale = runner.invoke(main, ["docs", "--check", *to])
    assert stale.exit_code == 1
    assert "CONFIG.md; run `ottla docs`" in stale.stderr
