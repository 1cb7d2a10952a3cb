"""Searching seeds: what breaks is told, whoever played it; a search that found enough ends."""

from __future__ import annotations

import os
from concurrent.futures.process import BrokenProcessPool

import pytest

from ottla.replication.storage.failpoints import CrashError
from tests.sim import run
from tests.sim.promises import BrokenPromiseError

# One breaks a promise; one lets through what only a simulated process should feel.
_BAD = (3, 27)
_DEADLY = 5000


@pytest.fixture(autouse=True)
def _broken_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeds that break a promise; processes that are forked have them too."""

    def play_any(seed: int, scenario: str) -> None:
        if seed == _BAD[0]:
            raise BrokenPromiseError(f"seed {seed} of {scenario}")
        if seed == _BAD[1]:
            raise CrashError(f"seed {seed} of {scenario}")
        if seed == _DEADLY:
            os._exit(9)

    monkeypatch.setattr(run, "play_any", play_any)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_seed_is_played_and_those_that_break_are_told(
    jobs: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.search(["appends"], range(40), jobs) == (40, 2)
    told = capsys.readouterr().err
    assert told.index("seed 3 of appends") < told.index("seed 27 of appends")


def test_a_single_seed_is_played_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.search(["appends"], [4], jobs=2) == (1, 0)
    assert run.search(["appends"], [3], jobs=2) == (1, 1)
    assert "seed 3 of appends" in capsys.readouterr().err


def test_a_search_that_found_enough_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "FAILURES_MAX", 2)
    assert run.search(["appends"], range(1000), jobs=2) == (28, 2)


def test_a_process_that_dies_is_not_waited_for() -> None:
    with pytest.raises(BrokenProcessPool):
        run.search(["appends"], [1, _DEADLY], jobs=2)
