"""Numbers of small runs that can be counted by hand."""

from __future__ import annotations

import pytest

from ottla.chaos.figures import figures_of, longest_gap, percentile
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Story

OTHER = Place("t", 1)


@pytest.mark.parametrize(
    ("begin", "end", "gap"),
    [(0, 9, 4), (0, 2.5, 1), (2.5, 3.5, 4), (3.5, 4, 4), (7.5, 8, 1), (8.5, 9, 0), (-1, -0.5, 0)],
)
def test_the_gap_is_the_longest_that_reaches_into_the_window(
    begin: int, end: int, gap: int
) -> None:
    assert longest_gap([1, 2, 3, 7, 8], begin, end)[0] == gap


def test_percentiles_of_few_are_the_largest() -> None:
    assert percentile([1.0, 2.0, 3.0], 0.99) == 3.0
    assert percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert percentile(list(range(100)), 0.99) == 99


def test_operations_are_counted_by_what_became_of_them() -> None:
    story = Story().sent("w-1", 0).tried("w-2").refused("w-3").begin("w-4").polled({0: "w-1"})
    assert figures_of(story.evidence).counts == {
        "poll ok": 1,
        "send fail NOT_ENOUGH_REPLICAS": 1,
        "send ok": 1,
        "send unknown": 1,
        "send unknown REQUEST_TIMED_OUT": 1,
    }


def test_the_outage_of_a_fault_is_the_longest_in_any_partition() -> None:
    story = Story(recovery_s=1.0).sent("w-1", 0).sent("v-1", 0, place=OTHER)
    story.fault("kill", "inject", 1).passed(2).sent("v-2", 1, place=OTHER).passed(3)
    story.fault("kill", "heal", 1).passed(0.5).sent("w-2", 1).sent("v-3", 2, place=OTHER)
    (fault,) = figures_of(story.evidence).faults
    assert fault.place == HERE
    assert fault.outage_s == pytest.approx(5.5, abs=0.1)
    assert fault.first_ok_s == pytest.approx(2, abs=0.1)
    assert fault.first_ok_after_heal_s == pytest.approx(0.5, abs=0.1)


def test_it_is_counted_as_what_nodes_were_hit_by_the_kind_of_fault() -> None:
    story = Story().sent("w-1", 0).fault("kill", "inject", 1, role="leader")
    for fault, role in (("kill", "transaction coordinator"), ("pause", "leader")):
        for _ in range(2):
            story.fault(fault, "inject", 1, role=role).fault(fault, "heal", 1)
    # As in folders of before.
    story.fault("ring", "inject", 1, 2)
    assert figures_of(story.evidence).roles == {
        "kill": {"leader": 1, "transaction coordinator": 2},
        "pause": {"leader": 2},
    }


def test_an_outage_that_the_next_fault_began_is_not_held_against_the_one_before() -> None:
    story = Story(recovery_s=8.0).sent("w-1", 0).fault("cut", "inject", 1).passed(1)
    story.fault("cut", "heal", 1).sent("w-2", 1).passed(1).fault("kill", "inject", 1).passed(7)
    cut, kill = figures_of(story.sent("w-3", 2).evidence).faults
    assert cut.outage_s == pytest.approx(1, abs=0.1)
    assert kill.outage_s == pytest.approx(8, abs=0.1)


def test_a_partition_that_is_seldom_written_has_no_outage_beside_one_that_is_always() -> None:
    story = Story(recovery_s=1.0).sent("v-0", 0, place=OTHER).fault("kill", "inject", 1)
    for number in range(60):
        story.sent(f"w-{number}", number).passed(0.1)
    story.fault("kill", "heal", 1).sent("v-1", 1, place=OTHER)
    (fault,) = figures_of(story.evidence).faults
    assert fault.place == HERE
    assert fault.outage_s == pytest.approx(0.1, abs=0.05)


def test_a_fault_after_which_nothing_was_served_has_no_first_write() -> None:
    story = Story().sent("w-1", 0).fault("cut", "inject", 1).passed(4).tried("w-2")
    (fault,) = figures_of(story.evidence).faults
    assert fault.outage_s == pytest.approx(4, abs=0.1), "as long as somebody tried"
    assert fault.first_ok_s is None
    assert fault.first_ok_after_heal_s is None


def test_outages_are_told_by_the_name_of_the_fault() -> None:
    story = Story(recovery_s=0.1)
    for number in range(4):
        story.sent(f"w-{number}", number).fault("kill", "inject", 1).passed(number)
        story.fault("kill", "heal", 1)
    outages = figures_of(story.sent("w-9", 4).evidence).outages_s
    assert outages["kill"].count == 4
    assert outages["kill"].largest == pytest.approx(3, abs=0.1)


def test_the_lag_is_the_time_until_a_record_was_shown_first() -> None:
    story = Story().sent("w-1", 0).passed(2).polled({0: "w-1"}).passed(9).did("seek")
    lag_s = figures_of(story.polled({0: "w-1"}).evidence).worst_lag_s
    assert lag_s == pytest.approx(2, abs=0.1)
    assert figures_of(Story().sent("w-1", 0).evidence).worst_lag_s is None


def test_seconds_have_their_writes_and_how_long_they_took() -> None:
    story = Story().begin("w-1").passed(0.2).end("w-1", Kind.OK, offset=0).passed(1.5)
    first, second = figures_of(story.tried("w-2").evidence).seconds
    assert (first.ok, first.unknown, second.ok, second.unknown) == (1, 0, 0, 1)
    assert first.latency_p50_ms == pytest.approx(201)
    assert second.latency_p50_ms is None


def test_latencies_are_told_by_acks() -> None:
    story = Story().sent("w-1", 0).sent("w-2", 1, acks=1)
    assert set(figures_of(story.evidence).latency_ms) == {"acks=1", "acks=all"}


def test_a_run_without_events_has_no_figures() -> None:
    assert figures_of(Story().evidence).length_s == 0.0
