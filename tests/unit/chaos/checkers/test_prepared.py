"""Row 34: prepared transactions that do not wait for their decision; and near misses.

A transaction here writes one record to each of two partitions, at offset 0 unless told otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from ottla.chaos.checkers.judge import judge
from ottla.chaos.evidence import NOT_OFFERED, Ruling
from ottla.chaos.history import Kind
from tests.unit.chaos.story import Log, broken, rows
from tests.unit.chaos.tale import THERE, Tale, ends, given

A, B = {0: "t.0-1"}, {0: "t.1-1"}
NOTHING: Log = {}
OPERATOR = "t.operator"


def waiting() -> Tale:
    return Tale().begun("t-1").prepared("t-1")


def finished(tale: Tale, *, is_there: bool) -> Tale:
    """All is decided at the end; what was prepared is committed, or not."""
    whole = tale.whole({0: "t.0-1"}, {0: "t.1-1"})
    return ends(whole, A if is_there else NOTHING, B if is_there else NOTHING)


# ── Who comes back ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("found", [None, given("t-2")])
def test_a_successor_that_does_not_find_what_it_was_to_keep_breaks_row_34(found: Any) -> None:
    assert broken(waiting().kept("t-1", found)) == {34}
    assert not broken(waiting().kept("t-1", given("t-1")))


def test_restarts_that_keep_it_change_nothing() -> None:
    tale = waiting().kept("t-1", given("t-1")).kept("t-1", None, Kind.UNKNOWN)
    tale.kept("t-1", given("t-1")).decided("t-1", by=OPERATOR).kept("t-1", None)
    assert not broken(finished(tale, is_there=True)), "what nobody was told says nothing"


@pytest.mark.parametrize("is_commit", [True, False])
def test_who_comes_after_a_decision_that_may_have_been_taken_need_not_find_it(
    *, is_commit: bool
) -> None:
    for kind, wrong in ((Kind.OK, set[int]()), (Kind.UNKNOWN, set[int]()), (Kind.FAIL, {34})):
        tale = waiting().decided("t-1", kind, by=OPERATOR, is_commit=is_commit)
        assert broken(tale.kept("t-1", None)) == wrong


def test_a_successor_that_heard_the_answer_after_somebody_had_asked_says_nothing() -> None:
    facts: dict[str, Any] = {"process": "t", "function": "keep-txn", "transaction": "t-1"}
    tale = waiting()
    tale._event(Kind.INVOKE, **facts)
    tale.decided("t-1", by=OPERATOR)
    tale._event(Kind.OK, **facts, value=None)
    assert not broken(tale)


def test_what_is_found_open_after_its_decision_was_acknowledged_breaks_row_34() -> None:
    found = given("t-1")
    for kind, wrong in ((Kind.OK, {34}), (Kind.UNKNOWN, set[int]())):
        assert broken(waiting().decided("t-1", kind, by=OPERATOR).kept("t-1", found)) == wrong
    later = waiting().decided("t-1", by=OPERATOR).begun("t-2", at=2)
    assert broken(later.kept("t-2", found)) == {34}, "whatever its producer does by then"


# ── Who reads ─────────────────────────────────────────────────────────────────────────────────


def passed_by(tale: Tale) -> Tale:
    """Somebody else commits, and a reader is shown it behind what is prepared."""
    return tale.begun("u-1", at=1).decided("u-1").shown({1: "u.1-1"}, place=THERE)


def test_a_reader_that_goes_past_what_nobody_has_decided_breaks_row_34() -> None:
    tale = passed_by(waiting().did("assign", place=THERE, offset=1))
    assert broken(tale.decided("t-1", by=OPERATOR, is_commit=False)) == {34}


def test_a_reader_that_goes_past_it_after_somebody_has_asked_may() -> None:
    for kind in (Kind.OK, Kind.UNKNOWN):
        aborted = waiting().decided("t-1", kind, by=OPERATOR, is_commit=False)
        assert not broken(passed_by(aborted))
    refused = waiting().decided("t-1", Kind.FAIL, by=OPERATOR, is_commit=False)
    assert broken(passed_by(refused)) == {34}


def test_a_reader_before_it_and_one_of_everything_may_stand_where_they_are() -> None:
    before = Tale().begun("u-1").decided("u-1").begun("t-1", at=1).prepared("t-1")
    assert not broken(before.shown({0: "u.0-1"}))
    behind = waiting().begun("u-1", at=1).decided("u-1")
    assert not broken(behind.polled({0: "t.0-1", 1: "u.0-1"}))


def test_readers_are_not_stopped_by_what_was_never_prepared() -> None:
    tale = passed_by(Tale().begun("t-1").did("assign", place=THERE, offset=1))
    assert not broken(tale)


def test_what_is_prepared_is_not_shown_before_its_decision() -> None:
    assert broken(waiting().shown(A).decided("t-1", by=OPERATOR)) == {30}
    assert broken(waiting().shown(A).decided("t-1", by=OPERATOR, is_commit=False)) == {28}
    assert not broken(waiting().decided("t-1", by=OPERATOR).shown(A))


# ── What is there at the end ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Kind.UNKNOWN, Kind.FAIL])
def test_what_was_only_ever_to_be_committed_and_is_not_there_breaks_row_34(kind: Kind) -> None:
    tale = waiting().decided("t-1", kind, by=OPERATOR)
    assert broken(finished(tale, is_there=False)) == {34}


def test_what_was_to_be_committed_by_somebody_who_heard_nothing_may_be_there() -> None:
    tale = waiting().decided("t-1", Kind.UNKNOWN, by=OPERATOR).kept("t-1", None)
    assert not broken(finished(tale, is_there=True))


def test_what_was_to_be_aborted_too_may_be_gone() -> None:
    tale = waiting().decided("t-1", Kind.UNKNOWN, by=OPERATOR)
    assert not broken(finished(tale.decided("t-1", is_commit=False), is_there=False))


def test_all_or_nothing_holds_whoever_has_decided() -> None:
    for kind in (Kind.OK, Kind.UNKNOWN):
        tale = waiting().decided("t-1", kind, by=OPERATOR).whole(A, B)
        assert broken(ends(tale, A, NOTHING)) == {22}
    lost = finished(waiting().decided("t-1", by=OPERATOR), is_there=False)
    assert broken(lost) == {31}, "as any other that is committed"


def test_of_several_who_asked_the_one_who_was_told_counts() -> None:
    tale = waiting().decided("t-1", Kind.UNKNOWN, by=OPERATOR).decided("t-1", by="t")
    tale.decided("t-1", Kind.FAIL, by=OPERATOR)
    assert broken(finished(tale, is_there=False)) == {31}


# ── The end ───────────────────────────────────────────────────────────────────────────────────


def test_what_nobody_can_decide_at_the_end_breaks_row_33() -> None:
    for kind, wrong in ((Kind.OK, set[int]()), (Kind.FAIL, {33})):
        tale = waiting().kept("t-1", given("t-1"), kind, phase="final")
        tale.decided("t-1", by="final", phase="final")
        assert broken(finished(tale, is_there=True)) == wrong


def test_row_34_says_how_many_there_were_and_who_decided() -> None:
    tale = waiting().fault("kill", "inject", 1).decided("t-1", by=OPERATOR)
    tale.begun("t-2", at=2).fault("kill", "heal", 1).prepared("t-2")
    (told,) = (one.sentence for one in judge(tale.evidence) if one.row == 34)
    count = "2 were prepared, 1 of them while something was broken"
    assert told == f"{count}; decided: 1 by t.operator"


def test_without_anything_prepared_nothing_is_said_of_it() -> None:
    tale = Tale().begun("t-1").decided("t-1")
    assert 34 in rows(tale, Ruling.NOT_JUDGED)
    tale.fault(NOT_OFFERED, "note", what="two phases", left_out="tp1, tp2")
    (told,) = (one.sentence for one in judge(tale.evidence) if one.row == 34)
    assert told == "not offered: two phases; left out: tp1, tp2"
