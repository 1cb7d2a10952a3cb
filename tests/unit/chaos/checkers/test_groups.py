"""Row 21: commits that go back, and commits that only look so."""

from __future__ import annotations

from ottla.chaos.evidence import Ruling
from tests.unit.chaos.story import HERE, Story, broken, rows


def commits(*offsets: int) -> Story:
    story = Story()
    for offset in offsets:
        story.did("commit", value="group", place=HERE, offset=offset)
    return story


def test_a_commit_that_goes_back_breaks_row_21() -> None:
    assert broken(commits(3, 5, 4)) == {21}
    assert not broken(commits(3, 5, 5))


def test_another_member_may_not_go_back_either() -> None:
    assert broken(commits(5).did("commit", by="s", value="group", place=HERE, offset=4)) == {21}
    assert not broken(commits(5).did("commit", by="s", value="other", place=HERE, offset=4))


def test_a_reader_that_was_sent_back_may_commit_less() -> None:
    story = commits(5).did("seek").did("commit", value="group", place=HERE, offset=2)
    assert not broken(story)


def test_what_was_committed_is_what_is_found_later() -> None:
    assert broken(commits(5).did("committed", value="group", place=HERE, offset=4)) == {21}
    assert not broken(commits(5).did("committed", value="group", place=HERE, offset=5))


def test_a_commit_beyond_the_end_breaks_row_21() -> None:
    assert broken(commits(2).sent("w-1", 0).read({0: "w-1"})) == {21}
    assert not broken(commits(1).sent("w-1", 0).read({0: "w-1"}))


def test_without_commits_and_transactions_rows_21_and_22_are_not_judged() -> None:
    assert {21, 22} <= rows(Story(), Ruling.NOT_JUDGED)
