"""Rows 3, 4 and 16: for each a history that is wrong, and one that only looks so."""

from __future__ import annotations

import pytest

from ottla.chaos.checkers.judge import outcome
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Story, broken, counted, rows

ABC = {0: "w-1", 1: "w-2", 2: "w-3"}
COMPACTED = {"t": {"cleanup.policy": "compact"}}


def three(*, topics: dict[str, dict[str, str]] | None = None, **more: int) -> Story:
    """Three writes, acknowledged at 0, 1 and 2."""
    story = Story(topics=topics or {"t": {}})
    return story.sent("w-1", 0, **more).sent("w-2", 1, **more).sent("w-3", 2, **more)


# ── 3: acknowledged, and read past ────────────────────────────────────────────────────────────


def test_an_acknowledged_write_that_everybody_reads_past_breaks_row_3() -> None:
    assert 3 in broken(three().polled({0: "w-1", 2: "w-3"}))


def test_a_write_beyond_all_that_was_read_is_not_lost_yet() -> None:
    assert not broken(three().polled({0: "w-1", 1: "w-2"}))


def test_a_write_that_one_of_two_readers_was_shown_is_not_lost() -> None:
    story = three().polled({0: "w-1"}).polled({1: "w-2"}, by="s").polled({2: "w-3"}, by="u")
    assert not broken(story)


def test_an_unknown_write_is_never_lost() -> None:
    assert not broken(Story().tried("w-1").sent("w-2", 0).polled({0: "w-2"}))


def led_by_one() -> Story:
    return Story().led(1, 0, [1, 2]).sent("w-1", 0, acks=1, node=1)


def test_losing_a_write_with_acks_1_breaks_row_3_if_the_leader_never_changed() -> None:
    story = led_by_one().sent("v-1", 1, acks=1, node=1)
    assert broken(story.polled({1: "v-1"})) == {3}


def test_losing_a_write_with_acks_1_is_counted_if_the_leader_changed_after_it() -> None:
    story = led_by_one().led(2, 1, [1, 2]).tried("v-1").tried("v-2")
    story.polled({0: "v-1", 1: "v-2"})
    assert not broken(story)
    assert counted(story) == {3}


def late(seconds: float) -> Story:
    """A leader that was replaced some time ago goes on to acknowledge."""
    story = Story().led(1, 0, [1, 2]).led(2, 1, [1, 2]).passed(seconds)
    return story.sent("w-1", 0, acks=1, node=1).tried("v-1").polled({0: "v-1"})


def test_a_replaced_leader_may_acknowledge_with_acks_1_for_one_session() -> None:
    assert broken(late(1.5)) == set()
    assert counted(late(1.5)) == {3}
    assert broken(late(2.5)) == {3}


def test_a_replaced_leader_is_not_excused_because_it_leads_again_later() -> None:
    story = late(2.5).led(1, 2, [1, 2])
    assert broken(story) == {3}
    assert broken(late(1.5).led(1, 2, [1, 2])) == set(), "one that could not know yet"


def test_a_write_that_was_under_way_when_its_leader_began_is_lost_only_by_a_later_change() -> None:
    def begun_early() -> Story:
        story = Story().led(2, 0, [1, 2]).passed(5).begin("w-1", acks=1).led(1, 1, [1, 2])
        return story.end("w-1", Kind.OK, offset=0, node=1).tried("v-1").polled({0: "v-1"})

    assert broken(begun_early()) == {3}
    assert counted(begun_early().led(2, 2, [1, 2])) == {3}


def test_without_a_trace_the_leaders_that_clients_saw_are_believed() -> None:
    told = Story().sent("w-1", 0, acks=1).tried("v-1").polled({0: "v-1"})
    assert counted(told) == {3}, "nobody can tell"
    told = Story().saw(HERE, 0, 1).sent("w-1", 0, acks=1).tried("v-1").polled({0: "v-1"})
    assert broken(told) == {3}, "there was one leader all the time"


# ── 4: there at the end ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("left", "side"),
    [
        ({1: "w-2", 2: "w-3"}, "at the beginning"),
        ({0: "w-1", 2: "w-3"}, "from the middle"),
        ({0: "w-1", 1: "w-2"}, "at the end"),
    ],
)
def test_an_acknowledged_write_that_is_not_there_at_the_end_breaks_row_4(
    left: dict[int, str], side: str
) -> None:
    story = three().read(left, start=0)
    assert 4 in broken(story)
    (verdict,) = (one for one in story.verdicts() if one.row == 4)
    assert side in verdict.sentence
    assert verdict.evidence


def test_an_acknowledged_write_at_another_offset_breaks_row_4() -> None:
    assert 4 in broken(Story().sent("w-1", 1).tried("w-2").read({0: "w-1", 1: "w-2"}))


def test_a_write_that_is_lost_in_the_restart_only_breaks_row_4() -> None:
    assert 4 in broken(three().read(ABC).read({0: "w-1", 1: "w-2"}, turn=2))


def test_a_kept_duplicate_must_be_there_wherever_it_is() -> None:
    story = Story().tried("v-1").begin("w-1", is_idempotent=True)
    story.end("w-1", Kind.UNKNOWN, error="DUPLICATE_SEQUENCE_NUMBER", is_kept=True)
    assert not broken(story.read({0: "v-1", 1: "w-1"}))
    assert broken(story.read({0: "v-1"}, turn=2)) == {4, 5}


def test_a_write_that_is_acknowledged_without_an_offset_may_be_anywhere() -> None:
    story = Story().tried("v-1").sent("w-1", -1, is_idempotent=True)
    assert not broken(story.read({0: "v-1", 1: "w-1"}))
    story = Story().tried("v-1").sent("w-1", -1, is_idempotent=True)
    assert broken(story.read({0: "v-1"})) == {4}


def retained(retention: dict[str, str], *, after_s: float, clock: bool = False) -> Story:
    """Three records, of which the last one is left some time later."""
    story = three(topics={"t": retention})
    if clock:
        story.fault("clock", "inject", 1)
    story.passed(after_s)
    return story.read({2: "w-3"}, start=2, began_ns=story.now_ns)


def test_what_retention_took_is_not_missing() -> None:
    assert not broken(retained({"retention.ms": "1000"}, after_s=2))
    assert not broken(retained({"retention.bytes": "100"}, after_s=0))


def test_the_beginning_of_a_log_that_deletes_nothing_is_missing() -> None:
    assert broken(retained({}, after_s=2)) == {3, 4, 13}
    assert broken(retained({"retention.ms": "-1"}, after_s=2)) == {3, 4, 13}
    everything = three().polled(ABC)
    assert broken(everything.read({}, start=3, end=3)) == {4, 5, 13}


def test_what_retention_took_too_early_is_missing_unless_clocks_were_wrong() -> None:
    assert broken(retained({"retention.ms": "60000"}, after_s=2)) == {3, 4}
    assert not broken(retained({"retention.ms": "60000"}, after_s=2, clock=True))


def test_with_acks_1_nothing_is_promised_for_the_end() -> None:
    assert not broken(three(acks=1).read({0: "w-1"}))


def test_what_was_not_read_at_the_end_is_not_judged() -> None:
    assert 4 in rows(three(), Ruling.NOT_JUDGED)


# ── Compaction ────────────────────────────────────────────────────────────────────────────────


def compacted(*, final: dict[int, str], start: int = 0) -> Story:
    """Two keys: a at 0 and 1, b at 2; the last of each has to stay."""
    story = Story(topics=COMPACTED)
    story.sent("w-1", 0, key="a").sent("w-2", 1, key="a").sent("w-3", 2, key="b")
    return story.polled(ABC).read(final, start=start)


def test_of_a_key_only_the_last_record_has_to_stay() -> None:
    assert not broken(compacted(final=ABC))
    assert not broken(compacted(final={1: "w-2", 2: "w-3"}))


def test_losing_the_last_record_of_a_key_breaks_rows_4_5_and_13() -> None:
    assert broken(compacted(final={0: "w-1", 2: "w-3"})) == {4, 5, 13}
    assert broken(compacted(final={2: "w-3"})) == {4, 5, 13}


def test_compaction_does_not_take_the_end_of_the_log() -> None:
    story = Story(topics=COMPACTED).sent("w-1", 0, key="a").tried("w-2", key="a")
    assert broken(story.read({0: "w-1"}, end=2)) == {13}


def deleted(*, after_s: float, final: dict[int, str], turns: tuple[int, ...] = (1,)) -> Story:
    """A key with a value at 0 and a tombstone at 1; another key at 2, some time later.

    Tombstones stay for five minutes.
    """
    story = Story(topics={"t": {"cleanup.policy": "compact", "delete.retention.ms": "300000"}})
    story.sent("w-1", 0, key="a").sent("w-2", 1, key="a", is_tombstone=True).polled({1: "w-2"})
    story.passed(after_s).sent("w-3", 2, key="b")
    for turn in turns:
        log = final if turn == turns[-1] else {1: "w-2", 2: "w-3"}
        story.read(log, start=0, turn=turn, began_ns=story.now_ns)
    return story


def test_a_tombstone_may_go_when_it_is_old_enough() -> None:
    assert not broken(deleted(after_s=1, final={1: "w-2", 2: "w-3"}))
    assert not broken(deleted(after_s=301, final={2: "w-3"}))
    assert {4, 5, 13} <= broken(deleted(after_s=100, final={2: "w-3"}))


def test_a_tombstone_may_go_between_two_final_reads() -> None:
    assert not broken(deleted(after_s=301, final={2: "w-3"}, turns=(1, 2)))


def test_a_tombstone_may_not_go_before_what_it_deletes() -> None:
    assert {4, 5} <= broken(deleted(after_s=301, final={0: "w-1", 2: "w-3"}))


# ── 16: on every replica ──────────────────────────────────────────────────────────────────────


def test_a_write_that_one_replica_lacks_breaks_row_16() -> None:
    story = three().read(ABC).read(ABC, source="node-1")
    assert broken(story.read({0: "w-1", 1: "w-2"}, source="node-2")) == {16}


def test_a_replica_that_is_not_in_sync_may_lack_writes() -> None:
    story = three().obeyed(1, 3, leader=1, isr=[1, 3]).read(ABC)
    assert not broken(story.read({0: "w-1"}, source="node-2"))


def test_a_replica_without_a_batch_at_an_acknowledged_offset_breaks_row_16() -> None:
    story = three().read(ABC).holds(1, {0: 5, 1: 6, 2: 7}, end=3)
    assert not broken(story)
    assert broken(story.holds(2, {0: 5, 2: 7}, end=3)) == {15, 16}


# ── 4: in every turn ──────────────────────────────────────────────────────────────────────────


def _of_row_4(story: Story) -> tuple[Ruling, str]:
    return next((one.ruling, one.sentence) for one in story.verdicts() if one.row == 4)


def test_what_was_read_before_the_restart_and_not_after_it_does_not_hold_row_4() -> None:
    other = Place("u", 0)
    story = Story(topics={"t": {}, "u": {}}).sent("w-1", 0).sent("v-1", 0, place=other)
    story.read({0: "w-1"}).read({0: "v-1"}, place=other).read({0: "w-1"}, turn=2)
    assert _of_row_4(story) == (Ruling.NOT_JUDGED, "not read at the end: u-0 in turn 2")
    assert _of_row_4(story.read({0: "v-1"}, place=other, turn=2)) == (Ruling.HELD, "")


def test_a_topic_that_vanished_in_the_restart_fails_the_run() -> None:
    story = Story().sent("w-1", 0).read({0: "w-1"}).read({}, end=-1, turn=2)
    assert broken(story) == {24}
    assert outcome(story.evidence, story.verdicts()) is Outcome.FAILED


def cleaned(copy: dict[int, str], *, isr: list[int], read: tuple[int, ...] = (1, 2)) -> Story:
    """Node 1 leads a compacted partition. What node 2 holds is read when all are down."""
    story = Story(topics=COMPACTED).obeyed(1, 1, leader=1, isr=isr)
    story.sent("w-1", 0, key="a").sent("w-2", 1, key="a").sent("w-3", 2, key="b").polled(ABC)
    story.read(ABC, began_ns=story.now_ns)
    # Who stops leaves the set.
    story.obeyed(1, 2, leader=1, isr=[1], leader_epoch=1)
    for node in read:
        log = copy if node == 2 else {1: "w-2", 2: "w-3"}
        story.read(log, source=f"offline-{node}", start=0, end=3, began_ns=story.now_ns)
    return story


def test_a_copy_in_sync_whose_cleaner_drops_the_last_record_of_a_key_breaks_row_16() -> None:
    assert broken(cleaned({0: "w-1", 2: "w-3"}, isr=[1, 2])) == {16}
    assert broken(cleaned({1: "w-2"}, isr=[1, 2])) == {16}


def test_a_copy_may_be_cleaned_more_or_less_than_its_leader() -> None:
    assert not broken(cleaned({1: "w-2", 2: "w-3"}, isr=[1, 2]))
    assert not broken(cleaned(ABC, isr=[1, 2]))


def test_a_copy_that_was_out_of_sync_before_all_stopped_may_lack_anything() -> None:
    assert not broken(cleaned({0: "w-1"}, isr=[1, 3], read=(1, 2, 3)))


def test_a_copy_in_sync_without_any_files_breaks_row_16() -> None:
    assert broken(cleaned({}, isr=[1, 2], read=(1,))) == {16}
    assert not broken(cleaned({}, isr=[1, 3], read=(1, 3)))


def test_without_a_trace_every_copy_must_have_the_last_record_of_each_key() -> None:
    assert 16 in broken(compacted(final=ABC).read({2: "w-3"}, source="offline-2", start=0))
    assert not broken(compacted(final=ABC).read(ABC, source="offline-2"))
