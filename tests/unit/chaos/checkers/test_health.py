"""Rows 23 and 24: logs and times that are wrong, and some that only look so."""

from __future__ import annotations

from typing import Self

import pytest

from ottla.chaos.evidence import Ruling
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import Story, broken, counted, rows

# ── 23: logs ──────────────────────────────────────────────────────────────────────────────────

TRACEBACK = (
    "12:00:00.000 ERROR node.life task_failed",
    "    | Traceback (most recent call last):",
    '    |   File "x.py", line 1, in f',
    "    | OSError: [Errno 5] Input/output error",
    "12:00:01.000 INFO  node.life stopped",
)


@pytest.mark.parametrize(
    "line",
    [
        "Traceback (most recent call last):",
        "12:00:00.000 ERROR node.x failed why=InvariantError",
        "12:00:00 CRITICAL something",
        "Fatal Python error: Segmentation fault",
        "    | … 12 lines above",
        '12:00:00.000 ERROR node.lifecycle bug what="a task was never awaited" error=None',
        "12:00:00.000 ERROR node.kafka.dispatch request_failed api=Fetch",
        "12:00:00.000 ERROR node.http page_failed path=/status",
    ],
)
def test_a_line_of_what_must_not_be_breaks_row_23(line: str) -> None:
    assert broken(Story().said(1, "all is well", line)) == {23}


def test_plain_errors_are_no_violation() -> None:
    line = "12:00:00.000 ERROR replication.puller stream_broken why='connection refused'"
    assert not broken(Story().said(1, line, "12:00:00.000 INFO node critical_section=no"))


def test_a_traceback_is_one_finding_and_is_excused_by_what_is_in_it() -> None:
    (verdict,) = (one for one in Story().said(1, *TRACEBACK).verdicts() if one.row == 23)
    assert verdict.ruling is Ruling.BROKEN
    assert verdict.count == 1
    story = Story(allowed_log=("Input/output error",)).said(1, *TRACEBACK)
    assert not broken(story)
    assert counted(story) == {23}


def test_what_a_power_cut_raises_in_the_process_it_ends_is_no_bug_and_anything_else_is() -> None:
    line = '10:00:00 ERROR node.lifecycle bug error="{}" story="Traceback (most recent call last)'
    cut = Story().said(1, line.format("PowerCutError('the power is off')"))
    assert not broken(cut)
    assert counted(cut) == {23}
    assert broken(Story().said(1, line.format("ValueError('the power is off')"))) == {23}


def test_a_node_that_says_why_it_ends_has_no_bug() -> None:
    assert not broken(Story().said(1, "12:00:00.000 ERROR node.lifecycle node_failed error=disk"))
    assert not broken(Story().said(1, "12:00:00.000 INFO node.kafka debugging lines above"))


def test_what_excuses_a_line_excuses_neither_the_one_before_nor_the_one_behind() -> None:
    cut = "12:00:00.000 ERROR node.lifecycle bug error=\"PowerCutError('off')\""
    bug = "12:00:00.000 ERROR node.lifecycle bug error=\"ValueError('no')\""
    assert broken(Story().said(1, cut, bug)) == {23}
    assert broken(Story().said(1, bug, cut)) == {23}
    assert not broken(Story().said(1, cut, cut))


def test_a_node_that_ends_badly_when_it_is_asked_to_breaks_row_23() -> None:
    assert broken(Story().said(1).fault("exit", "note", 1, codes=[1])) == {23}
    story = Story().said(1).fault("ended", "note", 1, exit_code=70)
    assert not broken(story)
    assert counted(story) == {23}


def test_a_node_that_somebody_else_killed_breaks_row_23_and_one_that_we_killed_does_not() -> None:
    nobody = Story().said(1, "x").fault("ended", "note", 1, exit_code=-9)
    assert broken(nobody) == {23}
    # A disk that is mended finds the node that a kill has ended, which lasts still.
    ours = Story().said(1, "x").fault("kill", "inject", 1, 2)
    ours.fault("disk-error", "inject", 1).fault("ended", "note", 1, exit_code=-9)
    ours.fault("disk-error", "heal", 1).fault("kill", "heal", 1, 2)
    assert 23 not in broken(ours)
    another = Story().said(1, "x").fault("kill", "inject", 2)
    another.fault("ended", "note", 1, exit_code=-9).fault("kill", "heal", 2)
    assert 23 in broken(another)
    before = Story().said(1, "x").fault("kill", "inject", 1).fault("kill", "heal", 1)
    assert 23 in broken(before.fault("ended", "note", 1, exit_code=-9))
    crashed = Story().said(1, "x").fault("kill", "inject", 1)
    crashed.fault("ended", "note", 1, exit_code=-11).fault("kill", "heal", 1)
    assert 23 in broken(crashed)


def test_a_node_that_crashes_breaks_row_23_and_one_that_gives_up_is_counted() -> None:
    assert broken(Story().said(1, "x").fault("ended", "note", 1, exit_code=-11)) == {23}
    gave_up = Story().said(1, "x").fault("ended", "note", 1, exit_code=3)
    assert not broken(gave_up)
    assert counted(gave_up) == {23}


def test_without_logs_row_23_is_not_judged() -> None:
    assert 23 in rows(Story(), Ruling.NOT_JUDGED)


# ── 24: progress ──────────────────────────────────────────────────────────────────────────────


class Writers(Story):
    """Writes at an even pace, one after another."""

    wrote = 0

    def write(self, seconds: float, *, per_s: int = 10, ok: bool = True, to: int = 0) -> Self:
        for _ in range(int(seconds * per_s)):
            value = f"w-{self.wrote}"
            self.passed(1 / per_s - 0.002)
            if ok:
                self.sent(value, self.wrote, place=Place("t", to))
            else:
                self.tried(value, place=Place("t", to))
            self.wrote += 1
        return self


def test_twenty_healthy_seconds_without_service_break_row_24() -> None:
    assert broken(Writers().write(30).write(45, ok=False).write(5)) == {24}


def test_the_time_until_the_first_write_is_served_is_not_measured() -> None:
    assert not broken(Writers().write(40, ok=False).write(30))
    assert broken(Writers().write(40, ok=False)) == {24}, "it was never served"


def test_seconds_in_which_something_is_broken_are_not_healthy() -> None:
    story = Writers().write(30).fault("cut", "inject", 1).write(45, ok=False)
    story.fault("cut", "heal", 1)
    assert not broken(story.write(20))


def test_the_time_for_recovery_is_not_healthy_either() -> None:
    story = Writers(recovery_s=8.0).write(5).fault("kill", "inject", 1).write(5)
    story.fault("kill", "heal", 1).write(7, ok=False)
    assert not broken(story.write(25))


def test_little_load_is_no_fault_of_the_cluster() -> None:
    assert not broken(Writers().write(60, per_s=1))
    assert broken(Writers().write(20).write(60, per_s=1, ok=False)) == {24}


def test_no_service_within_the_limit_after_the_heal_breaks_row_24() -> None:
    story = Writers(recovery_s=8.0).write(5).fault("kill", "inject", 1).write(5, ok=False)
    assert broken(story.fault("kill", "heal", 1).write(9, ok=False).write(5)) == {24}


def test_one_partition_that_is_not_served_after_the_heal_breaks_row_24() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1)
    for _ in range(10):
        story.write(0.5).write(0.5, ok=False, to=1)
    assert broken(story) == {24}


def test_a_partition_that_was_given_up_soon_after_the_heal_says_nothing() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1)
    story.write(0.5).write(0.5, ok=False, to=1)
    assert not broken(story.write(10))


def test_a_topic_that_was_deleted_need_not_be_served() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1)
    for number in range(10):
        story.write(0.5).passed(0.5).tried(f"v-{number}", place=Place("gone", 0))
    assert not broken(story)


def test_writers_that_stop_soon_after_the_heal_say_nothing_and_that_is_not_enough() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1)
    story.write(3, ok=False).read({}, end=5)
    assert 24 in rows(story, Ruling.NOT_JUDGED)
    (verdict,) = (one for one in story.verdicts() if one.row == 24)
    assert "nobody wrote for long enough" in verdict.sentence


def test_a_partition_whose_writes_hang_until_the_limit_is_over_breaks_row_24() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1).write(1)
    story.begin("v-1", place=Place("t", 1)).write(9)
    assert broken(story.end("v-1", Kind.UNKNOWN, error="REQUEST_TIMED_OUT").write(1)) == {24}


def test_a_write_that_begins_late_may_end_after_the_limit() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1).write(6)
    story.begin("v-1", place=Place("t", 1)).write(5)
    assert not broken(story.end("v-1", Kind.UNKNOWN, error="REQUEST_TIMED_OUT").write(1))


def test_nobody_can_be_blamed_for_a_recovery_while_others_had_the_processors() -> None:
    story = Writers(recovery_s=8.0).write(5).fault("kill", "inject", 1).write(5, ok=False)
    story.fault("kill", "heal", 1)
    story.busy(30)
    assert 24 in rows(story.write(9, ok=False).write(5), Ruling.NOT_JUDGED)


def test_a_heal_that_another_fault_follows_is_not_measured() -> None:
    story = Writers().write(5).fault("kill", "inject", 1).fault("kill", "heal", 1)
    story.write(5, ok=False).fault("cut", "inject", 2).write(9, ok=False)
    assert not broken(story.fault("cut", "heal", 2).write(10))


def test_one_of_two_faults_that_is_healed_is_no_recovery() -> None:
    story = Writers().write(5).fault("cut", "inject", 1).fault("cut", "inject", 2)
    assert not broken(story.fault("cut", "heal", 1).write(45, ok=False).write(5))
    assert broken(story.fault("cut", "heal").write(9, ok=False).write(1)) == {24}


def test_a_partition_that_cannot_be_read_at_the_end_breaks_row_24() -> None:
    assert broken(Story().sent("w-1", 0).read({}, end=-1)) == {24}


def test_a_run_that_was_never_healthy_is_not_judged() -> None:
    assert 24 in rows(Writers().write(5), Ruling.NOT_JUDGED)


def test_copies_that_never_come_in_sync_break_row_24() -> None:
    story = Story().fault("kill", "inject", 1).fault("whole", "note", is_whole=False)
    assert not broken(story), "something was still broken"
    story.fault("kill", "heal", 1).fault("whole", "note", is_whole=True)
    assert not broken(story)
    assert broken(story.fault("whole", "note", is_whole=False, after_s=60.0)) == {24}


def test_copies_that_come_in_sync_too_late_break_row_24() -> None:
    def whole(after_s: float) -> Story:
        story = Story(recovery_s=8.0).fault("kill", "inject", 1).fault("kill", "heal", 1)
        return story.passed(after_s).fault("whole", "note", is_whole=True, after_s=after_s)

    assert broken(whole(9.0)) == {24}
    assert not broken(whole(7.9))
    assert not broken(whole(9.0).busy(60)), "others had the processors"
