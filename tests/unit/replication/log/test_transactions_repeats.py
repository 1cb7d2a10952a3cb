"""Batches of transactions that come again, and sequences that do."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode
from tests.builders import records_of
from tests.unit.replication.log.test_transactions import ANN, code_of, large
from tests.unit.replication.log.transactions import admit, end, write


def test_a_batch_sent_again_in_its_transaction_is_where_it_was() -> None:
    log = large().create()
    first = write(log, ANN)
    write(log, ANN)
    again = write(log, ANN, sequence=0)
    assert again.is_duplicate
    assert again.first_offset == first.first_offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_sequence_of_a_transaction_that_has_ended_is_no_repeat_in_the_next(
    is_commit: bool,
) -> None:
    """Found by `ottla chaos run C46O --seed 2`.

    librdkafka takes a batch that was on its way when it aborted for never sent, and gives its
    sequence to the next transaction. As a repeat that record would be acknowledged, and lost.
    """
    log = large().create()
    write(log, ANN, b"on its way")
    end(log, ANN, is_commit=is_commit)
    for begins in (False, True):
        if begins:
            admit(log, ANN)
        refused = code_of(lambda: write(log, ANN, b"another", sequence=0))
        assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    write(log, ANN, b"goes on", sequence=1)
    refused = code_of(lambda: write(log, ANN, b"another", sequence=0))
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [one.value for one in records_of(log)][-1] == b"goes on"
