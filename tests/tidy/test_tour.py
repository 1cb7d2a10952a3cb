"""What the README promises a newcomer, done as the README says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from threading import Timer
from typing import Final

import pytest

from tests.tidy.tree import ROOT

TOUR: Final = [sys.executable, "docs/tour.py"]
ACKNOWLEDGED: Final = re.compile(r"acknowledged offset (\d+)\n")
OPENED: Final = re.compile(r"offsets \[(\d+), (\d+)\)")
DEADLINE_S: Final = 60


def _run(*command: str) -> str:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _acknowledged(line: str) -> re.Match[str] | None:
    return ACKNOWLEDGED.fullmatch(line)


def _end_offset(told: str) -> int:
    found = OPENED.search(told)
    assert found is not None, told
    return int(found[2])


@pytest.mark.integration
def test_the_second_visit_finds_what_the_first_wrote(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    assert "first start" in _run(*TOUR, root, "3")
    told = _run(*TOUR, root, "2")
    assert "last stop was clean" in told
    assert _end_offset(told) == 3
    assert "offset 0 says b'hello 0'" in told


@pytest.mark.integration
def test_what_was_acknowledged_before_a_kill_is_there_afterwards(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    last = -1
    with subprocess.Popen(
        [*TOUR, root, "1000000"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if found := _acknowledged(line):
                last = int(found[1])
            if last == 50:
                process.kill()
    told = _run(*TOUR, root, "1")
    assert "last stop was unclean" in told
    assert _end_offset(told) > last >= 50


@pytest.mark.integration
def test_a_second_tour_on_the_same_directory_is_refused_while_the_first_one_runs(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "data")
    with subprocess.Popen(
        [*TOUR, root, "1000000"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as first:
        # A first tour that hangs must not hang the test: the reader below then meets its end.
        watchdog = Timer(DEADLINE_S, first.kill)
        watchdog.start()
        try:
            assert first.stdout is not None
            last = next(int(found[1]) for line in first.stdout if (found := _acknowledged(line)))
            second = subprocess.run(
                [*TOUR, root, "1"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=DEADLINE_S,
                check=False,
            )
            assert first.poll() is None, "the first tour goes on"
        finally:
            first.kill()
            watchdog.cancel()
        for line in first.stdout:
            if found := _acknowledged(line):
                last = int(found[1])
    assert second.returncode == 1
    assert second.stdout == ""
    assert second.stderr == (
        f"The data directory {root} is in use by another process. "
        "Stop that one, or give this node a directory of its own.\n"
    )
    # A killed process holds no lock, and nothing that it acknowledged was written over.
    assert _end_offset(_run(*TOUR, root, "1")) > last


@pytest.mark.integration
def test_the_tools_of_the_tour_find_nothing_wrong(tmp_path: Path) -> None:
    root = str(tmp_path / "data")
    _run(*TOUR, root, "3")
    ottla = str(Path(sys.executable).parent / "ottla")
    _run(ottla, "log", "verify", root)
    dump = _run(ottla, "log", "dump", f"{root}/greetings-0/{0:020d}.log")
    assert "hello 2" in dump
