"""What a producer of transactions writes down: what it was told, and each thing once."""

from __future__ import annotations

import io

import pytest

from ottla.chaos.history import Event, Kind, Place, from_lines, operations
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.runner.transaction_notes import TransactionNotes
from ottla.chaos.workload import Client, ProcessPlan

A, B = Place("a", 0), Place("a", 1)
PLAN = ProcessPlan(name="t", client=Client.OWN_TRANSACTOR, seed="1", places=(A, B), group="g")


@pytest.fixture
def pen() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def notes(pen: io.StringIO) -> TransactionNotes:
    return TransactionNotes(PLAN, Recorder(pen))


def events(pen: io.StringIO) -> list[Event]:
    return list(from_lines(pen.getvalue().splitlines()))


def test_a_send_of_which_nothing_is_told_is_unknown_and_later_news_do_not_count(
    notes: TransactionNotes, pen: io.StringIO
) -> None:
    notes.begin()
    value, late = notes.send(0, A)
    assert value == "t.0-1"
    assert not notes.is_all_sent
    notes.begin()
    _, index = notes.send(0, B)
    notes.sent(0, late, Kind.OK, offset=3)
    notes.sent(0, index, Kind.OK, offset=4)
    found = [(one.begin.value, one.kind) for one in operations(events(pen)) if one.begin.value]
    assert [one for one in found if one[0] != "g"] == [
        ("t.0-1", Kind.UNKNOWN),
        ("t.0-2", Kind.OK),
    ]
    assert notes.is_all_sent


def test_a_transaction_with_a_send_that_is_not_acknowledged_is_not_whole(
    notes: TransactionNotes,
) -> None:
    for kind, more, is_whole in (
        (Kind.OK, {"offset": 1}, True),
        (Kind.UNKNOWN, {"is_kept": True}, True),
        (Kind.UNKNOWN, {}, False),
        (Kind.FAIL, {}, False),
    ):
        notes.begin()
        _, index = notes.send(0, A)
        notes.sent(0, index, kind, **more)
        assert notes.is_all_sent is is_whole


def test_it_reads_on_where_it_has_committed_and_else_where_its_group_stands(
    notes: TransactionNotes, pen: io.StringIO
) -> None:
    notes.found(notes.look(), {A: -1, B: 7})
    assert notes.positions == {A: 0, B: 7}
    notes.begin()
    notes.reached[A] = 5
    notes.end(notes.begin_end(commit=True), Kind.OK)
    notes.committed()
    assert notes.positions == {A: 5, B: 7}
    notes.begin()
    notes.reached[A] = 9
    notes.end(notes.begin_end(commit=False), Kind.OK)
    assert notes.positions == {A: 5, B: 7}
    told = {(one.transaction, one.function): one.offsets for one in events(pen) if one.transaction}
    assert told["t-1", "begin-txn"] == ((A, 0), (B, 7))
    assert told["t-1", "commit-txn"] == ((A, 5), (B, 7))
    assert told["t-2", "begin-txn"] == ((A, 5), (B, 7))
    assert told["t-2", "abort-txn"] == ()
