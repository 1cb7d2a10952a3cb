"""Rows 8 to 11, 13 and 14: for each a history that is wrong, and one that only looks so."""

from __future__ import annotations

from ottla.chaos.evidence import Ruling
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Story, broken, counted, rows

ABC = {0: "w-1", 1: "w-2", 2: "w-3"}


def three(**more: int) -> Story:
    """Three writes, acknowledged at 0, 1 and 2."""
    return Story().sent("w-1", 0, **more).sent("w-2", 1, **more).sent("w-3", 2, **more)


# ── 8: inside a poll ──────────────────────────────────────────────────────────────────────────


def test_a_poll_that_leaves_a_known_record_out_breaks_row_8() -> None:
    story = three().polled({0: "w-1", 2: "w-3"}).polled({1: "w-2"}, by="s")
    assert broken(story) == {8}


def test_a_poll_that_goes_back_breaks_row_8() -> None:
    assert broken(three().polled(ABC, order=[0, 2, 1])) == {8}
    assert broken(three().polled(ABC, order=[0, 1, 1, 2])) == {8}


def test_a_poll_may_pass_over_an_offset_of_which_nobody_knows() -> None:
    """It may be a control record; if it is none, row 13 will say so."""
    story = Story().tried("w-1").tried("w-3").polled({0: "w-1", 2: "w-3"})
    assert not broken(story)


def test_a_poll_may_pass_over_what_only_a_lost_leader_acknowledged() -> None:
    story = Story().sent("w-1", 0).sent("w-2", 1, acks=1).sent("w-3", 2)
    assert 8 not in broken(story.polled({0: "w-1", 2: "w-3"}))


def test_partitions_that_changed_hands_in_a_poll_are_left_out() -> None:
    story = three().polled({0: "w-1", 2: "w-3"}, rebalanced=(HERE,)).polled({1: "w-2"}, by="s")
    assert not broken(story)


def test_a_poll_may_pass_over_what_retention_has_deleted() -> None:
    story = Story(topics={"t": {"retention.bytes": "100"}})
    story.sent("w-1", 0).sent("w-2", 1).sent("w-3", 2)
    story.polled({1: "w-2"}, by="s").polled({0: "w-1", 2: "w-3"})
    assert not broken(story.read({2: "w-3"}, start=2))


# ── 9: from poll to poll ──────────────────────────────────────────────────────────────────────


def test_a_reader_that_skips_a_known_record_breaks_row_9() -> None:
    story = three().polled(ABC, by="s").polled({0: "w-1"}).polled({2: "w-3"})
    assert broken(story) == {9}


def test_a_reader_that_is_shown_a_record_again_breaks_row_9() -> None:
    assert broken(three().polled({0: "w-1", 1: "w-2"}).polled({1: "w-2", 2: "w-3"})) == {9}


def test_a_reader_that_was_sent_back_may_go_back() -> None:
    for function in ("assign", "seek", "subscribe", "crash"):
        story = three().polled({0: "w-1", 1: "w-2"}).did(function).polled({1: "w-2", 2: "w-3"})
        assert not broken(story)


def test_a_reader_that_was_sent_somewhere_goes_on_from_there() -> None:
    story = three().polled(ABC, by="s").polled({0: "w-1"}).did("assign", place=HERE, offset=1)
    assert not broken(story.polled({1: "w-2"}))
    story = three().polled(ABC, by="s").polled({0: "w-1"}).did("assign", place=HERE, offset=1)
    assert broken(story.polled({2: "w-3"})) == {9}


def test_a_reader_that_was_sent_back_in_one_partition_is_where_it_was_in_the_other() -> None:
    other = Place("t", 1)
    story = Story().tried("w-1", place=other).tried("w-2", place=other)
    story.polled({0: "w-1"}, place=other).did("assign", place=HERE, offset=0)
    assert broken(story.polled({0: "w-1"}, place=other)) == {9}


def test_a_member_of_a_group_that_goes_back_is_counted() -> None:
    story = three().did("subscribe").polled({0: "w-1", 1: "w-2"}).polled({1: "w-2", 2: "w-3"})
    assert not broken(story)
    assert counted(story) == {9}


def test_a_poll_that_did_not_succeed_moves_nobody() -> None:
    story = three().polled({0: "w-1"}).polled({1: "w-2"}, kind=Kind.UNKNOWN)
    assert not broken(story.polled({1: "w-2", 2: "w-3"}))


def test_readers_do_not_disturb_each_other() -> None:
    story = three().polled(ABC).polled({0: "w-1"}, by="s").polled({1: "w-2", 2: "w-3"}, by="s")
    assert not broken(story)


def test_without_polls_rows_8_and_9_are_not_judged() -> None:
    assert {8, 9} <= rows(three(), Ruling.NOT_JUDGED)


# ── 10: the order of a sender ─────────────────────────────────────────────────────────────────


def test_a_later_write_of_a_process_at_a_lower_offset_breaks_row_10() -> None:
    assert 10 in broken(Story().sent("w-1", 1).sent("w-2", 0))


def test_an_unknown_write_of_a_plain_sender_may_come_late() -> None:
    """It waited in the socket of a node that was stopped, say."""
    story = Story().tried("w-1").sent("w-2", 0)
    assert not broken(story.polled({0: "w-2", 1: "w-1"}))


def test_an_unknown_write_of_an_idempotent_sender_may_not_come_late() -> None:
    story = Story().tried("w-1", is_idempotent=True).sent("w-2", 0, is_idempotent=True)
    assert broken(story.polled({0: "w-2", 1: "w-1"})) == {10}


def test_two_processes_owe_each_other_no_order_while_they_overlap() -> None:
    story = Story().begin("w-1").begin("v-1").end("v-1", Kind.OK, offset=0)
    assert not broken(story.end("w-1", Kind.OK, offset=1).polled({0: "v-1", 1: "w-1"}))


# ── 11: real time ─────────────────────────────────────────────────────────────────────────────


def test_a_write_below_one_that_was_acknowledged_before_it_began_breaks_row_11() -> None:
    assert broken(Story().sent("w-1", 1).sent("v-1", 0)) == {11}


def test_an_unknown_write_that_is_found_below_an_older_one_breaks_row_11() -> None:
    story = Story().sent("w-1", 1).tried("v-1").polled({0: "v-1", 1: "w-1"})
    assert broken(story) == {11}


def test_a_write_below_what_a_reader_was_shown_before_it_began_breaks_row_11() -> None:
    story = Story().tried("w-1").polled({1: "w-1"}).tried("v-1")
    assert broken(story.polled({0: "v-1"}, by="s")) == {11}


def test_a_write_that_began_before_the_other_had_ended_may_lie_below_it() -> None:
    story = Story().begin("v-1").sent("w-1", 1).end("v-1", Kind.OK, offset=0)
    assert not broken(story)


def test_an_acknowledgement_with_acks_1_sets_no_order_for_others() -> None:
    assert not broken(Story().sent("w-1", 1, acks=1).sent("v-1", 0))


# ── 13: holes ─────────────────────────────────────────────────────────────────────────────────


def test_a_hole_in_a_final_read_breaks_row_13() -> None:
    story = Story().tried("w-1").tried("w-3").read({0: "w-1", 2: "w-3"})
    assert broken(story) == {13}


def test_a_log_that_begins_late_or_ends_early_breaks_row_13() -> None:
    assert broken(Story().tried("w-1").read({1: "w-1"}, start=0)) == {13}
    assert broken(Story().tried("w-1").read({0: "w-1"}, end=2)) == {13}


def test_a_control_record_is_no_hole() -> None:
    story = Story().tried("w-1").tried("w-3").read({0: "w-1", 1: None, 2: "w-3"})
    assert 7 in broken(story), "a record with a strange payload"
    assert not broken(story.with_control_records(1))


def test_an_empty_log_has_no_hole_wherever_it_begins() -> None:
    story = Story(topics={"t": {"retention.bytes": "100"}})
    assert not broken(story.sent("w-1", 6).read({}, start=7, end=7))


# ── 14: epochs ────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_that_falls_along_the_log_breaks_row_14() -> None:
    assert broken(three().read(ABC, epochs={0: 1, 1: 2, 2: 1})) == {14}
    assert broken(three().read(ABC).read(ABC, source="node-2", epochs={0: 1})) == {14}


def test_epochs_may_grow_by_more_than_one() -> None:
    assert not broken(three().read(ABC, epochs={0: 0, 1: 5, 2: 9}))


def test_an_epoch_that_a_reader_was_not_told_says_nothing() -> None:
    assert not broken(three().read(ABC, epochs={0: 4, 1: -1, 2: 4}))
