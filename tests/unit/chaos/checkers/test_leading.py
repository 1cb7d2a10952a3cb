"""Rows 12 and 17 to 20: for each a trace that is wrong, and one that only looks so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.chaos.evidence import Ruling
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Story, broken, counted, rows


def led() -> Story:
    return Story().traced(1, "started", place=None).led(1, 0, [1, 2])


# ── 12: acknowledged is committed ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("node", [1, None])
def test_an_acknowledgement_above_the_high_watermark_breaks_row_12(node: int | None) -> None:
    story = led().sent("w-1", 0, node=node).passed(0.1)
    assert broken(story.traced(1, "committed", high_watermark=1)) == {12}


@pytest.mark.parametrize("node", [1, None])
def test_the_line_about_the_high_watermark_may_be_10_ms_late(node: int | None) -> None:
    story = led().sent("w-1", 0, node=node).passed(0.010)
    assert not broken(story.traced(1, "committed", high_watermark=1))


def test_the_high_watermark_of_another_node_does_not_count() -> None:
    story = led().traced(2, "committed", high_watermark=9).sent("w-1", 0, node=1)
    assert broken(story.passed(0.1).traced(1, "committed", high_watermark=1)) == {12}


def test_what_a_killed_node_did_not_come_to_tell_is_not_held_against_it() -> None:
    story = led().sent("w-1", 0, node=1).passed(1)
    assert not broken(story), "it told nothing after that"
    story.traced(1, "started", place=None).traced(1, "followed", high_watermark=1)
    assert not broken(story), "it came back later"


def test_a_node_that_lost_lines_is_not_believed_to_be_silent() -> None:
    story = led().sent("w-1", 0, node=1).passed(0.1)
    assert not broken(story.traced(1, "committed", high_watermark=1, lines_lost=3))


def test_a_leader_that_knows_that_too_few_are_in_sync_and_acknowledges_breaks_row_12() -> None:
    story = led().traced(1, "isr", isr=[1], min_isr=2, leader_epoch=0).passed(0.1)
    story.traced(1, "committed", high_watermark=1)
    assert broken(story.sent("w-1", 0, node=1)) == {12}


def test_what_was_in_sync_when_it_was_sent_does_not_count_but_when_it_was_committed() -> None:
    story = led().begin("w-1").traced(1, "isr", isr=[1], min_isr=2, leader_epoch=0).passed(3)
    story.traced(1, "committed", high_watermark=1)
    assert broken(story.end("w-1", Kind.OK, offset=0, node=1)) == {12}


def test_the_in_sync_set_may_shrink_while_an_acknowledgement_is_on_its_way() -> None:
    story = led().begin("w-1").traced(1, "committed", high_watermark=1)
    story.traced(1, "isr", isr=[1], min_isr=2, leader_epoch=0)
    assert not broken(story.end("w-1", Kind.OK, offset=0, node=1))


def test_writes_with_acks_1_may_be_acknowledged_above_the_high_watermark() -> None:
    story = led().sent("w-1", 0, acks=1, node=1).passed(0.1)
    assert not broken(story.traced(1, "committed", high_watermark=1))


# ── 17: one leader in an epoch ────────────────────────────────────────────────────────────────


def test_two_nodes_that_lead_in_one_epoch_break_row_17() -> None:
    assert broken(led().led(2, 0, [1, 2])) == {17}


def test_two_leaders_of_one_epoch_in_the_eyes_of_clients_break_row_17() -> None:
    assert broken(Story().saw(HERE, 3, 1).saw(HERE, 3, 2)) == {17}


def test_two_nodes_that_acknowledge_records_of_one_epoch_break_row_17() -> None:
    story = Story().sent("w-1", 0, node=1).sent("w-2", 1, node=2)
    assert broken(story.read({0: "w-1", 1: "w-2"})) == {17}


def test_a_second_process_with_the_same_id_that_lives_on_breaks_row_17() -> None:
    assert broken(Story().fault("twin", "note", 2, exit_code=None, on_same_files=True)) == {17}


@pytest.mark.parametrize(
    ("on_same_files", "code", "is_refused"),
    [
        (True, 1, True),
        (False, 2, True),
        # Refused for another reason than the one that there is.
        (True, 2, False),
        (False, 1, False),
        # All was well; a bug; killed by somebody.
        (True, 0, False),
        (False, 70, False),
        (False, -9, False),
    ],
)
def test_a_second_process_that_ends_and_was_not_refused_breaks_row_17(
    on_same_files: bool, code: int, is_refused: bool
) -> None:
    story = Story().fault("twin", "note", 2, exit_code=code, on_same_files=on_same_files)
    assert broken(story) == (set() if is_refused else {17})


def test_a_leader_may_come_back_in_another_epoch() -> None:
    story = led().led(2, 1, [1, 2]).led(1, 2, [1, 2]).saw(HERE, 0, 1).saw(HERE, 2, 1)
    story.traced(1, "committed", high_watermark=1).sent("w-1", 0, node=1)
    assert not broken(story.read({0: "w-1"}, epochs={0: 2}))


def test_a_topic_of_the_same_name_that_was_made_again_has_its_own_epochs() -> None:
    story = led().traced(1, "deleted", place=Place("t", 0), topic_id="id").led(2, 0, [1, 2])
    assert not broken(story)


# ── 18: clean elections ───────────────────────────────────────────────────────────────────────


def elected(leader: int, *, elr: list[int] | None = None, **facts: bool) -> Story:
    """Node 1 was alone in sync, and then somebody leads."""
    story = Story(**facts).obeyed(1, 4, leader=1, isr=[1], elr=elr)
    return story.obeyed(1, 5, leader=leader, isr=[leader])


def test_a_leader_that_was_not_in_sync_breaks_row_18() -> None:
    assert broken(elected(2)) == {18}


def test_a_leader_that_was_eligible_is_a_clean_one() -> None:
    assert not broken(elected(2, elr=[2, 3]))


def test_an_unclean_leader_is_counted_where_it_is_allowed() -> None:
    story = elected(2, is_unclean_allowed=True)
    assert not broken(story)
    assert counted(story) == {18}


def test_an_election_that_calls_itself_unclean_is_one_even_if_states_are_missing() -> None:
    story = Story().obeyed(1, 4, leader=1, isr=[1, 2])
    assert broken(story.obeyed(1, 9, leader=2, isr=[2], last_unclean_epoch=9)) == {18}


def test_nothing_is_said_of_an_election_if_the_state_before_it_was_not_told() -> None:
    story = Story().obeyed(1, 4, leader=1, isr=[1])
    assert not broken(story.obeyed(1, 6, leader=2, isr=[2]))


# ── 19: enough in sync ────────────────────────────────────────────────────────────────────────


def test_an_acknowledgement_while_too_few_are_in_sync_breaks_row_19() -> None:
    story = Story().obeyed(1, 4, leader=1, isr=[1]).passed(1)
    assert broken(story.sent("w-1", 0, node=1)) == {19}


def test_the_set_may_have_been_large_enough_for_a_moment() -> None:
    story = Story().obeyed(1, 4, leader=1, isr=[1]).begin("w-1")
    story.obeyed(1, 5, leader=1, isr=[1, 2], leader_epoch=4).obeyed(
        1, 6, leader=1, isr=[1], leader_epoch=4
    )
    assert not broken(story.end("w-1", Kind.OK, offset=0, node=1))


def test_a_node_does_not_know_yet_what_another_obeys_already() -> None:
    story = Story().obeyed(1, 4, leader=1, isr=[1, 2])
    story.obeyed(3, 5, leader=1, isr=[1], leader_epoch=4).passed(1)
    assert not broken(story.sent("w-1", 0, node=1))


# ── 20: metadata goes forward ─────────────────────────────────────────────────────────────────


def versions(*numbers: int) -> Story:
    story = Story().traced(1, "started", place=None)
    for number in numbers:
        story.traced(1, "metadata", place=None, version=number, controller_epoch=1)
    return story


def test_a_version_that_falls_breaks_row_20() -> None:
    assert broken(versions(4, 5, 4)) == {20}
    assert not broken(versions(4, 5, 5, 9))


def test_a_node_that_was_restarted_may_have_to_catch_up() -> None:
    story = versions(4, 5).traced(1, "started", place=None)
    assert not broken(story.traced(1, "metadata", place=None, version=4, controller_epoch=1))


def test_an_epoch_of_a_partition_or_of_a_broker_that_falls_breaks_row_20() -> None:
    story = Story().obeyed(1, 5, leader=1, isr=[1, 2])
    assert broken(story.obeyed(1, 4, leader=1, isr=[1, 2])) == {20}
    story = Story().traced(1, "registered", place=None, broker=2, broker_epoch=8)
    assert broken(story.traced(1, "registered", place=None, broker=2, broker_epoch=7)) == {20}


def restarted(*, version: int, leader_epoch: int, turn: int = 2) -> Story:
    """Everybody had version 90 and epoch 5; all are started again, and have this in the end."""
    story = Story()
    for node in (1, 2, 3):
        story.traced(node, "started", place=None)
        story.traced(node, "metadata", place=None, version=90, controller_epoch=7)
        story.obeyed(node, 9, leader=1, isr=[1, 2, 3], leader_epoch=5)
    for node in (1, 2, 3):
        story.traced(node, "started", place=None)
    for node in (1, 2, 3):
        story.traced(node, "metadata", place=None, version=10, controller_epoch=1)
        story.traced(node, "metadata", place=None, version=version, controller_epoch=7)
        at = 9 if leader_epoch >= 5 else 8
        story.obeyed(node, at, leader=1, isr=[1, 2, 3], leader_epoch=leader_epoch)
    return story.sent("w-1", 0).read({0: "w-1"}).read({0: "w-1"}, turn=turn)


def test_a_cluster_that_forgets_when_it_is_started_again_breaks_row_20() -> None:
    assert broken(restarted(version=40, leader_epoch=5)) == {20}
    assert broken(restarted(version=91, leader_epoch=3)) == {20}


def test_whoever_was_started_again_may_begin_low_and_catch_up() -> None:
    assert not broken(restarted(version=90, leader_epoch=5))
    assert not broken(restarted(version=40, leader_epoch=5, turn=1)), "it did not come to its end"


def test_a_leader_epoch_that_falls_from_one_state_to_the_next_breaks_row_20() -> None:
    story = Story().obeyed(1, 5, leader=1, isr=[1, 2], leader_epoch=3)
    assert broken(story.obeyed(2, 6, leader=1, isr=[1, 2], leader_epoch=2)) == {20}


def test_two_nodes_that_tell_different_things_of_one_partition_epoch_break_row_20() -> None:
    story = Story().obeyed(1, 5, leader=1, isr=[1, 2])
    assert not broken(story.obeyed(2, 5, leader=1, isr=[1, 2]))
    assert broken(story.obeyed(3, 5, leader=1, isr=[1, 2, 3])) == {20}


def test_without_a_trace_rows_12_and_18_to_20_are_not_judged() -> None:
    story = Story().sent("w-1", 0).read({0: "w-1"})
    assert {12, 17, 18, 19, 20} <= rows(story, Ruling.NOT_JUDGED)
    story.evidence = replace(story.evidence, trace=[])
    assert {12, 17, 18, 19, 20} <= rows(story, Ruling.NOT_JUDGED)


# ── What was compared ─────────────────────────────────────────────────────────────────────────


def test_a_trace_without_the_state_of_any_partition_judges_neither_row_18_nor_20() -> None:
    story = Story().traced(1, "metadata", place=None, version=3, controller_epoch=1)
    assert {18, 20} <= rows(story, Ruling.NOT_JUDGED)
    assert {18, 20} <= rows(story.obeyed(1, 0, leader=1, isr=[1]), Ruling.HELD)


def test_metadata_that_goes_back_is_broken_also_where_no_partition_is_told() -> None:
    story = Story().traced(1, "metadata", place=None, version=3, controller_epoch=1)
    assert broken(story.traced(1, "metadata", place=None, version=2, controller_epoch=1)) == {20}
