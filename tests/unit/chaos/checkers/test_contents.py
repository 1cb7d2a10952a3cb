"""Rows 1, 2, 5, 6, 7: for each a history that is wrong, and one that only looks so."""

from __future__ import annotations

from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import Story, broken, counted

AB = {0: "w-1", 1: "w-2"}


# ── 1: one value at an offset ─────────────────────────────────────────────────────────────────


def test_two_readers_who_are_shown_different_values_at_one_offset_break_row_1() -> None:
    story = Story().tried("w-1").tried("v-1").polled({0: "w-1"}).polled({0: "v-1"}, by="s")
    assert broken(story) == {1}


def test_one_offset_acknowledged_for_two_values_breaks_row_1() -> None:
    assert 1 in broken(Story().sent("w-1", 0).sent("v-1", 0))


def test_an_acknowledged_offset_with_another_value_breaks_row_1() -> None:
    assert 1 in broken(Story().sent("w-1", 0).tried("v-1").polled({0: "v-1"}))


def test_an_offset_that_only_the_leader_acknowledged_may_get_another_value() -> None:
    """acks=1: the next leader did not have it, and used the offset again."""
    story = Story().led(1, 0, [1, 2]).sent("w-1", 0, acks=1, node=1).led(2, 1, [1, 2])
    story.traced(2, "committed", high_watermark=1).sent("v-1", 0, node=2).polled({0: "v-1"})
    assert not broken(story.read({0: "v-1"}, epochs={0: 1}))


# ── 2: there once ─────────────────────────────────────────────────────────────────────────────


def test_a_value_of_an_idempotent_producer_at_two_offsets_breaks_row_2() -> None:
    story = Story().begin("w-1", is_idempotent=True).end("w-1", Kind.OK, offset=0, attempts=2)
    assert broken(story.polled({0: "w-1", 1: "w-1"})) == {2}


def test_a_value_that_was_sent_once_and_is_there_twice_breaks_row_2() -> None:
    assert broken(Story().sent("w-1", 0).polled({0: "w-1"}).read({0: "w-1", 1: "w-1"})) == {2}


def test_a_producer_that_itself_sent_again_is_only_counted() -> None:
    story = Story().begin("w-1").end("w-1", Kind.OK, offset=1, attempts=2)
    story.polled({0: "w-1", 1: "w-1"}).read({0: "w-1", 1: "w-1"})
    assert not broken(story)
    assert counted(story) == {2}


def _twice_beside(other: str, *, is_given_up_meanwhile: bool) -> Story:
    """Tell of an idempotent record that is there twice, and of another one nobody waited for."""
    story = Story().begin(other, is_idempotent=True)
    if not is_given_up_meanwhile:
        story.end(other, Kind.UNKNOWN, error="_MSG_TIMED_OUT")
    story.begin("k1.0-1", is_idempotent=True)
    if is_given_up_meanwhile:
        story.end(other, Kind.UNKNOWN, error="_MSG_TIMED_OUT")
    story.end("k1.0-1", Kind.OK, offset=1)
    return story.polled({0: "k1.0-1", 1: "k1.0-1"}).read({0: "k1.0-1", 1: "k1.0-1"})


def test_an_idempotent_producer_that_gave_up_meanwhile_began_a_new_epoch_and_is_only_counted() -> (
    None
):
    story = _twice_beside("k1.1-1", is_given_up_meanwhile=True)
    assert not broken(story)
    assert counted(story) == {2}


def test_what_an_idempotent_producer_gave_up_before_or_another_one_did_excuses_nothing() -> None:
    assert broken(_twice_beside("k1.1-1", is_given_up_meanwhile=False)) == {2}
    assert broken(_twice_beside("k2.1-1", is_given_up_meanwhile=True)) == {2}


def test_a_send_that_is_surely_kept_was_not_given_up_and_excuses_no_double() -> None:
    story = Story().begin("k1.1-1", is_idempotent=True).begin("k1.0-1", is_idempotent=True)
    story.end("k1.1-1", Kind.UNKNOWN, error="DUPLICATE_SEQUENCE_NUMBER", is_kept=True)
    story.end("k1.0-1", Kind.OK, offset=1)
    log = {0: "k1.0-1", 1: "k1.0-1", 2: "k1.1-1"}
    assert broken(story.polled(log).read(log)) == {2}


def test_readers_may_be_shown_the_same_again_after_a_seek() -> None:
    story = Story().sent("w-1", 0).polled({0: "w-1"}).did("seek").polled({0: "w-1"})
    assert not broken(story.read({0: "w-1"}))


# ── 5: shown is shown ─────────────────────────────────────────────────────────────────────────


def test_what_was_shown_and_is_gone_at_the_end_breaks_row_5_also_with_acks_1() -> None:
    story = Story().sent("w-1", 0, acks=1).sent("w-2", 1, acks=1).polled(AB)
    assert broken(story.read({0: "w-1"})) == {5}


def test_what_was_shown_by_a_poll_that_failed_counts_too() -> None:
    story = Story().tried("w-1").tried("w-2").polled({0: "w-1"}, kind=Kind.UNKNOWN)
    assert 5 in broken(story.read({0: "w-2"}))


def test_what_was_there_before_the_restart_and_is_not_after_it_breaks_row_5() -> None:
    story = Story().tried("w-1").tried("w-2").read(AB, turn=1).read({0: "w-1"}, turn=2)
    assert broken(story) == {5}


def test_what_was_shown_below_the_start_offset_was_deleted_by_intention() -> None:
    story = Story(topics={"t": {"retention.ms": "1"}}).sent("w-1", 0).sent("w-2", 1).polled(AB)
    assert not broken(story.read({1: "w-2"}, start=1))
    story = Story().sent("w-1", 0).sent("w-2", 1).polled(AB)
    assert broken(story.read({1: "w-2"}, start=1)) == {4, 5, 13}


def test_what_was_shown_after_a_final_read_began_need_not_be_in_it() -> None:
    story = Story().sent("w-1", 0)
    story.read({0: "w-1"}, turn=1, began_ns=story.now_ns).passed(1)
    assert not broken(story.sent("w-2", 1).polled(AB).read(AB, turn=2))


# ── 6: refused ────────────────────────────────────────────────────────────────────────────────


def test_what_was_refused_and_appears_breaks_row_6() -> None:
    assert broken(Story().refused("w-1").polled({0: "w-1"})) == {6}


def test_what_was_refused_and_is_on_one_replica_breaks_row_6() -> None:
    assert broken(Story().refused("w-1").read({0: "w-1"}, source="node-2")) == {6}


def test_an_unknown_write_may_appear_later() -> None:
    story = Story().tried("w-1").polled({}).passed(5).polled({0: "w-1"})
    assert not broken(story.read({0: "w-1"}))


def test_an_unknown_write_need_not_appear() -> None:
    assert not broken(Story().tried("w-1").sent("w-2", 0).read({0: "w-2"}))


def test_a_write_whose_process_died_may_appear() -> None:
    assert not broken(Story().begin("w-1").polled({0: "w-1"}).read({0: "w-1"}))


# ── 7: strangers ──────────────────────────────────────────────────────────────────────────────


def test_a_value_that_nobody_sent_breaks_row_7() -> None:
    assert broken(Story().polled({0: "w-1"})) == {7}


def test_a_payload_that_is_not_ours_breaks_row_7() -> None:
    assert broken(Story().sent("w-1", 0).read({0: "w-1", 1: None})) == {7}


def test_a_value_in_the_wrong_partition_breaks_row_7() -> None:
    story = Story().tried("w-1", place=Place("t", 1)).polled({0: "w-1"})
    assert broken(story) == {7}


def test_a_value_that_is_shown_before_it_is_sent_breaks_row_7() -> None:
    assert 7 in broken(Story().polled({0: "w-1"}).tried("w-1"))


def test_a_second_value_at_an_offset_is_not_taken_for_one_that_was_shown_too_early() -> None:
    story = Story().tried("w-1").polled({0: "w-1"}).tried("v-1").polled({0: "v-1"}, by="s")
    assert 1 in broken(story)
    assert 7 not in broken(story)


def test_a_value_may_be_shown_before_its_write_has_ended() -> None:
    story = Story().begin("w-1").polled({0: "w-1"}).end("w-1", Kind.OK, offset=0)
    assert not broken(story.read({0: "w-1"}))
