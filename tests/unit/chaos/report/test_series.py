"""What happened when: spans and steps that a picture can be drawn from."""

from __future__ import annotations

from itertools import pairwise

from ottla.chaos.history import Place
from ottla.chaos.report.series import STEPS_MAX, Row, Series, series_of
from tests.unit.chaos.story import HERE, Story


def _row(series: Series, place: Place = HERE) -> Row:
    return next(row for row in series.rows if row.place == place)


def _writes(story: Story, first: int, count: int, every_s: float) -> Story:
    for number in range(first, first + count):
        story.passed(every_s).sent(f"w-{number}", number)
    return story


def test_writes_are_counted_in_steps_of_time() -> None:
    story = _writes(Story(), 0, 10, 0.1).tried("w-10").refused("w-11")
    series = series_of(story.evidence)
    assert sum(step.ok for step in series.steps) == 10
    assert sum(step.unknown for step in series.steps) == 1
    assert sum(step.fail for step in series.steps) == 1
    assert all(step.p50_ms is None or step.p50_ms > 0 for step in series.steps)


def test_a_long_run_has_no_more_steps_than_a_picture_has_room_for() -> None:
    series = series_of(_writes(Story(), 0, 100, 60.0).evidence)
    assert len(series.steps) <= STEPS_MAX + 1
    assert series.step_s > 1


def test_a_time_without_an_acknowledgement_is_an_outage() -> None:
    story = _writes(Story(), 0, 5, 0.1).passed(3)
    series = series_of(_writes(story, 5, 5, 0.1).evidence)
    (outage,) = _row(series).outages
    assert 2.9 < outage.end_s - outage.begin_s < 3.3


def test_an_outage_that_does_not_end_is_one_as_long_as_somebody_tries() -> None:
    story = _writes(Story(), 0, 5, 0.1).passed(2).tried("w-5")
    (outage,) = _row(series_of(story.evidence)).outages
    assert 1.9 < outage.end_s - outage.begin_s < 2.3


def test_leaders_are_told_by_the_trace_each_change_once() -> None:
    story = Story().sent("w-0", 0)
    for node in (1, 2):
        story.obeyed(node, 1, leader=1, isr=[1, 2, 3])
    story.passed(2).obeyed(2, 2, leader=None, isr=[2, 3])
    story.passed(2).obeyed(2, 3, leader=2, isr=[2, 3])
    # It has just come back, and tells what it knew when it was killed.
    story.obeyed(1, 2, leader=None, isr=[2, 3])
    series = series_of(_writes(story, 1, 10, 0.5).evidence)
    row = _row(series)
    assert [span.what for span in row.leaders] == ["1", "none", "2"]
    assert [span.what for span in row.in_sync[1]] == ["in"]
    assert row.in_sync[1][0].end_s < row.in_sync[2][0].end_s


def test_spans_of_a_row_do_not_overlap() -> None:
    story = Story().sent("w-0", 0)
    for epoch in range(1, 30):
        story.passed(0.01 * epoch).obeyed(1, epoch, leader=1 + epoch % 3, isr=[1, 2, 3])
    series = series_of(_writes(story, 1, 5, 0.5).evidence)
    for one, other in pairwise(_row(series).leaders):
        assert one.end_s == other.begin_s
    assert all(0 <= one.begin_s < one.end_s <= series.length_s for one in _row(series).leaders)


def test_without_a_trace_leaders_are_those_that_clients_were_told_of() -> None:
    story = Story().sent("w-0", 0).saw(HERE, 1, 1).passed(2).saw(HERE, 2, 3)
    row = _row(series_of(_writes(story, 1, 5, 0.5).evidence))
    assert [span.what for span in row.leaders] == ["1", "3"]
    assert row.in_sync == {}


def test_a_fault_that_nobody_mended_lasts_to_the_end() -> None:
    story = _writes(Story(), 0, 3, 0.2).fault("kill", "inject", 2)
    series = series_of(_writes(story, 3, 5, 0.2).evidence)
    (fault,) = series.faults
    assert fault.what == "kill 2"
    assert fault.end_s == series.length_s


def test_a_run_of_nothing_has_a_picture_too() -> None:
    series = series_of(Story().evidence)
    assert series.rows == []
    assert series.faults == []
