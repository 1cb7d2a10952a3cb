"""Row 40, in-sync sets: how they change, how soon and how often; and what only looks like that."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.chaos.evidence import Ruling
from tests.unit.chaos.checkers.test_limits import asking, ruling, starved, verdict
from tests.unit.chaos.story import Story

ALL = [1, 2, 3]


class Sets(Story):
    """A partition that node 1 leads, whose in-sync set changes."""

    epoch = 0

    @classmethod
    def asking(cls, **limits: Any) -> Sets:
        told = cls(limits=asking(**limits).evidence.facts.limits)
        told.led(1, 0, ALL)
        return told.isr(*ALL)

    def isr(self, *nodes: int) -> Sets:
        self.epoch += 1
        for teller in ALL:
            self.obeyed(teller, self.epoch, leader=1, leader_epoch=0, isr=[*nodes])
        return self


# ── Sizes ─────────────────────────────────────────────────────────────────────────────────────


def struck(*sets: tuple[int, ...]) -> Sets:
    story = Sets.asking(isr_sizes=(3, 2, 3))
    story.fault("kill", "inject", 3).passed(3)
    for one in sets:
        story.isr(*one)
    story.fault("kill", "heal", 3)
    return story


def test_a_copy_that_is_struck_goes_and_comes_back_and_that_is_all() -> None:
    story = struck((1, 2), (1, 2, 3))
    story.sent("w-1", 0)
    assert ruling(story) is Ruling.HELD


@pytest.mark.parametrize(
    "sets",
    [
        # It never left; it did not come back; it flapped; another one was out.
        (),
        ((1, 2),),
        ((1, 2), (1, 2, 3), (1, 2), (1, 2, 3)),
        ((1, 2), (1,), (1, 2), (1, 2, 3)),
        ((1, 3), (1, 2, 3)),
    ],
)
def test_any_other_way_breaks_the_limit(sets: tuple[tuple[int, ...], ...]) -> None:
    assert ruling(struck(*sets).sent("w-1", 0)) is Ruling.BROKEN


def test_a_set_that_is_told_by_three_nodes_has_changed_once() -> None:
    assert (
        "1 in-sync sets went 3 → 2 → 3"
        in verdict(struck((1, 2), (1, 2, 3)).sent("w-1", 0)).sentence
    )


def test_sets_of_nodes_that_nobody_struck_cannot_be_judged() -> None:
    story = Sets.asking(isr_sizes=(3, 2, 3)).sent("w-1", 0)
    assert ruling(story) is Ruling.NOT_JUDGED


def test_without_a_trace_in_sync_sets_cannot_be_judged() -> None:
    assert ruling(asking(isr_changes_max=0).sent("w-1", 0)) is Ruling.NOT_JUDGED


# ── Lag ───────────────────────────────────────────────────────────────────────────────────────


def hung(short_s: float, long_s: float, out_after_s: float, *, is_out_early: bool = False) -> Sets:
    """Node 3 hangs twice; after the second time has begun it is out, or (−1) never."""
    story = Sets.asking(isr_lag_s=1.5)
    story.fault("pause", "inject", 3).passed(short_s)
    if is_out_early:
        story.isr(1, 2)
    story.fault("pause", "heal", 3).passed(0.2).isr(*ALL).passed(10)
    story.fault("pause", "inject", 3)
    if out_after_s >= 0:
        story.passed(out_after_s).isr(1, 2).passed(long_s - out_after_s)
    else:
        story.passed(long_s)
    story.fault("pause", "heal", 3).passed(2)
    return story.isr(*ALL).passed(2).sent("w-1", 0)


def test_who_hangs_shortly_stays_and_who_hangs_for_long_is_out_in_time() -> None:
    assert ruling(hung(1.0, 4.0, 2.2)) is Ruling.HELD


def test_who_hangs_shortly_and_is_out_breaks_the_limit() -> None:
    assert ruling(hung(1.0, 4.0, 2.2, is_out_early=True)) is Ruling.BROKEN


def test_who_is_out_too_late_or_never_breaks_the_limit() -> None:
    assert ruling(hung(1.0, 4.0, 3.5)) is Ruling.BROKEN
    assert ruling(hung(1.0, 4.0, -1)) is Ruling.BROKEN


def test_a_pause_that_is_neither_short_nor_long_says_nothing() -> None:
    assert ruling(hung(1.4, 4.0, 2.2, is_out_early=True)) is Ruling.NOT_JUDGED
    assert ruling(hung(1.0, 2.0, -1)) is Ruling.NOT_JUDGED


def test_a_starved_machine_may_be_late_to_take_somebody_out() -> None:
    assert ruling(starved(hung(1.0, 4.0, 2.2))) is Ruling.HELD
    assert ruling(starved(hung(1.0, 4.0, 3.5))) is Ruling.COUNTED
    assert ruling(starved(hung(1.0, 4.0, -1))) is Ruling.NOT_JUDGED


def test_on_a_starved_machine_who_hung_shortly_and_is_out_says_nothing() -> None:
    assert ruling(starved(hung(1.0, 4.0, 2.2, is_out_early=True))) is Ruling.NOT_JUDGED


# ── Losses, changes, fences ───────────────────────────────────────────────────────────────────


def weather(times: int) -> Sets:
    story = Sets.asking(isr_losses_per_10s=1)
    story.fault("weather", "inject", 1)
    for _ in range(times):
        story.passed(2).isr(1, 2).passed(2).isr(*ALL)
    story.passed(19 - 4 * times).fault("weather", "heal", 1)
    return story.sent("w-1", 0)


def test_two_losses_in_20_s_are_too_many_and_one_is_not() -> None:
    assert ruling(weather(2)) is Ruling.BROKEN
    assert ruling(weather(1)) is Ruling.HELD


def test_a_change_after_the_first_fault_counts_and_one_before_it_does_not() -> None:
    before = Sets.asking(isr_changes_max=0).isr(1, 2).isr(*ALL)
    before.fault("clock", "inject", 1).fault("clock", "heal", 1)
    assert ruling(before.sent("w-1", 0)) is Ruling.HELD
    after = Sets.asking(isr_changes_max=0)
    after.fault("clock", "inject", 1).fault("clock", "heal", 1)
    assert ruling(after.isr(1, 2).sent("w-1", 0)) is Ruling.BROKEN


def test_what_the_harness_does_at_the_end_is_no_change() -> None:
    story = Sets.asking(isr_changes_max=0, fenced_max=0)
    story.fault("clock", "inject", 1).fault("clock", "heal", 1).sent("w-1", 0)
    story.fault("phase", "note", phase="final").isr(1, 2)
    story.traced(1, "fenced", place=None, broker=3, broker_epoch=7)
    assert ruling(story) is Ruling.HELD


def test_a_node_that_is_fenced_breaks_the_limit_and_one_that_is_told_of_twice_is_one() -> None:
    def story(most: int) -> Sets:
        told = Sets.asking(fenced_max=most)
        told.fault("clock", "inject", 1)
        for teller in ALL:
            told.traced(teller, "fenced", place=None, broker=3, broker_epoch=7)
        told.fault("clock", "heal", 1)
        return told.sent("w-1", 0)

    assert ruling(story(0)) is Ruling.BROKEN
    assert ruling(story(1)) is Ruling.HELD
