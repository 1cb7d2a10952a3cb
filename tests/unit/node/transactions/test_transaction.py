"""One transactional id, step by step: what Kafka answers, and what is written."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from ottla.node.transactions.records import decode_value, encode_value
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import (
    EPOCH_MAX,
    FOR_EVER_MS,
    NEW_CLIENT,
    OLD_CLIENT,
    Decision,
    Init,
    NeedsId,
    Refused,
    State,
    Told,
    WriteValue,
)
from ottla.proto.errors import ErrorCode, InvariantError

NOW = 1_000
P, Q = ("t", 0), ("t", 1)
WISH = Init(timeout_ms=100)
CONCURRENT = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
FENCED = Refused(ErrorCode.PRODUCER_FENCED)
OTHER_ID = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
WRONG_STATE = Refused(ErrorCode.INVALID_TXN_STATE)


def carried_out(one: Transaction, decision: Decision) -> Decision:
    """Write what is to be written, and return the answer."""
    if not isinstance(decision, WriteValue):
        return decision
    one.begin(decision.value)
    one.settle()
    return decision.answer


def held(epoch: int = 0) -> Transaction:
    """Return one that producer 7 holds."""
    one = Transaction.new("x", 7, 100, NOW)
    assert carried_out(one, one.init(WISH, NOW)) == Told(7, 0)
    one.value = replace(one.value, producer_epoch=epoch)
    return one


def ongoing(epoch: int = 0, version: int = NEW_CLIENT) -> Transaction:
    one = held(epoch)
    assert carried_out(one, one.add(7, epoch, frozenset({P}), NOW, version)) == Told()
    return one


def ended(one: Transaction, *, is_commit: bool, version: int = NEW_CLIENT) -> Decision:
    producer_id, epoch = one.value.holder
    told = one.end(producer_id, epoch, NOW, is_commit=is_commit, version=version, fresh=99)
    return carried_out(one, told)


def completed(one: Transaction) -> None:
    one.marked(set(one.unmarked))
    one.begin(one.complete(NOW))
    one.settle()


def reloaded(one: Transaction) -> Transaction:
    """Return it as the next coordinator finds it in the log."""
    return Transaction(one.transactional_id, decode_value(encode_value(one.value)))


def test_a_transaction_is_committed_and_its_producer_goes_on_with_a_new_epoch() -> None:
    one = ongoing()
    assert ended(one, is_commit=True) == Told(7, 1)
    assert (one.value.state, one.value.producer_epoch) == (State.PREPARE_COMMIT, 1)
    assert one.unmarked == {P}
    assert one.marked([P])
    completed(one)
    assert (one.value.state, one.value.holder) == (State.COMPLETE_COMMIT, (7, 1))
    assert carried_out(one, one.add(7, 1, frozenset({Q}), NOW, NEW_CLIENT)) == Told()
    assert one.value.partitions == {Q}


def test_an_old_client_keeps_its_epoch() -> None:
    one = ongoing(version=OLD_CLIENT)
    assert ended(one, is_commit=True, version=OLD_CLIENT) == Told()
    assert one.value.producer_epoch == 0
    assert ended(one, is_commit=True, version=OLD_CLIENT) == CONCURRENT
    assert ended(one, is_commit=False, version=OLD_CLIENT) == WRONG_STATE
    completed(one)
    assert ended(one, is_commit=True, version=OLD_CLIENT) == Told()
    assert ended(one, is_commit=False, version=OLD_CLIENT) == WRONG_STATE


def test_nothing_is_complete_before_every_partition_has_its_marker() -> None:
    one = ongoing()
    ended(one, is_commit=True)
    with pytest.raises(InvariantError):
        one.complete(NOW)


def test_what_is_decided_stays_decided() -> None:
    one = ongoing()
    ended(one, is_commit=True)
    one.marked([P])
    with pytest.raises(InvariantError):
        one.begin(replace(one.complete(NOW), state=State.COMPLETE_ABORT))


@pytest.mark.parametrize(
    ("state", "is_commit", "is_retry", "expected"),
    [
        # Kafka's table for transaction.version 2. EB: yes, with a new epoch.
        (State.EMPTY, False, True, FENCED),
        (State.EMPTY, False, False, Told(7, 2)),
        (State.EMPTY, True, True, FENCED),
        (State.EMPTY, True, False, WRONG_STATE),
        (State.COMPLETE_ABORT, False, True, Told(7, 1)),
        (State.COMPLETE_ABORT, False, False, Told(7, 2)),
        (State.COMPLETE_ABORT, True, True, WRONG_STATE),
        (State.COMPLETE_ABORT, True, False, WRONG_STATE),
        (State.COMPLETE_COMMIT, False, True, WRONG_STATE),
        (State.COMPLETE_COMMIT, False, False, Told(7, 2)),
        (State.COMPLETE_COMMIT, True, True, Told(7, 1)),
        (State.COMPLETE_COMMIT, True, False, WRONG_STATE),
    ],
)
def test_what_an_end_is_answered_when_nothing_is_ongoing(
    state: State, is_commit: bool, is_retry: bool, expected: Decision
) -> None:
    one = held(epoch=1)
    one.value = replace(one.value, state=state, client_version=NEW_CLIENT)
    epoch = 0 if is_retry else 1
    told = one.end(7, epoch, NOW, is_commit=is_commit, version=NEW_CLIENT)
    assert carried_out(one, told) == expected


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_end_of_the_next_one_waits_for_the_markers_of_the_one_before(is_commit: bool) -> None:
    one = ongoing()
    ended(one, is_commit=True)
    # Who has the new epoch was told so by the coordinator, and is no stranger.
    assert one.end(7, 1, NOW, is_commit=is_commit, version=NEW_CLIENT) == CONCURRENT
    assert one.end(7, 2, NOW, is_commit=is_commit, version=NEW_CLIENT) == FENCED
    completed(one)
    assert ended(one, is_commit=False) == Told(7, 2)


def test_an_end_that_is_sent_again_hits_no_other_transaction() -> None:
    one = ongoing()
    ended(one, is_commit=True)
    completed(one)
    carried_out(one, one.add(7, 1, frozenset({Q}), NOW, NEW_CLIENT))
    # The abort of the transaction before, delayed (KAFKA-17754).
    assert one.end(7, 0, NOW, is_commit=False, version=NEW_CLIENT) == FENCED
    assert one.value.state is State.ONGOING


def test_a_successor_aborts_what_is_open_and_fences_who_had_the_id() -> None:
    one = ongoing()
    assert carried_out(one, one.init(WISH, NOW)) == CONCURRENT
    assert (one.value.state, one.value.producer_epoch) == (State.PREPARE_ABORT, 2)
    assert one.init(WISH, NOW) == CONCURRENT
    for is_commit in (True, False):
        assert one.end(7, 0, NOW, is_commit=is_commit, version=NEW_CLIENT) == FENCED
        assert one.end(7, 0, NOW, is_commit=is_commit) == FENCED
    completed(one)
    assert carried_out(one, one.init(WISH, NOW)) == Told(7, 3)
    assert one.add(7, 0, frozenset({P}), NOW, NEW_CLIENT) == FENCED
    assert one.end(7, 0, NOW, is_commit=True) == FENCED


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_t2_who_was_fenced_is_not_given_what_an_old_client_holds(is_reloaded: bool) -> None:
    # 1. Z, a new client, has ended a transaction, and idles with (7, 1).
    one = ongoing()
    assert ended(one, is_commit=True) == Told(7, 1)
    completed(one)
    # 2. S, an old one, takes the id over, with (7, 2), and ends a transaction: its epoch stays.
    assert carried_out(one, one.init(WISH, NOW)) == Told(7, 2)
    assert carried_out(one, one.add(7, 2, frozenset({P}), NOW, OLD_CLIENT)) == Told()
    assert ended(one, is_commit=False, version=OLD_CLIENT) == Told()
    late = partial(one.end, 7, 1, NOW, version=NEW_CLIENT)
    assert late(is_commit=False) == FENCED
    completed(one)
    one = reloaded(one) if is_reloaded else one
    # 3. Z comes back with the epoch before that of S, as its own retry would.
    late = partial(one.end, 7, 1, NOW, version=NEW_CLIENT)
    assert (late(is_commit=False), late(is_commit=True)) == (FENCED, FENCED)
    assert carried_out(one, one.add(7, 2, frozenset({Q}), NOW, OLD_CLIENT)) == Told()


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_that_is_sent_again_is_known_by_the_next_coordinator(is_commit: bool) -> None:
    one = ongoing()
    assert ended(one, is_commit=is_commit) == Told(7, 1)
    again = partial(Transaction.end, producer_id=7, epoch=0, now_ms=NOW, version=NEW_CLIENT)
    assert again(reloaded(one), is_commit=is_commit) == CONCURRENT
    completed(one)
    assert again(reloaded(one), is_commit=is_commit) == Told(7, 1)
    assert again(reloaded(one), is_commit=not is_commit) == WRONG_STATE


def test_a_transaction_is_aborted_when_its_time_is_up_and_a_commit_comes_too_late() -> None:
    one = ongoing()
    assert one.time_out(NOW + 99) is None
    late = one.time_out(NOW + 100)
    assert late is not None
    carried_out(one, late)
    assert one.end(7, 0, NOW, is_commit=True, version=NEW_CLIENT) == FENCED
    assert one.time_out(NOW + 100) is None
    completed(one)
    assert one.end(7, 0, NOW, is_commit=True, version=NEW_CLIENT) == FENCED


def test_strangers_and_unknown_partitions_are_refused() -> None:
    one = ongoing()
    assert one.end(8, 0, NOW, is_commit=True) == OTHER_ID
    assert one.add(8, 0, frozenset({P}), NOW, NEW_CLIENT) == OTHER_ID
    assert one.verify(8, 0, [P]) == OTHER_ID
    assert one.verify(7, 1, [P]) == FENCED
    told = one.verify(7, 0, [P, Q])
    assert told == {P: ErrorCode.NONE, Q: ErrorCode.TRANSACTION_ABORTABLE}
    new = Transaction.new("y", 7, 100, NOW)
    assert new.end(7, -1, NOW, is_commit=True) == OTHER_ID


def test_while_something_is_written_nobody_begins_anything() -> None:
    one = ongoing()
    decision = one.add(7, 0, frozenset({Q}), NOW, NEW_CLIENT)
    assert isinstance(decision, WriteValue)
    one.begin(decision.value)
    assert one.add(7, 0, frozenset({P}), NOW, NEW_CLIENT) == CONCURRENT
    assert one.end(7, 0, NOW, is_commit=True) == CONCURRENT
    assert one.init(WISH, NOW) == CONCURRENT
    assert one.time_out(NOW + 1_000) is None
    one.give_up()
    assert one.value.partitions == {P}


def test_who_goes_on_after_an_error_says_what_it_was() -> None:
    one = held(epoch=3)
    wish = replace(WISH, expected=(7, 3))
    assert carried_out(one, one.init(wish, NOW)) == Told(7, 4)
    # Asked again, since the answer was lost: the same answer.
    assert carried_out(one, one.init(wish, NOW)) == Told(7, 4)
    assert one.init(replace(WISH, expected=(7, 2)), NOW) == FENCED
    assert one.init(replace(WISH, expected=(8, 4)), NOW) == FENCED
    assert carried_out(one, one.init(WISH, NOW)) == Told(7, 5)
    assert one.init(wish, NOW) == FENCED


def test_an_exhausted_id_is_exchanged_for_a_new_one() -> None:
    one = held(EPOCH_MAX - 1)
    assert one.init(WISH, NOW) == NeedsId()
    wish = replace(WISH, expected=(7, EPOCH_MAX - 1))
    assert carried_out(one, one.init(wish, NOW, fresh=99)) == Told(99, 0)
    assert carried_out(one, one.init(wish, NOW)) == Told(99, 0)


def test_a_commit_that_exhausts_the_epochs_brings_a_new_id() -> None:
    one = ongoing(EPOCH_MAX - 1)
    assert one.end(7, EPOCH_MAX - 1, NOW, is_commit=True, version=NEW_CLIENT) == NeedsId()
    assert ended(one, is_commit=True) == Told(99, 0)
    assert (one.value.producer_id, one.value.producer_epoch) == (7, EPOCH_MAX)
    retry = one.end(7, EPOCH_MAX - 1, NOW, is_commit=True, version=NEW_CLIENT)
    assert retry == CONCURRENT
    completed(one)
    assert one.value.holder == (99, 0)
    retry = one.end(7, EPOCH_MAX - 1, NOW, is_commit=True, version=NEW_CLIENT)
    assert retry == Told(99, 0)


def test_fencing_works_with_the_last_epoch() -> None:
    one = ongoing(EPOCH_MAX - 1)
    carried_out(one, one.init(WISH, NOW))
    assert one.value.producer_epoch == EPOCH_MAX
    late = partial(one.end, 7, EPOCH_MAX - 1, NOW, is_commit=False, version=NEW_CLIENT)
    assert late() == FENCED
    completed(one)
    assert late() == FENCED
    assert one.init(WISH, NOW) == NeedsId()
    assert carried_out(one, one.init(WISH, NOW, fresh=99)) == Told(99, 0)


def test_an_id_that_nobody_used_for_long_is_forgotten_but_no_open_transaction() -> None:
    one = held()
    assert not one.is_expired(NOW + 9, 10)
    assert one.is_expired(NOW + 10, 10)
    assert not ongoing().is_expired(NOW + 10_000, 10)


# ── Two phases ────────────────────────────────────────────────────────────────────────────────

PATIENT = Init(timeout_ms=FOR_EVER_MS, keeps_prepared=True)


def prepared() -> Transaction:
    one = ongoing()
    one.value = replace(one.value, timeout_ms=FOR_EVER_MS)
    return one


def test_a_prepared_transaction_outlives_time_and_its_producer() -> None:
    one = prepared()
    assert one.time_out(NOW + 10**9) is None
    assert carried_out(one, one.init(PATIENT, NOW)) == Told(7, 1, (7, 0))
    assert carried_out(one, one.init(PATIENT, NOW)) == Told(7, 2, (7, 0))
    assert one.value.partitions == {P}
    assert one.time_out(NOW + 10**9) is None


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_successor_decides_what_was_prepared(is_commit: bool) -> None:
    one = prepared()
    carried_out(one, one.init(PATIENT, NOW))
    assert one.end(7, 0, NOW, is_commit=True, version=NEW_CLIENT) == FENCED
    assert one.add(7, 0, frozenset({Q}), NOW, NEW_CLIENT) == FENCED
    assert one.add(7, 1, frozenset({Q}), NOW, NEW_CLIENT) == WRONG_STATE
    assert ended(one, is_commit=is_commit) == Told(7, 2)
    retry = one.end(7, 1, NOW, is_commit=is_commit, version=NEW_CLIENT)
    assert retry == CONCURRENT
    completed(one)
    assert one.value.holder == (7, 2)
    assert one.end(7, 1, NOW, is_commit=is_commit, version=NEW_CLIENT) == Told(7, 2)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_t2_who_has_prepared_is_not_given_what_an_old_client_holds_that_decided_it(
    is_reloaded: bool,
) -> None:
    one = prepared()
    assert carried_out(one, one.init(PATIENT, NOW)) == Told(7, 1, (7, 0))
    # The successor speaks the old dialect, in which its epoch stays.
    assert ended(one, is_commit=True, version=OLD_CLIENT) == Told()
    for is_complete in (False, True):
        if is_complete:
            completed(one)
        now = reloaded(one) if is_reloaded else one
        for version in (OLD_CLIENT, NEW_CLIENT):
            assert now.end(7, 0, NOW, is_commit=True, version=version) == FENCED
    assert one.value.holder == (7, 1)


def test_who_decided_what_was_kept_waits_for_its_markers_and_goes_on() -> None:
    one = ongoing()
    one.value = replace(one.value, timeout_ms=FOR_EVER_MS)
    wish = Init(timeout_ms=FOR_EVER_MS, keeps_prepared=True)
    carried_out(one, one.init(wish, NOW))
    assert isinstance(told := ended(one, is_commit=True), Told)
    assert told == Told(*one.value.holder)
    producer_id, epoch = one.value.holder
    # The markers have the epoch before: whoever goes on is no stranger meanwhile.
    assert one.add(producer_id, epoch, frozenset({Q}), NOW, NEW_CLIENT) == CONCURRENT
    assert one.verify(producer_id, epoch, [Q]) == CONCURRENT
    assert one.add(producer_id, epoch - 1, frozenset({Q}), NOW, NEW_CLIENT) == FENCED
    completed(one)
    added = one.add(producer_id, epoch, frozenset({Q}), NOW, NEW_CLIENT)
    assert carried_out(one, added) == Told()


def test_a_successor_that_does_not_keep_it_aborts_it() -> None:
    one = prepared()
    carried_out(one, one.init(PATIENT, NOW))
    assert carried_out(one, one.init(WISH, NOW)) == CONCURRENT
    assert one.end(7, 1, NOW, is_commit=True, version=NEW_CLIENT) == FENCED
    completed(one)
    assert carried_out(one, one.init(WISH, NOW)) == Told(7, 4)


def taken_over() -> Transaction:
    """Return one of producer (7, 0) that (7, 1) has taken over, and that waits for ever."""
    one = ongoing(epoch=1)
    one.value = replace(one.value, timeout_ms=FOR_EVER_MS, last_producer_epoch=0)
    return one


@pytest.mark.parametrize("keeps", [False, True])
def test_t2_who_was_fenced_ends_nothing_and_takes_nothing_over(keeps: bool) -> None:
    one = taken_over()
    timeout_ms = FOR_EVER_MS if keeps else 100
    late = Init(timeout_ms=timeout_ms, expected=(7, 0), keeps_prepared=keeps)
    assert one.init(late, NOW) == FENCED
    assert ended(one, is_commit=True) == Told(7, 2)


def test_t2_a_request_that_comes_late_does_not_end_the_next_transaction() -> None:
    one = held()
    asked = Init(timeout_ms=100, expected=(7, 0))
    assert carried_out(one, one.init(asked, NOW)) == Told(7, 1)
    assert carried_out(one, one.add(7, 1, frozenset({P}), NOW, NEW_CLIENT)) == Told()
    assert one.init(asked, NOW) == FENCED
    assert one.value.state is State.ONGOING


def test_its_own_producer_may_end_it_by_asking_for_the_id() -> None:
    one = ongoing()
    assert carried_out(one, one.init(Init(timeout_ms=100, expected=(7, 0)), NOW)) == CONCURRENT
    assert one.value.state is State.PREPARE_ABORT


def test_who_names_the_transaction_itself_may_keep_it_whoever_holds_it_now() -> None:
    one = taken_over()
    assert carried_out(one, one.init(PATIENT, NOW)) == Told(7, 2, (7, 1))
    named = replace(PATIENT, expected=(7, 1))
    assert carried_out(one, one.init(named, NOW)) == Told(7, 3, (7, 1))
    # It has to be the one that is open, and nobody ends it by that name.
    assert one.init(replace(PATIENT, expected=(7, 0)), NOW) == FENCED
    assert one.init(Init(timeout_ms=100, expected=(7, 1)), NOW) == FENCED
    assert one.init(Init(timeout_ms=100, expected=(7, 2)), NOW) == FENCED


def test_keeping_what_is_not_there_is_beginning_anew() -> None:
    one = held()
    assert carried_out(one, one.init(PATIENT, NOW)) == Told(7, 1)


def test_a_kept_transaction_whose_epochs_run_out_goes_on_under_a_new_id() -> None:
    one = ongoing(EPOCH_MAX - 2)
    assert one.init(PATIENT, NOW) == NeedsId()
    told = carried_out(one, one.init(PATIENT, NOW, fresh=99))
    assert told == Told(99, 0, (7, EPOCH_MAX - 2))
    assert ended(one, is_commit=True) == Told(99, 1)
    completed(one)
    assert one.value.holder == (99, 1)
