"""Markers that come twice, or late: they end no transaction but their own."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.proto.errors import ErrorCode, RequestError
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.log import Log
from ottla.replication.settings import LogSettings
from tests.builders import NOW_MS, OneLog, batches_of, headers_of, small_settings
from tests.unit.replication.inspect.shelf import Shelf
from tests.unit.replication.log.transactions import COORDINATOR, aborted, admit, end, write

ANN = 7
FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED


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


# -- coordinators that were replaced -----------------------------------------------------------

A, B = 3, 4


def fenced(log: Log, **how: Any) -> ErrorCode:
    with pytest.raises(RequestError) as refused:
        end(log, ANN, **how)
    return refused.value.code


def test_a_late_marker_of_a_coordinator_that_was_replaced_ends_no_later_transaction() -> None:
    log = large().create()
    transactions = log.producers.transactions
    # 1. An old client's transaction has this partition, and writes nothing here. A ends it, and
    #    does not hear that its marker is written.
    assert not end(log, ANN, is_commit=False, coordinator=A).is_duplicate
    # 2. A stands still. B coordinates, ends the same transaction, and calls it complete.
    assert not end(log, ANN, is_commit=False, coordinator=B).is_duplicate
    assert end(log, ANN, is_commit=False, coordinator=B).is_duplicate
    # 3. The next transaction, with the same epoch, writes here.
    began = write(log, ANN).first_offset
    # 4. A goes on, and sends its marker again.
    assert fenced(log, is_commit=False, coordinator=A) is FENCED
    assert transactions.first_offset_of(ANN) == began
    # 5. The next transaction is what its producer says.
    end(log, ANN, is_commit=True, coordinator=B)
    assert not aborted(log)


def test_a_marker_that_is_here_twice_harms_no_reader_follower_restart_or_cleaning() -> None:
    settings = LogSettings(
        segment_bytes=200, compact=True, min_cleanable_dirty_ratio=0.0, delete_retention_ms=1
    )
    shelf = Shelf(settings)
    log = shelf.create()
    end(log, ANN, is_commit=False, coordinator=A)
    end(log, ANN, is_commit=False, coordinator=B)
    kept = write(log, ANN, (b"k", b"kept")).first_offset
    end(log, ANN, is_commit=True, coordinator=B)
    write(log, ANN, (b"k", b"gone"))
    end(log, ANN, is_commit=False, coordinator=B)
    assert len(aborted(log)) == 1
    follower = OneLog(settings).create()
    follower.append_as_follower(b"".join(batches_of(log)), now_ms=NOW_MS, gaps_allowed=False)
    assert aborted(follower) == aborted(log)
    for one in (log, follower):
        assert fenced(one, is_commit=False, coordinator=A) is FENCED
    log.advance_high_watermark(log.end_offset)
    log.checkpoint()
    log.close()
    for _ in range(2):
        assert not shelf.problems()
        log = shelf.open()
        assert fenced(log, is_commit=False, coordinator=A) is FENCED
        assert log.last_stable_offset == log.end_offset
        assert kept in [header.base_offset for header in headers_of(log)]
        if log.active.size:
            log.roll()
        clean(log, now_ms=NOW_MS + 10)
        log.checkpoint()
        log.close()
