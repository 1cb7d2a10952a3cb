"""Row 15: replicas that differ, and replicas that only look so."""

from __future__ import annotations

from dataclasses import replace

from ottla.chaos.evidence import Damage, Ruling
from tests.unit.chaos.story import Story, broken, counted, rows

SAME = {0: 50, 1: 51, 2: 52}


def test_replicas_with_the_same_batches_hold_the_same() -> None:
    story = Story().holds(1, SAME, end=3).holds(2, SAME, end=3).holds(3, SAME, end=2)
    assert not broken(story)
    assert not counted(story)


def test_another_checksum_below_the_high_watermark_breaks_row_15() -> None:
    story = Story().holds(1, SAME, end=3).holds(2, SAME | {1: 99}, end=2)
    assert broken(story) == {15}


def test_another_epoch_below_the_high_watermark_breaks_row_15() -> None:
    assert broken(Story().holds(1, SAME, end=3).holds(2, SAME, end=3, epoch=1)) == {15}


def test_two_replicas_that_differ_are_found_though_the_one_between_them_is_short() -> None:
    story = Story().obeyed(1, 0, leader=1, isr=[1, 3])
    story.holds(1, SAME, end=3).holds(2, {}, end=0).holds(3, SAME | {2: 99}, end=3)
    assert broken(story) == {15}


def test_a_replica_in_sync_that_ends_below_the_high_watermark_breaks_row_15() -> None:
    assert broken(Story().holds(1, SAME, end=3).holds(2, {0: 50, 1: 51}, end=2)) == {15}


def test_a_short_replica_that_is_not_in_sync_is_counted() -> None:
    story = Story().obeyed(1, 0, leader=1, isr=[1])
    story.holds(1, SAME, end=3).holds(2, {0: 50, 1: 51}, end=2)
    assert not broken(story)
    assert counted(story) == {15}


WRONG = Damage(1, 2, "00000000000000000000.log at 101: checksum 0x1 where 0x2 was written")
MEANT = (r"\.log at \d+: ",)


def test_damage_that_a_replica_tells_of_breaks_row_15() -> None:
    story = Story().holds(1, SAME, end=3).holds(2, {0: 50, 2: 52}, end=3, damage=WRONG)
    assert broken(story) == {15}


def test_damage_that_the_scenario_is_there_to_cause_is_counted() -> None:
    story = Story(allowed_log=MEANT)
    story.holds(1, SAME, end=3).holds(2, {0: 50, 2: 52}, end=3, damage=WRONG)
    assert not broken(story)
    assert counted(story) == {15}


def test_who_was_in_sync_is_asked_of_when_it_was_read_and_not_of_the_end() -> None:
    story = Story().obeyed(1, 0, leader=1, isr=[1, 2]).sent("w-1", 0)
    story.read({0: "w-1"}, began_ns=story.now_ns).holds(1, {0: 7}, end=1).holds(2, {}, end=0)
    # Nodes that are stopped leave one after another.
    assert broken(story.obeyed(1, 1, leader=1, leader_epoch=0, isr=[1])) == {15, 16}


def test_damage_behind_which_nothing_can_be_read_makes_no_replica_short() -> None:
    story, damage = Story(allowed_log=MEANT), WRONG._replace(end_offset=None)
    story.holds(1, SAME, end=3).holds(2, {0: 50}, end=3, damage=damage)
    assert not broken(story)


def test_what_lies_before_and_behind_damage_is_compared_as_usual() -> None:
    for held in ({0: 99, 2: 52}, {0: 50, 2: 99}, {0: 50}):
        story = Story(allowed_log=MEANT)
        story.holds(1, SAME, end=3).holds(2, held, end=3, damage=WRONG)
        assert broken(story) == {15}, held


def _flipped_story(held: dict[int, int], file: str = "t-0/00000000000000000000.log") -> Story:
    story = Story(allowed_log=MEANT).fault("flipped", "note", 2, file=file)
    return story.holds(1, SAME, end=3).holds(2, held, end=3).holds(3, SAME, end=3)


def test_a_bit_that_no_checksum_covers_makes_one_batch_differ_where_it_was_flipped() -> None:
    story = _flipped_story({0: 50, 1: 99, 2: 52})
    assert not broken(story)
    assert counted(story) == {15}
    assert broken(_flipped_story({0: 50, 1: 99, 2: 99})) == {15}, "two batches"
    assert broken(_flipped_story({0: 50, 1: 99, 2: 52}, "t-1/0.log")) == {15}, "another partition"
    assert broken(_flipped_story({0: 50, 1: 99, 2: 52}, "t-0/0.index")) == {15}, "no segment"


def test_above_the_high_watermark_replicas_may_differ_for_a_while() -> None:
    story = Story().holds(1, SAME, end=2, turn=1).holds(2, SAME | {2: 99}, end=2, turn=1)
    assert broken(story) == {15}, "it never ended"
    story.holds(1, SAME, end=3, turn=2).holds(2, SAME, end=3, turn=2)
    assert not broken(story)
    assert counted(story) == {15}


def test_one_replica_may_hold_more_than_is_committed() -> None:
    assert not broken(Story().holds(1, SAME, end=2).holds(2, {0: 50, 1: 51}, end=2))


def test_cleaners_may_leave_different_batches() -> None:
    story = Story(topics={"t": {"cleanup.policy": "compact"}}).sent("w-1", 2)
    story.read({2: "w-1"}, start=0).holds(1, SAME, end=3).holds(2, {2: 77}, end=3)
    assert not broken(story)
    assert broken(story.holds(3, {2: 77}, end=3, epoch=4)) == {15}


def test_unsound_files_break_row_15_unless_the_scenario_made_them() -> None:
    story = Story(allowed_log=("wrong checksum",)).unsound(2, "t-0: wrong checksum at 5")
    assert not broken(story)
    assert broken(story.unsound(3, "t-0: an offset is missing")) == {15}


def test_without_a_look_inside_row_15_is_not_judged() -> None:
    assert {15, 16} <= rows(Story().sent("w-1", 0), Ruling.NOT_JUDGED)


def test_a_look_inside_that_showed_nobody_is_no_look() -> None:
    story = Story().sent("w-1", 0).read({0: "w-1"})
    story.evidence = replace(story.evidence, replicas=[])
    assert {15, 16} <= rows(story, Ruling.NOT_JUDGED)
    assert 15 in rows(story.unsound(1), Ruling.NOT_JUDGED), "sound files are not copies compared"
    assert broken(story.unsound(2, "t-0: an offset is missing")) == {15}


def shown_by_two(isr: list[int]) -> Story:
    story = Story().obeyed(1, 0, leader=1, isr=isr).sent("w-1", 0).read({0: "w-1"})
    return story.holds(1, {0: 50}, end=1).holds(2, {0: 50}, end=1)


def test_a_replica_in_sync_that_shows_nothing_breaks_rows_15_and_16() -> None:
    assert broken(shown_by_two([1, 2, 3])) == {15, 16}


def test_a_replica_that_is_not_in_sync_need_not_show_anything() -> None:
    assert not broken(shown_by_two([1, 2]))


def test_whether_a_replica_was_in_sync_is_asked_of_the_moment_of_the_read() -> None:
    def joined(*, before_the_read: bool) -> Story:
        story = Story().obeyed(1, 0, leader=1, isr=[1]).sent("w-1", 0)
        early_ns = story.now_ns
        story.obeyed(1, 1, leader=1, leader_epoch=0, isr=[1, 2])
        began_ns = story.now_ns if before_the_read else early_ns
        return story.read({0: "w-1"}, began_ns=began_ns).holds(1, {0: 50}, end=1)

    assert broken(joined(before_the_read=True)) == {15, 16}
    assert not broken(joined(before_the_read=False))


def test_each_turn_must_show_all_that_are_in_sync() -> None:
    story = shown_by_two([1, 2]).read({0: "w-1"}, turn=2).holds(1, {0: 50}, end=1, turn=2)
    assert broken(story) == {15, 16}
    assert not broken(story.holds(2, {0: 50}, end=1, turn=2))
