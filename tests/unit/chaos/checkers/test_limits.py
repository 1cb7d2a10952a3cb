"""Row 40: what single scenarios must hold; runs above a limit, and some just below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.chaos.checkers.judge import doubts, judge, outcome
from ottla.chaos.evidence import Load, Outcome, Ruling, Uses, Verdict
from ottla.chaos.history import Kind
from ottla.chaos.limits import ScenarioLimits
from ottla.chaos.scenarios import load
from tests.unit.chaos.story import SECOND, Story

MB = 1_000_000
BUSY = Load(0, 1 << 62, idle=0.0, others=0.6, late_s=0.0)


def asking(**limits: Any) -> Story:
    return Story(limits=ScenarioLimits(**limits))


def verdict(story: Story) -> Verdict:
    (found,) = (one for one in judge(story.evidence) if one.row == 40)
    return found


def ruling(story: Story) -> Ruling:
    return verdict(story).ruling


def starved(story: Story) -> Story:
    """Say that others had the processors all the while."""
    story.evidence = replace(story.evidence, loads=[BUSY])
    return story


def used(story: Story, *uses: Uses) -> Story:
    story.evidence = replace(story.evidence, uses=uses)
    return story


def test_a_scenario_without_limits_is_not_judged_by_them_and_passes_all_the_same() -> None:
    story = Story().sent("w-1", 0).tried("w-2").read({0: "w-1"})
    assert ruling(story) is Ruling.NOT_JUDGED
    assert outcome(story.evidence, judge(story.evidence)) is Outcome.PASSED


# ── Writes ────────────────────────────────────────────────────────────────────────────────────


def test_one_refused_write_breaks_a_limit_of_none_and_not_one_of_one() -> None:
    assert ruling(asking(refused_max=0).sent("w-1", 0).refused("w-2")) is Ruling.BROKEN
    assert ruling(asking(refused_max=1).sent("w-1", 0).refused("w-2")) is Ruling.HELD


def test_an_unknown_write_is_no_refused_one() -> None:
    assert ruling(asking(refused_max=0).sent("w-1", 0).tried("w-2")) is Ruling.HELD
    assert ruling(asking(unknown_max=0).sent("w-1", 0).refused("w-2")) is Ruling.HELD


def test_one_unknown_write_breaks_a_limit_of_none_unless_it_asked_for_no_answer() -> None:
    assert ruling(asking(unknown_max=0).sent("w-1", 0).tried("w-2")) is Ruling.BROKEN
    assert ruling(asking(unknown_max=0).sent("w-1", 0).tried("w-2", acks=0)) is Ruling.HELD


def test_a_write_of_which_nobody_saw_the_end_is_unknown() -> None:
    assert ruling(asking(unknown_max=0).sent("w-1", 0).begin("w-2")) is Ruling.BROKEN


@pytest.mark.parametrize(("unknown", "held"), [(2, True), (3, False)])
def test_a_share_of_unknown_writes_is_one_of_all_writes(unknown: int, held: bool) -> None:
    story = asking(unknown_share_max=0.02)
    for at in range(100 - unknown):
        story.sent(f"w-{at}", at)
    for at in range(unknown):
        story.tried(f"v-{at}")
    assert ruling(story) is (Ruling.HELD if held else Ruling.BROKEN)


def test_a_starved_machine_leaves_it_in_doubt_and_the_run_inconclusive() -> None:
    story = starved(asking(unknown_max=0).sent("w-1", 0).tried("w-2").read({0: "w-1"}))
    verdicts = judge(story.evidence)
    assert ruling(story) is Ruling.NOT_JUDGED
    assert any("others had the processors" in one for one in doubts(story.evidence, verdicts))
    assert outcome(story.evidence, verdicts) is Outcome.INCONCLUSIVE


def test_what_happened_long_before_it_was_starved_is_broken() -> None:
    story = asking(unknown_max=0).sent("w-1", 0).tried("w-2").passed(20).sent("w-3", 1)
    now = story.now_ns
    story.evidence = replace(story.evidence, loads=[Load(now - SECOND, now, 0.0, 0.6, 0.0)])
    assert ruling(story) is Ruling.BROKEN


@pytest.mark.parametrize(
    "load",
    [
        # Somebody was idle; nobody else worked; the harness was hardly late.
        Load(0, 1 << 62, idle=0.2, others=0.6, late_s=0.0),
        Load(0, 1 << 62, idle=0.0, others=0.1, late_s=0.0),
        Load(0, 1 << 62, idle=0.0, others=0.1, late_s=0.2),
    ],
)
def test_a_machine_that_was_not_starved_excuses_nothing(load: Load) -> None:
    story = asking(unknown_max=0).sent("w-1", 0).tried("w-2")
    story.evidence = replace(story.evidence, loads=[load])
    assert ruling(story) is Ruling.BROKEN


def test_a_harness_that_woke_up_late_was_starved() -> None:
    story = asking(unknown_max=0).sent("w-1", 0).tried("w-2")
    story.evidence = replace(story.evidence, loads=[Load(0, 1 << 62, 0.9, 0.0, late_s=0.7)])
    assert ruling(story) is Ruling.NOT_JUDGED


# ── Outages ───────────────────────────────────────────────────────────────────────────────────


def outage(seconds: float, **limits: Any) -> Story:
    story = asking(**limits).sent("w-1", 0).fault("stop", "inject", 1).passed(seconds)
    return story.sent("w-2", 1).fault("stop", "heal", 1).sent("w-3", 2)


def test_an_outage_above_the_limit_breaks_it_and_one_just_below_does_not() -> None:
    assert ruling(outage(1.1, outage_max_s=1)) is Ruling.BROKEN
    assert ruling(outage(0.9, outage_max_s=1)) is Ruling.HELD


def test_a_starved_machine_may_take_three_times_as_long_and_no_longer() -> None:
    assert ruling(starved(outage(2.5, outage_max_s=1))) is Ruling.COUNTED
    assert ruling(starved(outage(3.5, outage_max_s=1))) is Ruling.NOT_JUDGED


def test_writes_that_stop_while_controllers_are_apart_break_the_limit_of_c22() -> None:
    limits = load()["C22"].limits
    assert ruling(outage(12, outage_max_s=limits.outage_max_s)) is Ruling.BROKEN
    assert ruling(outage(2.4, outage_max_s=limits.outage_max_s)) is Ruling.HELD


def test_an_outage_on_account_of_nothing_cannot_be_judged() -> None:
    assert ruling(asking(outage_max_s=1).sent("w-1", 0)) is Ruling.NOT_JUDGED


# ── The quorum, and nodes ─────────────────────────────────────────────────────────────────────


def terms(first: int, last: int, seconds: float) -> Story:
    story = asking(elections_per_min=10).fault("term", "note", term=first)
    return story.passed(seconds).fault("term", "note", term=last)


def test_ten_elections_a_minute_are_a_storm_and_nine_are_not() -> None:
    assert ruling(terms(3, 13, 59)) is Ruling.BROKEN
    assert ruling(terms(3, 12, 60)) is Ruling.HELD
    assert ruling(terms(3, 7, 19)) is Ruling.BROKEN


def test_elections_that_nobody_counted_cannot_be_judged() -> None:
    story = asking(elections_per_min=10).fault("term", "note", term=3)
    assert ruling(story) is Ruling.NOT_JUDGED


def test_a_node_that_held_more_memory_than_it_may_breaks_the_limit_also_if_only_for_a_moment() -> (
    None
):
    below, spike = Uses(1, 1, 300 * MB, 9, 9), Uses(1, 2, 300 * MB, 9, 9, 401 * MB)
    assert ruling(used(asking(memory_max_mb=400), below)) is Ruling.HELD
    assert ruling(used(asking(memory_max_mb=400), below, spike)) is Ruling.BROKEN


def test_memory_that_nobody_looked_at_cannot_be_judged() -> None:
    assert ruling(asking(memory_max_mb=400)) is Ruling.NOT_JUDGED


def test_a_node_that_ended_by_itself_is_one_too_many_and_one_that_was_killed_is_not() -> None:
    story = asking(ended_max=0).fault("kill", "inject", 1).fault("kill", "heal", 1)
    assert ruling(story) is Ruling.HELD
    assert ruling(story.fault("ended", "note", 2, exit_code=1)) is Ruling.BROKEN


def test_what_is_broken_is_told_before_what_is_in_doubt() -> None:
    story = asking(unknown_max=0, memory_max_mb=400).sent("w-1", 0).begin("w-2")
    story.end("w-2", Kind.UNKNOWN)
    assert ruling(story) is Ruling.BROKEN
    assert "unknown outcome" in verdict(story).sentence
