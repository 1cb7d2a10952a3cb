"""Rows 22 and 28 to 33: transactions that are torn, read too early, lost; and near misses.

A transaction here writes one record to each of two partitions, at offset 0 unless told otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.chaos.checkers.circles import circles_in
from ottla.chaos.checkers.judge import doubts, outcome
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.history import Kind
from tests.unit.chaos.story import HERE, Log, Story, broken, counted, rows
from tests.unit.chaos.tale import THERE, Tale, ends

ROWS = {22, 28, 29, 30, 31, 32, 33}


def one(kind: Kind = Kind.OK) -> Tale:
    """A transaction whose records are in the log."""
    return Tale().begun("t-1").decided("t-1", kind).whole({0: "t.0-1"}, {0: "t.1-1"})


A, B = {0: "t.0-1"}, {0: "t.1-1"}
NOTHING: Log = {}


# ── 22: torn ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Kind.OK, Kind.UNKNOWN])
def test_a_part_of_a_transaction_at_the_end_breaks_row_22(kind: Kind) -> None:
    assert broken(ends(one(kind), A, NOTHING)) == {22}
    assert not broken(ends(one(kind), A, B))


def test_a_transaction_of_unknown_outcome_may_be_there_or_not() -> None:
    assert not broken(ends(one(Kind.UNKNOWN), A, B))
    assert not broken(ends(one(Kind.UNKNOWN), NOTHING, NOTHING))


def passed(kind: Kind, *, is_first_shown: bool) -> Tale:
    """A reader that is shown t-2 in both partitions, and of t-1 perhaps one record."""
    tale = Tale().begun("t-1").decided("t-1", kind).begun("t-2", at=2).decided("t-2")
    for place in (HERE, THERE):
        tale.did("assign", place=place, offset=0)
    tale.shown({0: "t.0-1", 2: "t.0-2"} if is_first_shown else {2: "t.0-2"})
    tale.shown({2: "t.1-2"}, place=THERE)
    return tale


def test_a_reader_that_goes_past_a_part_of_a_transaction_breaks_row_22() -> None:
    assert 22 in broken(passed(Kind.UNKNOWN, is_first_shown=True))
    assert not broken(passed(Kind.UNKNOWN, is_first_shown=False)), "it was aborted, for all we know"


def test_a_reader_that_has_not_come_so_far_yet_has_seen_nothing_torn() -> None:
    tale = Tale().begun("t-1").decided("t-1").did("assign", place=HERE, offset=0)
    tale.did("assign", place=THERE, offset=0)
    assert not broken(tale.shown({0: "t.0-1"}))


def test_a_reader_that_begins_behind_a_record_does_not_miss_it() -> None:
    tale = Tale().begun("t-1").decided("t-1").begun("t-2", at=2).decided("t-2")
    tale.did("assign", place=THERE, offset=1)
    assert broken(tale.shown({2: "t.1-2"}, place=THERE)) == {3}, "nobody at all has read it"
    assert not broken(tale.shown(B, place=THERE, by="s"))


# ── 28: G1a ───────────────────────────────────────────────────────────────────────────────────


def test_a_record_of_an_aborted_transaction_breaks_row_28() -> None:
    aborted = Tale().begun("t-1").did("abort-txn", by="t", transaction="t-1")
    assert broken(aborted.shown(A)) == {28}, "it was never asked to be committed"
    assert broken(one(Kind.FAIL).shown(A)) == {28}, "the client was told that it is not"
    assert 28 in broken(ends(one(Kind.FAIL), A, B))
    assert not broken(ends(one(Kind.FAIL), NOTHING, NOTHING))
    assert not broken(one(Kind.FAIL).polled(A)), "who reads everything is shown it"


# ── 29: G1c ───────────────────────────────────────────────────────────────────────────────────


def two_that_read(*, first: Log, second: Log) -> Tale:
    """Two transactions at a time, and what each is shown in it after both were to be committed."""
    tale = Tale().begun("t-1").begun("u-1", at=1)
    for name in ("t-1", "u-1"):
        tale.decided(name)
    tale.shown(first, by="t", transaction="t-1")
    tale.shown(second, by="u", transaction="u-1")
    return tale.shown({0: "t.0-1", 1: "u.0-1"})


def test_transactions_that_read_from_each_other_break_row_29() -> None:
    circle = two_that_read(first={1: "u.0-1"}, second={0: "t.0-1"})
    assert broken(circle) == {29}
    assert not broken(two_that_read(first=NOTHING, second={0: "t.0-1"}))


def test_a_circle_that_only_the_order_of_writes_closes_is_counted() -> None:
    tale = two_that_read(first={1: "u.0-1"}, second=NOTHING)
    assert not broken(tale)
    assert counted(tale) == {29}, "u-1 was read by t-1, which wrote before it"


def test_circles_are_found_whatever_else_is_there() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str](), "f": {"f"}}
    assert circles_in(graph) == [["a", "b", "c"]]
    chain = {str(at): {str(at + 1)} for at in range(5_000)}
    assert circles_in(chain) == []
    assert len(circles_in({**chain, "5000": {"0"}})[0]) == 5_001


# ── 30: too early ─────────────────────────────────────────────────────────────────────────────


def test_what_is_shown_before_it_was_to_be_committed_breaks_row_30() -> None:
    assert broken(Tale().begun("t-1").shown(A).decided("t-1")) == {30}
    assert not broken(Tale().begun("t-1").decided("t-1").shown(A))
    assert not broken(Tale().begun("t-1").polled(A).decided("t-1")), "who reads everything may"


def test_a_transaction_that_is_shown_its_own_record_breaks_row_30() -> None:
    own = Tale().begun("t-1").shown(A, by="t", transaction="t-1").decided("t-1")
    assert broken(own) == {30}
    other = Tale().begun("t-1").decided("t-1").begun("t-2", at=2)
    assert not broken(other.shown(A, by="t", transaction="t-2").decided("t-2"))


def test_who_is_shown_it_while_the_answer_is_on_its_way_is_not_too_early() -> None:
    tale = Tale().begun("t-1")
    facts: dict[str, Any] = {"process": "t", "function": "commit-txn", "transaction": "t-1"}
    tale._event(Kind.INVOKE, **facts)
    tale.shown(A)
    tale._event(Kind.OK, **facts)
    assert not broken(tale)


# ── 31: lost ──────────────────────────────────────────────────────────────────────────────────


def test_a_committed_transaction_that_is_not_there_breaks_row_31() -> None:
    assert broken(ends(one(), NOTHING, NOTHING)) == {31}
    assert not broken(ends(one(), A, B))
    assert 31 in broken(passed(Kind.OK, is_first_shown=False)), "a reader went past it"


def test_a_committed_record_that_is_nowhere_in_the_log_breaks_row_31() -> None:
    tale = Tale().did("begin-txn", by="t", transaction="t-1")
    tale.tried("t.0-1", transaction="t-1", is_idempotent=True).decided("t-1")
    assert broken(ends(tale.whole(NOTHING, NOTHING), NOTHING, NOTHING)) == {31}


def test_what_lies_behind_an_open_transaction_is_not_lost_yet() -> None:
    tale = one().stands(NOTHING, end=0).stands(NOTHING, place=THERE, end=0)
    assert broken(tale) == {33}


# ── 32: offsets ───────────────────────────────────────────────────────────────────────────────


def reading(*, first: Kind, found: int, final: int) -> Tale:
    """t-1 reads from 0 to 5; t-2 finds its group somewhere, and reads to 9."""
    tale = Tale().begun("t-1", value="g", offsets=((HERE, 0),))
    tale.decided("t-1", first, value="g", offsets=((HERE, 5),))
    tale.begun("t-2", at=2, value="g", offsets=((HERE, found),))
    tale.decided("t-2", value="g", offsets=((HERE, 9),))
    tale.did("committed", by="final", phase="final", value="g", offsets=((HERE, final),))
    is_there = first is Kind.OK
    here = {0: "t.0-1", 2: "t.0-2"} if is_there else {2: "t.0-2"}
    there = {0: "t.1-1", 2: "t.1-2"} if is_there else {2: "t.1-2"}
    both = tale.whole({0: "t.0-1", 1: "x", 2: "t.0-2"}, {0: "t.1-1", 1: "x", 2: "t.1-2"})
    return ends(both, {**here}, {**there})


def of_32(tale: Tale) -> set[int]:
    return broken(tale) & {32}


def test_offsets_that_are_lost_while_the_records_are_there_break_row_32() -> None:
    assert of_32(reading(first=Kind.OK, found=0, final=9)) == {32}
    assert not of_32(reading(first=Kind.OK, found=5, final=9))


def test_offsets_that_count_while_the_records_are_not_there_break_row_32() -> None:
    for kind in (Kind.FAIL, Kind.UNKNOWN):
        assert of_32(reading(first=kind, found=5, final=9)) == {32}
        assert not of_32(reading(first=kind, found=0, final=9))


def test_a_group_that_stands_elsewhere_at_the_end_breaks_row_32() -> None:
    assert of_32(reading(first=Kind.OK, found=5, final=5)) == {32}
    assert not of_32(reading(first=Kind.OK, found=5, final=9))


# ── 33: standstill ────────────────────────────────────────────────────────────────────────────


def test_a_reader_that_waits_for_ever_breaks_row_33() -> None:
    waits = one().stands(A, end=2).stands(NOTHING, place=THERE, end=0)
    assert broken(waits) == {33}
    assert not broken(one().stands(A, end=2).stands(B, place=THERE, end=2))


def test_a_marker_that_came_behind_what_was_read_is_no_standstill() -> None:
    """As it does when an id is held anew whose transaction has no record here."""
    assert not broken(one().stands(A, end=1).stands(B, place=THERE, end=1))


def test_an_id_that_nobody_can_hold_any_more_breaks_row_33() -> None:
    for kind, wrong in ((Kind.FAIL, {33}), (Kind.OK, set[int]())):
        tale = ends(one(), A, B)
        facts: dict[str, Any] = {"process": "final", "function": "hold", "value": "t"}
        for how in (Kind.INVOKE, kind):
            tale._event(how, phase="final", **facts)
        assert broken(tale) == wrong


# ── What is not judged, and what other rows make of transactions ──────────────────────────────


def test_without_transactions_nothing_is_said_of_them() -> None:
    assert rows(Story().sent("w-1", 0), Ruling.NOT_JUDGED) >= ROWS


def test_without_a_last_read_of_what_is_committed_some_rows_are_not_judged() -> None:
    assert rows(one(), Ruling.NOT_JUDGED) >= {31, 32, 33}
    assert rows(one(), Ruling.HELD) >= {22, 28, 29, 30}


LIBRARY, OWN = "librdkafka producer of transactions", "producer of transactions with our own client"


def agreed(tale: Tale, **facts: Any) -> Tale:
    """Say that `t` and `u` were to write in transactions, each with another kind of client."""
    agreed_on = {"transactors": {"t": LIBRARY, "u": OWN}, "committed_min": 1, **facts}
    tale.evidence = replace(tale.evidence, facts=replace(tale.evidence.facts, **agreed_on))
    return tale


def doubts_about(tale: Tale) -> list[str]:
    verdicts = tale.verdicts()
    told = outcome(tale.evidence, verdicts)
    found = doubts(tale.evidence, verdicts)
    assert told is (Outcome.INCONCLUSIVE if found else Outcome.PASSED), broken(tale)
    return found


def both_commit() -> Tale:
    tale = Tale().begun("t-1").decided("t-1").begun("u-1", 1).decided("u-1")
    tale.whole({0: "t.0-1", 1: "u.0-1"}, {0: "t.1-1", 1: "u.1-1"})
    return ends(tale, {0: "t.0-1", 1: "u.0-1"}, {0: "t.1-1", 1: "u.1-1"})


def test_a_run_whose_transactions_never_happened_is_inconclusive() -> None:
    tale = Tale().sent("w-1", 0).read({0: "w-1"})
    assert not doubts_about(tale), "none were agreed on"
    told = doubts_about(agreed(tale))
    assert {row for row in ROWS if any(f"row {row} " in one for one in told)} == ROWS - {32}
    assert f"of {LIBRARY}, 0 transactions were committed, not 1" in told
    assert f"of {OWN}, 0 transactions were committed, not 1" in told


def test_a_kind_of_client_that_commits_too_little_makes_a_run_inconclusive() -> None:
    assert not doubts_about(agreed(both_commit()))
    assert len(doubts_about(agreed(both_commit(), committed_min=2))) == 2
    # Of whom nobody knows that it is committed, and who was refused, has shown nothing.
    for kind in (Kind.UNKNOWN, Kind.FAIL):
        tale = Tale().begun("t-1").decided("t-1").begun("u-1", 1).decided("u-1", kind)
        tale.whole({0: "t.0-1", 1: "u.0-1"}, {0: "t.1-1", 1: "u.1-1"})
        (doubt,) = doubts_about(agreed(ends(tale, A, B)))
        assert doubt == f"of {OWN}, 0 transactions were committed, not 1"


def test_offsets_in_transactions_that_were_agreed_on_must_have_been_judged() -> None:
    (doubt,) = doubts_about(agreed(both_commit(), transactional_groups=("g",)))
    assert doubt.startswith("row 32 ")


def test_every_row_is_judged_without_a_trace() -> None:
    assert rows(reading(first=Kind.OK, found=5, final=9), Ruling.HELD) >= ROWS


def test_a_reader_of_committed_records_may_pass_over_what_is_aborted_and_nothing_else() -> None:
    for kind, wrong in ((Kind.FAIL, set[int]()), (Kind.OK, {3, 9, 31})):
        assert broken(passed(kind, is_first_shown=False)) == wrong


def test_a_record_of_an_aborted_transaction_stays_in_the_log() -> None:
    tale = Tale().begun("t-1").did("abort-txn", by="t", transaction="t-1")
    assert broken(tale.whole(NOTHING, B)) == {4}
    tale = Tale().begun("t-1").did("abort-txn", by="t", transaction="t-1")
    assert not broken(tale.whole(A, B))
