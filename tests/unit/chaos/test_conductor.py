"""A run that takes too long is no pass, and ends; and what is read of copies at its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.chaos import conductor
from ottla.chaos.clock import let_pass
from ottla.chaos.evidence import NOT_OFFERED
from ottla.chaos.history import Place
from ottla.chaos.ports import Means
from ottla.chaos.run_folder import RunFolder
from ottla.chaos.scenarios import load
from tests.unit.chaos.nemesis.fakes import FakeBackend


class _Slow(FakeBackend):
    """It takes its time to start, and then has nothing that clients could use."""

    def start(self) -> None:
        super().start()
        let_pass(0.3)


def _failures(tmp_path: Path, limit_s: float) -> list[str]:
    backend, folder = _Slow(tmp_path), RunFolder(tmp_path / "run")
    backend.means = frozenset()
    scenario = replace(load()["C02"], limit_s=limit_s)
    conductor.run(scenario, backend, folder, 1, lambda what, facts: None)
    assert ("close",) in backend.calls
    return list(folder.read().harness_failures)


def test_a_run_that_takes_longer_than_its_scenario_may_is_a_harness_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.chaos.conductor.Runner.start", lambda self: None)
    monkeypatch.setattr(conductor, "_WARM_S", 0.1)
    told = _failures(tmp_path, 0.1)
    assert "it took longer than the 0.1 s that C02 may take" in told


def test_a_run_that_fails_in_time_is_not_called_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.chaos.conductor.Runner.start", lambda self: None)
    monkeypatch.setattr(conductor, "_WARM_S", 0.1)
    told = _failures(tmp_path, 60)
    assert told
    assert not any("longer" in one for one in told)


class _Finding(FakeBackend):
    """It finds out by what it breaks things when it starts."""

    def start(self) -> None:
        super().start()
        self.system = "by gates"


def test_by_what_things_are_broken_is_written_down_and_told_when_it_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.chaos.conductor.Runner.start", lambda self: None)
    monkeypatch.setattr(conductor, "_WARM_S", 0.1)
    folder, notes = RunFolder(tmp_path / "run"), list[object]()

    def progress(what: str, facts: Mapping[str, object]) -> None:
        if what == "note":
            notes.append(facts["text"])

    conductor.run(load()["C02"], _Finding(tmp_path), folder, 1, progress)
    assert folder.read_facts().system == "by gates"
    assert notes == ["by gates"]


@pytest.mark.parametrize("offered", [frozenset[Means](), frozenset({Means.PREPARING})])
def test_what_a_system_has_nothing_for_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: frozenset[Means]
) -> None:
    monkeypatch.setattr("ottla.chaos.conductor.Runner.start", lambda self: None)
    monkeypatch.setattr(conductor, "_WARM_S", 0.1)
    backend, folder, told = FakeBackend(tmp_path), RunFolder(tmp_path / "run"), list[str]()
    backend.means = offered

    def progress(what: str, facts: Mapping[str, Any]) -> None:
        if what == "note" and facts["text"].startswith(NOT_OFFERED):
            told.append(facts["text"])

    conductor.run(load()["C46"], backend, folder, 1, progress)
    notes = [one for one in folder.read().faults if one.fault == NOT_OFFERED]
    assert [one.facts["left_out"] for one in notes] == ([] if offered else ["tp1, tp2"])
    assert bool(told) is bool(notes), "whoever looks on is told, too"


def test_copies_of_compacted_topics_are_read_under_the_name_that_the_history_has_for_them() -> None:
    topics = {
        "plain": {"cleanup.policy": "delete"},
        "usual": {},
        "latest": {"cleanup.policy": "compact"},
        "short#2": {"cleanup.policy": "compact,delete"},
    }
    places = [Place(name, at) for name in ("plain", "usual", "latest", "short") for at in (1, 0)]
    found = conductor.compacted_of(topics, places)
    assert found == [Place(name, at) for name in ("latest", "short#2") for at in (0, 1)]
