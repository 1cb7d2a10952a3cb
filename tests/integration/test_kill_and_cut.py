"""Real processes, real files, real LMDB: kill -9 at random points, and power cuts at every one.

The writer (`writer.py`) says what it promised; the next writer says what it found; `ottla log
verify` looks at the directory in between, and afterwards.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tests.integration.commands import verify
from tests.integration.ledger import Ledger, events_in
from tests.portion import portion, stride

pytestmark = pytest.mark.integration

PARTITIONS = ("plain-0", "compacted-0")
DEADLINE_S = 60
# Each by itself in the long runs; "mixed" draws from them.
SINGLE_STYLES = ("drop", "torn", "reorder")


class Story:
    """One data directory, and the processes that came and went on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.root.mkdir()
        self.epoch = 0
        self.ledgers = {name: Ledger(name.startswith("compacted")) for name in PARTITIONS}

    def start(self, *options: str, **environment: str) -> subprocess.Popen[bytes]:
        self.epoch += 1000
        command = [sys.executable, "-m", "tests.integration.writer", str(self.root)]
        return subprocess.Popen(
            [*command, "--epoch", str(self.epoch), *options],
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
        )

    def take(self, lines: list[bytes]) -> list[dict[str, object]]:
        events = events_in(lines)
        for event in events:
            if event["event"] == "opened":
                self.ledgers[str(event["partition"])].check(event)
            elif event["event"] != "done":
                self.ledgers[str(event["partition"])].note(event)
        return events

    def run(self, *options: str, code: int = 0, **environment: str) -> list[dict[str, object]]:
        with self.start(*options, **environment) as process:
            lines = list(process.stdout or ())
            process.wait(DEADLINE_S)
        assert process.returncode == code, lines[-3:]
        return self.take(lines)

    def kill_after(self, line_count: int, *options: str) -> list[dict[str, object]]:
        """Let it say so many things, then kill it, wherever it is by then."""
        with self.start(*options) as process:
            assert process.stdout is not None
            lines = list(islice(process.stdout, line_count))
            process.send_signal(signal.SIGKILL)
            lines += list(process.stdout)
            process.wait(DEADLINE_S)
        return self.take(lines)

    def verify(self) -> None:
        """The directory is sound as the dead process left it."""
        verify(self.root)

    def copy(self, root: Path) -> Story:
        """Return the same story in another directory, to go on there. No process may be alive."""
        other = Story(root)
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        other.epoch, other.ledgers = self.epoch, deepcopy(self.ledgers)
        return other

    def open_twice(self) -> None:
        """Opening again, and again, changes nothing."""
        first = _opened(self.run("--steps", "0"))
        again = self.run("--steps", "0")
        assert first == _opened(again)
        assert not any(event["recovered"] for event in again if event["event"] == "opened")


def _opened(events: list[dict[str, object]]) -> list[object]:
    opened = [event for event in events if event["event"] == "opened"]
    return [(event["start"], event["end"], event["batches"]) for event in opened]


def _kills(story: Story, count: int) -> Iterator[int]:
    dice = Random(count)
    for number in range(count):
        seed = str(dice.randrange(10**6))
        events = story.kill_after(dice.randint(3, 120), "--seed", seed, "--steps", "400")
        assert any(event["event"] == "opened" for event in events)
        story.verify()
        yield number


@pytest.mark.parametrize(
    "count", [10, pytest.param(portion(100), id="100", marks=pytest.mark.long)]
)
def test_kill_minus_nine_loses_nothing_acknowledged(count: int, tmp_path: Path) -> None:
    story = Story(tmp_path / "data")
    for number in _kills(story, count):
        if number % 10 == 9:
            story.open_twice()
    story.verify()


def _moments(tmp_path: Path, seed: int) -> int:
    """Return how many moments the story has when nobody cuts it: its last cut does not happen."""
    low, high = 1, 4096
    story = 0
    while low < high:
        middle = (low + high) // 2
        story += 1
        with Story(tmp_path / f"probe{story}").start(
            "--seed", str(seed), "--steps", "25", OTTLA_FAULTS=f"power_cut={middle}"
        ) as process:
            process.communicate(timeout=DEADLINE_S)
        low, high = (middle + 1, high) if process.returncode == 137 else (low, middle)
    return low - 1


def _cut_at(root: Path, moment: int, seed: int, style: str) -> None:
    story = Story(root)
    faults = f"power_cut={moment};style={style};seed={moment}"
    story.run("--seed", str(seed), "--steps", "25", code=137, OTTLA_FAULTS=faults)
    if (root / "meta.properties").exists() and (root / "state").exists():
        story.verify()
    story.open_twice()
    story.run("--seed", str(seed + 1), "--steps", "10")
    story.verify()


@pytest.mark.parametrize(
    "style", ["mixed", *(pytest.param(one, marks=pytest.mark.long) for one in SINGLE_STYLES)]
)
def test_a_power_cut_now_and_then_loses_nothing_acknowledged(style: str, tmp_path: Path) -> None:
    for moment in (9, 23, 60):
        _cut_at(tmp_path / f"data{moment}", moment, 1, style)


@pytest.mark.long
def test_a_power_cut_at_every_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    moments = _moments(tmp_path, seed=1)
    assert moments > 60
    styles = ("drop", "torn", "reorder", "mixed")
    for moment in range(1, moments + 1, stride()):
        # Moments come in pairs, before and after: each pair takes the next style.
        _cut_at(tmp_path / f"data{moment}", moment, 1, styles[moment // 2 % len(styles)])


@pytest.mark.long
def test_one_machine_that_loses_power_again_and_again(tmp_path: Path) -> None:
    """The same directory all the time: cuts during recovery, during truncation, while cleaning."""
    story = Story(tmp_path / "data")
    dice = Random(3)
    for number in range(portion(60)):
        style = dice.choice(("drop", "torn", "reorder", "mixed"))
        faults = f"power_cut={dice.randint(1, 80)};style={style};seed={number}"
        with story.start("--seed", str(number), "--steps", "60", OTTLA_FAULTS=faults) as process:
            lines = list(process.stdout or ())
            process.wait(DEADLINE_S)
        assert process.returncode in (0, 137), lines[-2:]
        story.take(lines)
        if number % 5 == 0 and (story.root / "state").exists():
            story.verify()
    story.open_twice()
    story.verify()
