"""Markers that come twice, or late: they end no transaction but their own."""

from __future__ import annotations

from tests.builders import OneLog, small_settings
from tests.unit.replication.log.transactions import end, write

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
