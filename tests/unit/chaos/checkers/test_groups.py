"""Rows 21 and 25 to 27: groups that go back, forget, skip or quarrel, and near misses."""

from __future__ import annotations

from typing import Any

from ottla.chaos.evidence import Ruling
from ottla.chaos.history import Kind, Place
from tests.unit.chaos.story import HERE, Story, broken, counted, rows

THERE = Place("t", 1)
ABC = {0: "w-1", 1: "w-2", 2: "w-3"}


def commits(*offsets: int) -> Story:
    story = Story()
    for offset in offsets:
        commit(story, offset)
    return story


def commit(story: Story, offset: int, *, kind: Kind = Kind.OK, by: str = "r") -> Story:
    return attempt(story, "commit", kind, by=by, value="group", offsets=((HERE, offset),))


def found(story: Story, offset: int, *, by: str = "r") -> Story:
    return attempt(story, "committed", Kind.OK, by=by, value="group", offsets=((HERE, offset),))


def attempt(story: Story, function: str, kind: Kind, *, by: str, **more: Any) -> Story:
    story._event(Kind.INVOKE, process=by, function=function, **more)
    return story._event(kind, process=by, function=function, **more)


def reading(story: Story, *members: str) -> Story:
    for member in members:
        story.did("subscribe", by=member, value="group")
    return story


def owns(story: Story, member: str, generation: int | None, *places: Place) -> Story:
    more = {"value": "group", "generation": generation, "rebalanced": places}
    return story.did("owns", by=member, **more)


# ── 21: commits ───────────────────────────────────────────────────────────────────────────────


def test_a_commit_that_goes_back_breaks_row_21() -> None:
    assert broken(commits(3, 5, 4)) == {21}
    assert not broken(commits(3, 5, 5))


def test_another_member_may_not_go_back_either() -> None:
    assert broken(commit(commits(5), 4, by="s")) == {21}
    assert not broken(commits(5).did("commit", by="s", value="other", place=HERE, offset=4))


def test_every_partition_of_a_commit_counts() -> None:
    both = ((HERE, 5), (THERE, 5))
    story = Story().did("commit", value="group", offsets=both)
    assert broken(story.did("commit", value="group", offsets=((HERE, 5), (THERE, 4)))) == {21}
    story = Story().did("commit", value="group", offsets=both)
    assert not broken(story.did("commit", value="group", offsets=((HERE, 6), (THERE, 5))))


def test_a_commit_that_was_refused_or_is_unknown_takes_nothing_back() -> None:
    for kind in (Kind.FAIL, Kind.UNKNOWN):
        assert not broken(commit(commits(5), 4, kind=kind))
        assert not broken(commit(commit(Story(), 5, kind=kind), 4))


def test_a_reader_that_was_sent_back_may_commit_less() -> None:
    story = commit(commits(5).did("seek"), 2)
    assert not broken(found(story, 2))
    story = commit(commits(5).did("seek", by="s"), 2)
    assert broken(story) == {21}, "it was somebody else that was sent back"


def test_a_commit_beyond_the_end_breaks_row_21() -> None:
    told = reading(Story(), "r").sent("w-1", 0).polled({0: "w-1"})
    assert broken(commit(told, 2).read({0: "w-1"})) == {21}
    told = reading(Story(), "r").sent("w-1", 0).polled({0: "w-1"})
    assert not broken(commit(told, 1).read({0: "w-1"}))


# ── 25: what is found later ───────────────────────────────────────────────────────────────────


def test_an_acknowledged_commit_that_is_not_found_breaks_row_25() -> None:
    assert broken(found(commits(5), 4)) == {25}
    assert broken(found(commits(5), -1)) == {25}, "nothing at all is found"
    assert not broken(found(commits(5), 5))
    assert not broken(found(commits(5), 7)), "an unknown commit of somebody was done"


def test_what_was_found_once_is_found_again() -> None:
    assert broken(found(found(commits(5), 7), 6, by="s")) == {25}
    assert not broken(found(found(commits(5), 7), 7, by="s"))


def test_who_looked_before_the_acknowledgement_may_find_less() -> None:
    story = commits(3)
    story._event(Kind.INVOKE, process="s", function="committed", value="group")
    commit(story, 5)
    more: dict[str, Any] = {"value": "group", "offsets": ((HERE, 3),)}
    story._event(Kind.OK, process="s", function="committed", **more)
    assert not broken(story)


def test_a_commit_that_comes_late_is_counted_if_nobody_knew_its_outcome() -> None:
    late = found(commit(commit(commits(3), 4, kind=Kind.UNKNOWN), 5), 4)
    assert not broken(late)
    assert counted(late) == {25}
    assert not broken(commit(late, 5)), "who begins there goes on from there"
    assert broken(found(commit(commit(commits(3), 4, kind=Kind.FAIL), 5), 4)) == {25}
    other = found(commit(commit(commits(3), 4, kind=Kind.UNKNOWN), 5), 3)
    assert broken(other) == {25}, "nobody had asked for that"


def test_a_group_that_cannot_be_read_at_the_end_breaks_row_25() -> None:
    for phase, wrong in (("final", {25}), ("main", set[int]())):
        more: dict[str, Any] = {"by": "final", "value": "group", "phase": phase}
        assert broken(attempt(commits(5), "committed", Kind.FAIL, **more)) == wrong


# ── 26: nothing is passed over ────────────────────────────────────────────────────────────────


def three(**facts: Any) -> Story:
    return reading(Story(**facts), "r", "s").sent("w-1", 0).sent("w-2", 1).sent("w-3", 2)


def test_a_group_that_commits_past_what_nobody_was_shown_breaks_row_26() -> None:
    assert broken(commit(three().polled({0: "w-1"}), 2).read(ABC)) == {26}
    shared = three().polled({0: "w-1"}).polled({1: "w-2"}, by="s", rebalanced=(HERE,))
    assert not broken(commit(shared, 2, by="s").read(ABC))


def test_what_is_shown_after_the_commit_is_too_late() -> None:
    assert 26 in broken(commit(three().polled({0: "w-1"}), 2).polled({1: "w-2"}).read(ABC))


def test_what_others_were_shown_is_none_of_the_groups() -> None:
    story = three().polled(ABC, by="stranger").polled({0: "w-1"})
    assert broken(commit(story, 2).read(ABC)) == {26}


def test_a_group_need_not_be_shown_what_may_be_gone() -> None:
    story = three(topics={"t": {"retention.ms": "1"}}).polled({2: "w-3"})
    assert not broken(commit(story, 3).read({2: "w-3"}, start=2))


def test_offsets_of_which_nobody_knows_anything_are_not_skipped() -> None:
    story = reading(Story(), "r").tried("w-1").sent("w-2", 1).polled({1: "w-2"})
    assert 26 not in broken(commit(story, 2))


# ── 27: owners ────────────────────────────────────────────────────────────────────────────────


def test_a_partition_with_two_owners_in_one_generation_breaks_row_27() -> None:
    assert broken(owns(owns(Story(), "r", 3, HERE, THERE), "s", 3, THERE)) == {27}
    assert not broken(owns(owns(Story(), "r", 3, HERE), "s", 3, THERE))
    assert not broken(owns(owns(Story(), "r", 3, HERE), "s", 4, HERE)), "one after the other"
    assert not broken(owns(owns(Story(), "r", 3, HERE), "r", 3, HERE)), "it was told twice"


def test_who_does_not_know_the_generation_says_nothing_about_owners() -> None:
    assert 27 in rows(owns(Story(), "r", None, HERE), Ruling.NOT_JUDGED)


def test_without_groups_and_transactions_their_rows_are_not_judged() -> None:
    assert {21, 22, 25, 26, 27} <= rows(Story(), Ruling.NOT_JUDGED)
