"""Goals of outages are noticed when they are missed, each kind by its own."""

from __future__ import annotations

import pytest

from tests.integration.replicated.figures import Figures, Sample
from tests.integration.replicated.goals import GOALS, SESSION_S, kind_of, missed


def _figures(kind: str, *outages_s: float) -> Figures:
    return Figures("a run", [Sample(kind, one) for one in outages_s])


@pytest.mark.parametrize("kind", GOALS)
def test_one_long_outage_of_a_hundred_misses_the_goal(kind: str) -> None:
    most_s = GOALS[kind].p99_s
    assert not missed(_figures(kind, *[0.01] * 99, most_s - 0.01))
    (told,) = missed(_figures(kind, *[0.01] * 99, most_s))
    assert f"{kind}: p99_s" in told


def test_half_of_the_kills_must_be_shorter_still() -> None:
    assert not missed(_figures("killed", 0.39, 0.39, 0.9))
    (told,) = missed(_figures("killed", 0.1, 0.4, 0.4))
    assert "killed: p50_s is 0.4, not below 0.4" in told


def test_goals_are_those_that_were_set() -> None:
    assert SESSION_S == 2.0
    assert {kind: goal.p99_s for kind, goal in GOALS.items()} == {
        "killed": 1.0,
        "killed, active controller": 1.5,
        "power cut": 1.0,
        "power cut, active controller": 1.5,
        "silent": 3.0,
        "silent, active controller": 3.0,
        "SIGTERM": 0.2,
        "SIGTERM, active controller": 0.2,
    }


def test_a_kind_without_a_goal_is_no_kind() -> None:
    assert kind_of("killed", is_active=True) in GOALS
    with pytest.raises(KeyError):
        missed(_figures("sleepy", 0.1))
