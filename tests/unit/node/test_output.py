"""Standard output that goes away or is full: no traceback, and nobody else is blamed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ottla.__main__ import CommandRow, LazyGroup
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

ROOT = Path(__file__).parents[3]
FULL = Path("/dev/full")
UNBUFFERED = "PYTHONUNBUFFERED"
FULL_LINE = "ottla: standard output cannot be written: No space left on device\n"
COMMANDS = ("log dump {0}/0.log", "log dump {0}", "log verify {0}", "config describe", "--help")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A partition with so many batches that no pipe holds what is told of them."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    batches = [
        build_batch([Record(offset, 1000, b"k", b"v" * 40)], base_offset=offset)
        for offset in range(2000)
    ]
    (directory / f"{0:020d}.log").write_bytes(b"".join(batches))
    (directory / "0.log").write_bytes(b"".join(batches))
    return directory


def _arguments(command: str, log: Path) -> list[str]:
    return [sys.executable, "-m", "ottla", *command.format(log).split()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_ends_it_quietly(log: Path, command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        result = subprocess.run(
            _arguments(command, log), cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


def test_a_reader_that_has_seen_enough_gets_its_lines(log: Path) -> None:
    with subprocess.Popen(
        _arguments(COMMANDS[0], log), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first = process.stdout.readline()
        process.stdout.close()
        told = process.stderr.read()
    assert first.split()[:3] == [b"0", b"to", b"0"]
    assert (process.returncode, told) == (141, b"")


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_output_is_one_line_about_the_output(log: Path, command: str) -> None:
    with FULL.open("wb") as full:
        result = subprocess.run(
            _arguments(command, log),
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (result.returncode, result.stderr) == (1, FULL_LINE)


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_the_interpreter_has_nothing_to_add(*, buffered: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != UNBUFFERED}
    with FULL.open("wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "ottla", "config", "describe", "segment.bytes"],
            cwd=ROOT,
            env=environment if buffered else {**environment, UNBUFFERED: "1"},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (result.returncode, result.stderr) == (1, FULL_LINE)


@click.command()
def fails() -> None:
    raise PermissionError(13, "Permission denied", "/somewhere")


def test_another_error_of_the_system_is_not_blamed_on_the_output() -> None:
    group = LazyGroup(name="ottla", rows={"fails": CommandRow(__name__, "fails", "Fails.")})
    result = CliRunner().invoke(group, ["fails"])
    assert result.exit_code == 1
    assert result.stderr == "ottla: [Errno 13] Permission denied: '/somewhere'\n"
