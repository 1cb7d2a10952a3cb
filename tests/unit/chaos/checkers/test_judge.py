"""The whole run: passed, failed, inconclusive, or no verdict at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.chaos import checkers
from ottla.chaos.checkers.happened import places_of
from ottla.chaos.checkers.judge import doubts, judge, outcome
from ottla.chaos.checkers.rows import ROWS
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.report.judgement import judge_run
from tests.unit.chaos.story import Story, broken, counted


def of(story: Story) -> Outcome:
    return outcome(story.evidence, story.verdicts())


def good(**facts: object) -> Story:
    return Story(**facts).sent("w-1", 0).sent("w-2", 1).read({0: "w-1", 1: "w-2"})


def lossy(**facts: object) -> Story:
    return Story(**facts).sent("w-1", 0).sent("w-2", 1).read({0: "w-1"})


def told(*rows_told: str, turns: int = 2) -> Story:
    """A good run of a system that tells, with all that it could be asked for."""
    story = Story(tells=rows_told).obeyed(1, 0, leader=1, isr=[1, 2]).led(1, 0, [1, 2])
    story.traced(1, "committed", high_watermark=1).sent("w-1", 0).said(1, "x").unsound(1)
    for turn in range(1, turns + 1):
        story.read({0: "w-1"}, turn=turn, began_ns=story.now_ns)
        story.holds(1, {0: 7}, end=1, turn=turn).holds(2, {0: 7}, end=1, turn=turn)
    return story


ALL = ("DIGEST", "OFFLINE", "TRACE")


@pytest.mark.parametrize("lost", ["trace", "replicas", "logs"])
def test_evidence_that_was_agreed_on_and_is_not_there_makes_a_run_inconclusive(lost: str) -> None:
    story = told(*ALL)
    assert of(story) is Outcome.PASSED
    gone = {lost: None}
    if lost == "replicas":
        gone["offline"] = None
    story.evidence = replace(story.evidence, **gone)  # type: ignore[arg-type]
    assert of(story) is Outcome.INCONCLUSIVE
    assert of(told(turns=1)) is Outcome.INCONCLUSIVE, "it was not read after the restart"
    without = replace(story.evidence, facts=replace(story.evidence.facts, tells=()))
    story.evidence = without
    assert of(story) is Outcome.PASSED, "nobody had said that it tells"


def test_a_recovery_that_nobody_saw_makes_a_run_inconclusive() -> None:
    story = Story().sent("w-1", 0).fault("kill", "inject", 1).fault("kill", "heal", 1)
    assert of(story.sent("w-2", 1).read({0: "w-1", 1: "w-2"})) is Outcome.INCONCLUSIVE


def test_a_test_of_the_judge_that_expects_a_loss_needs_the_loss() -> None:
    assert of(lossy(expected=(4, 5))) is Outcome.PASSED
    shown = Story(expected=(4, 6)).refused("w-1").polled({0: "w-1"}).sent("w-2", 1)
    assert of(shown.read({0: "w-1", 1: "w-2"})) is Outcome.FAILED


def test_every_row_has_a_verdict_with_its_name_and_promise() -> None:
    verdicts = judge(Story().evidence)
    assert [one.row for one in verdicts] == [*range(1, 35), 40]
    assert all((one.name, one.promise) == ROWS[one.row] for one in verdicts)
    assert all(one.sentence for one in verdicts if one.ruling is Ruling.NOT_JUDGED)


def test_the_specification_has_every_row_by_its_number_and_name() -> None:
    told = {
        (int(line[:2]), line.split()[1])
        for line in (checkers.__doc__ or "").splitlines()
        if line[:2].strip().isdigit()
    }
    assert told == {(number, row.name) for number, row in ROWS.items()}


def test_a_run_in_which_all_is_well_has_passed() -> None:
    assert of(good()) is Outcome.PASSED


def test_a_broken_promise_is_a_failure() -> None:
    assert of(lossy()) is Outcome.FAILED


def test_too_little_load_is_inconclusive_and_not_green() -> None:
    assert of(good(ok_min=2)) is Outcome.PASSED
    assert of(good(ok_min=3)) is Outcome.INCONCLUSIVE


def test_a_loss_is_a_failure_however_little_was_written() -> None:
    assert of(lossy(ok_min=100)) is Outcome.FAILED


def test_a_run_whose_end_nobody_read_is_inconclusive() -> None:
    assert of(Story().sent("w-1", 0)) is Outcome.INCONCLUSIVE


def with_a_failed_harness(story: Story) -> Story:
    story.evidence = replace(story.evidence, harness_failures=["a client died"])
    return story


def test_a_harness_that_failed_never_passes_anything() -> None:
    assert of(with_a_failed_harness(good())) is Outcome.HARNESS
    assert of(with_a_failed_harness(lossy(expected=(4,)))) is Outcome.HARNESS


def test_a_harness_that_failed_does_not_hide_a_loss() -> None:
    assert of(with_a_failed_harness(lossy())) is Outcome.FAILED


def test_a_harness_that_failed_says_nothing_of_how_fast_a_cluster_recovers() -> None:
    story = Story().sent("w-1", 0).read({}, end=-1)
    assert broken(story) == {24}
    assert of(story) is Outcome.FAILED
    assert of(with_a_failed_harness(story)) is Outcome.HARNESS


def test_a_test_of_the_judge_passes_only_if_the_judge_finds_what_was_put_there() -> None:
    assert of(lossy(expected=(4, 5))) is Outcome.PASSED
    assert of(lossy(expected=(5,))) is Outcome.FAILED
    assert of(good(expected=(4,))) is Outcome.FAILED


def test_what_a_scenario_tolerates_is_counted() -> None:
    story = lossy(tolerated=(4,))
    assert not broken(story)
    assert counted(story) == {4}
    assert of(story) is Outcome.PASSED


def test_a_loss_is_found_whether_or_not_unclean_elections_are_allowed() -> None:
    story = lossy(is_unclean_allowed=True).obeyed(1, 4, leader=1, isr=[1])
    story.obeyed(1, 5, leader=2, isr=[2])
    assert broken(story) == {4}
    assert counted(story) == {18}


def test_findings_name_the_first_few_events_and_count_the_rest() -> None:
    story = Story()
    for number in range(50):
        story.sent(f"w-{number}", number)
    (verdict,) = (one for one in story.read({}).verdicts() if one.row == 4)
    assert verdict.count == 50
    assert "and 47 more" in verdict.sentence
    assert [story.evidence.events[one].value for one in verdict.evidence] == ["w-0", "w-1", "w-2"]


# ── What the scenario is there for ────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("note", "facts", "said"),
    [
        ("failpoint", {"place": "log.roll.before", "is_reached": False}, "never came to log.roll"),
        ("never", {"what": "2 is out of sync"}, "in vain that 2 is out of sync"),
        ("nothing to damage", {"sort": "sealed"}, "no file of the sort sealed"),
        ("left out", {"what": "wipe"}, "wipe was left out"),
        ("met", {"what": "disk-slow", "times": 0}, "never met disk-slow"),
        ("option", {"name": "min", "value": "3", "is_set": False}, "min could not be set to 3"),
    ],
)
def test_a_step_that_did_not_take_place_makes_a_run_inconclusive_unless_dice_drew_it(
    note: str, facts: dict[str, object], said: str
) -> None:
    story = good().fault(note, "note", 1, **facts)
    assert of(story) is Outcome.INCONCLUSIVE
    (doubt,) = doubts(story.evidence, story.verdicts())
    assert said in doubt
    assert said in judge_run(story.evidence).sentence()
    drawn = good(is_mix=True).fault(note, "note", 1, **facts)
    assert of(drawn) is Outcome.INCONCLUSIVE, "and nothing else took place"
    for _ in range(3):
        drawn.fault("kill", "inject", 1)
    assert of(drawn) is Outcome.PASSED


@pytest.mark.parametrize(
    ("note", "facts"),
    [
        ("failpoint", {"place": "log.roll.before", "is_reached": True}),
        ("never", {"what": "2 is out", "is_needed": False}),
        ("flipped", {"file": "a"}),
        ("met", {"what": "disk-slow", "times": 1}),
        ("option", {"name": "min", "value": "3", "is_set": True}),
    ],
)
def test_what_took_place_or_was_not_needed_leaves_no_doubt(
    note: str, facts: dict[str, object]
) -> None:
    assert of(good().fault(note, "note", 1, **facts)) is Outcome.PASSED


def test_a_fault_that_never_came_does_not_hide_a_loss() -> None:
    assert of(lossy().fault("never", "note", what="2 is out")) is Outcome.FAILED


def test_a_scenario_may_say_how_many_named_places_it_takes() -> None:
    def reached(*of_each: bool) -> Story:
        story = good(reached_min=2)
        for is_reached in of_each:
            story.fault("failpoint", "note", 1, place="log.append.before", is_reached=is_reached)
        return story

    assert of(reached(True, False, True)) is Outcome.PASSED
    assert of(reached(True, False, False)) is Outcome.INCONCLUSIVE
    assert of(reached()) is Outcome.INCONCLUSIVE
    assert places_of(reached(True, False, True).evidence) == (2, 3)
    assert (
        "Named places reached: 2 of 3." in judge_run(reached(True, False, True).evidence).sentence()
    )
