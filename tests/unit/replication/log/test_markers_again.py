"""Markers that come twice, or late: they end no transaction but their own."""

from __future__ import annotations

from ottla.proto.errors import ErrorCode
from tests.builders import OneLog, small_settings
from tests.unit.replication.log.transactions import COORDINATOR, admit, end, write

ANN = 7


def large() -> OneLog:
    return OneLog(small_settings(segment_bytes=100_000))


def test_a_marker_with_a_new_epoch_that_comes_again_ends_no_later_transaction() -> None:
    log = large().create()
    write(log, ANN, epoch=0)
    assert not end(log, ANN, is_commit=True, epoch=1, is_bumped=True).is_duplicate
    write(log, ANN, epoch=1)
    transactions = log.producers.transactions
    began = transactions.first_offset_of(ANN)
    assert end(log, ANN, is_commit=True, epoch=1, is_bumped=True).is_duplicate
    assert transactions.first_offset_of(ANN) == began
    assert not end(log, ANN, is_commit=True, epoch=2, is_bumped=True).is_duplicate
    assert transactions.first_offset_of(ANN) is None


def test_rule_64b_a_marker_that_says_nothing_new_makes_an_answer_void() -> None:
    log = large().create()
    transactions = log.producers.transactions
    end(log, ANN, is_commit=False)
    guard = transactions.guard(ANN, 0)
    assert end(log, ANN, is_commit=False).is_duplicate
    assert not transactions.admit(guard)
    admit(log, ANN)
    assert end(log, ANN, is_commit=False).is_duplicate
    assert not log.producers.may_write(ANN, 0)


def test_a_question_of_a_stranger_makes_no_other_void() -> None:
    transactions = large().create().producers.transactions
    guard, stranger = transactions.guard(ANN, 3), transactions.guard(ANN, 0)
    transactions.drop(stranger)
    assert transactions.admit(guard)
    assert not transactions.admit(guard)
    late = [transactions.guard(ANN, 3), transactions.guard(ANN, 3)]
    transactions.void(ANN)
    assert not any(transactions.admit(one) for one in late)


def test_the_answer_of_a_coordinator_that_was_replaced_is_void() -> None:
    log = large().create()
    producers, transactions = log.producers, log.producers.transactions
    end(log, ANN, is_commit=False)
    late = transactions.guard(ANN, 0)
    assert producers.admit(late, COORDINATOR - 1) is ErrorCode.NOT_COORDINATOR
    assert not producers.may_write(ANN, 0)
    assert not transactions.drop(late)
    assert producers.admit(transactions.guard(ANN, 0), COORDINATOR) is ErrorCode.NONE
    assert producers.may_write(ANN, 0)
