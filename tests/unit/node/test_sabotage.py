"""What a judge may do to a running node, and only if its environment asks for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.node.clock import Clock
from ottla.node.sabotage import Sabotage
from ottla.replication.storage import failpoints
from ottla.replication.storage.faults import FaultPlan


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "faults"
    failpoints.disarm_all()


def told(path: Path) -> str:
    return path.with_name("faults.obeyed").read_text(encoding="utf-8")


def test_without_its_variables_nothing_is_listened_to() -> None:
    before = signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)
    sabotage = Sabotage({})
    sabotage.listen()
    assert (signal.getsignal(signal.SIGUSR1), signal.getsignal(signal.SIGUSR2)) == before
    assert type(sabotage.clock) is Clock


def test_a_file_changes_the_disk_the_clock_and_the_failpoints_and_an_empty_one_mends_them(
    path: Path,
) -> None:
    sabotage, plan = Sabotage({"OTTLA_FAULTS_FILE": str(path)}), FaultPlan()
    sabotage.reach(plan)
    text = "enospc_after=10;eio=sync:*.log:2;clock_ms=-60000;failpoint=log.roll.before:crash@3"
    path.write_text(text)
    sabotage.obey()
    assert told(path) == text
    assert plan.room_bytes == 10
    assert [rule.operation for rule in plan.rules] == ["sync"]
    assert abs(sabotage.clock.now_ms() + 60_000 - Clock().now_ms()) < 5_000
    assert set(failpoints.armed()) == {"log.roll.before"}
    path.write_text("")
    sabotage.obey()
    assert plan == FaultPlan()
    assert not failpoints.armed()
    assert abs(sabotage.clock.now_ms() - Clock().now_ms()) < 5_000


def test_how_often_a_fault_was_met_is_told_when_it_is_mended(path: Path) -> None:
    sabotage, plan = Sabotage({"OTTLA_FAULTS_FILE": str(path)}), FaultPlan()
    sabotage.reach(plan)

    def met_until(text: str) -> str:
        path.write_text(text)
        sabotage.obey()
        return path.with_name("faults.met").read_text(encoding="utf-8")

    assert met_until("eio=sync:*.log:2") == "0"
    plan.check("sync", "0.log")
    assert met_until("eio=sync:*.log:1;clock_ms=5") == "0"
    with pytest.raises(OSError, match="Input/output"):
        plan.check("sync", "0.log")
    sabotage.clock.now_ms()
    assert met_until("slow_sync_ms=0") == "2"
    sabotage.clock.now_ms()
    plan.tarry()
    assert met_until("") == "1"
    plan.tarry()
    assert met_until("") == "0"


def test_failpoints_of_the_environment_stay(path: Path) -> None:
    failpoints.arm("log.roll.after", "crash@9")
    sabotage = Sabotage({"OTTLA_FAULTS_FILE": str(path)})
    path.write_text("failpoint=log.roll.before:crash@3")
    sabotage.obey()
    path.write_text("")
    sabotage.obey()
    assert set(failpoints.armed()) == {"log.roll.after"}


@pytest.mark.parametrize(
    "text",
    [
        "slow_sync_ms=soon",
        "clock_ms=later",
        "failpoint=nowhere:crash",
        "failpoint=log.roll.after:x",
    ],
)
def test_a_file_with_a_mistake_changes_nothing_and_says_so(path: Path, text: str) -> None:
    sabotage, plan = Sabotage({"OTTLA_FAULTS_FILE": str(path)}), FaultPlan()
    sabotage.reach(plan)
    path.write_text(f"enospc_after=5;{text}")
    sabotage.obey()
    assert told(path).startswith("refused: ")
    assert plan == FaultPlan()
    assert not failpoints.armed()


def test_a_disk_that_cannot_be_broken_is_not_called_broken(path: Path) -> None:
    sabotage = Sabotage({"OTTLA_FAULTS_FILE": str(path)})
    path.write_text("enospc_after=5")
    sabotage.obey()
    assert told(path).startswith("refused: ")
