"""What may be done in a transaction now, and what each answer means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.clients.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionFailedError,
    TransactionStateError,
    TransactionUnknownError,
)
from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.batch import Batch, State
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.producer.sender import Answer, Sender, SenderSettings
from ottla.clients.producer.transactions import Phase, Transactions
from ottla.clients.producer.verdicts import Step, Verdict, judge
from ottla.proto.errors import ConfigError, ErrorCode
from ottla.proto.ids import TopicPartition

E = ErrorCode
WHERE = TopicPartition("t", 0)


def _ready(*, second: bool = True, two_phase: bool = False) -> Transactions:
    core = Transactions("billing", is_two_phase=two_phase)
    core.initialised(7, 0, is_second_dialect=second)
    return core


def _open(*, second: bool = True, two_phase: bool = False) -> Transactions:
    core = _ready(second=second, two_phase=two_phase)
    core.begin()
    core.want("t", 0)
    if not second:
        core.adding()
        core.added({WHERE: E.NONE})
    core.writing()
    return core


def _committing(*, second: bool = True) -> Transactions:
    core = _open(second=second)
    core.begin_end(commit=True)
    return core


def test_the_life_of_a_transaction() -> None:
    core = Transactions("billing")
    with pytest.raises(TransactionStateError, match="init_transactions first"):
        core.begin()
    core.initialised(7, 3, is_second_dialect=True)
    with pytest.raises(TransactionStateError, match="call begin first"):
        core.require_open()
    core.begin()
    with pytest.raises(TransactionStateError, match="cannot begin"):
        core.begin()
    core.want("t", 0)
    assert core.may_write("t", 0)
    core.begin_end(commit=True)
    assert core.may_write("t", 0), "what waits is flushed"
    with pytest.raises(TransactionStateError, match="being committed"):
        core.require_open()
    assert core.end_answered(E.NONE, 7, 4) is Verdict.DONE
    assert (core.phase, core.producer_id, core.epoch) == (Phase.READY, 7, 4)
    assert not core.may_write("t", 0)


def test_in_the_first_dialect_a_partition_is_added_before_it_is_written_to() -> None:
    core = _ready(second=False)
    core.begin()
    assert not core.may_write("t", 0)
    core.want("t", 0)
    assert (core.to_add, core.has_begun) == ([WHERE], False)
    told = core.adding()
    assert (told, core.has_begun) == ([WHERE], True), "the coordinator may know of it from here on"
    assert core.added({WHERE: E.CONCURRENT_TRANSACTIONS}) is Verdict.AGAIN
    assert core.to_add == [WHERE]
    assert core.added({WHERE: E.NONE}) is Verdict.DONE
    assert core.may_write("t", 0)
    assert core.to_add == []
    core.begin_end(commit=True)
    core.end_answered(E.NONE)
    assert (core.phase, core.epoch) == (Phase.READY, 0), "the epoch is kept"
    core.begin()
    assert not core.may_write("t", 0), "every transaction adds its own"


def test_an_empty_transaction_is_nobodys_business() -> None:
    core = _ready()
    for commit in (True, False):
        core.begin()
        core.begin_end(commit=commit)
        assert not core.has_begun
        core.ended()
        assert core.phase is Phase.READY


def test_a_record_that_is_lost_leaves_only_the_abort() -> None:
    core = _open()
    core.record_failed(None, "no answer came")
    for attempt in (core.require_open, lambda: core.begin_end(commit=True)):
        with pytest.raises(TransactionAbortableError, match="no answer came"):
            attempt()
    assert not core.may_write("t", 0)
    core.begin_end(commit=False)
    core.end_answered(E.NONE, 7, 1)
    assert core.phase is Phase.READY


@pytest.mark.parametrize("second", [True, False])
def test_an_abort_after_a_lost_record_ends_with_another_epoch(second: bool) -> None:
    core = _open(second=second)
    core.record_failed(E.OUT_OF_ORDER_SEQUENCE_NUMBER, "a gap")
    core.begin_end(commit=False)
    core.end_answered(E.NONE, 7, 1)
    if not second:
        # The end gave none, so it is asked for: InitProducerId with the old one (KIP-360).
        assert core.needs_epoch
        core.begin_end(commit=False)
        core.initialised(7, 1, is_second_dialect=False)
    assert (core.phase, core.epoch, core.needs_epoch) == (Phase.READY, 1, False)


def test_nothing_to_abort_is_as_good_as_aborted() -> None:
    core = _open()
    core.record_failed(None, "never sent")
    core.begin_end(commit=False)
    assert core.end_answered(E.INVALID_TXN_STATE) is Verdict.DONE
    assert core.needs_epoch


def test_a_decision_cannot_be_taken_back_but_repeated() -> None:
    core = _committing()
    core.end_asked()
    core.end_lost()
    with pytest.raises(TransactionStateError, match="call commit again"):
        core.begin_end(commit=False)
    with pytest.raises(TransactionStateError):
        core.begin()
    core.begin_end(commit=True)
    assert core.end_answered(E.NONE, 7, 1) is Verdict.DONE


@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE])
def test_after_a_lost_answer_a_refusal_does_not_say_not_committed(code: ErrorCode) -> None:
    core = _committing()
    core.end_lost()
    with pytest.raises(TransactionUnknownError, match="is not known") as caught:
        core.end_answered(code)
    assert caught.value.code is code
    assert core.phase is Phase.FATAL


@pytest.mark.parametrize(
    "code", [E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS]
)
def test_an_answer_that_may_hide_a_commit_leaves_it_open(code: ErrorCode) -> None:
    core = _committing()
    assert core.end_answered(E.CONCURRENT_TRANSACTIONS) is Verdict.AGAIN
    assert "has not happened yet" in str(core.end_unknown(1.0, "why"))
    core.end_answered(code)
    assert "may or may not have happened" in str(core.end_unknown(1.0, "why"))
    with pytest.raises(TransactionUnknownError, match="is not known"):
        core.end_answered(E.PRODUCER_FENCED)


def test_a_refused_commit_can_be_aborted_if_it_says_so() -> None:
    core = _committing()
    with pytest.raises(TransactionAbortableError, match="TRANSACTION_ABORTABLE"):
        core.end_answered(E.TRANSACTION_ABORTABLE)
    core.begin_end(commit=False)
    assert core.end_answered(E.NONE, 7, 1) is Verdict.DONE


def test_fencing_is_one_sentence_for_ever() -> None:
    core = _committing()
    with pytest.raises(ProducerFencedError, match=r"taken over transactional\.id=billing") as first:
        core.end_answered(E.INVALID_PRODUCER_EPOCH)
    for attempt in (core.begin, core.require_open, lambda: core.begin_end(commit=False)):
        with pytest.raises(ProducerFencedError) as again:
            attempt()
        assert str(again.value) == str(first.value)


def test_what_is_prepared_waits_for_a_decision() -> None:
    core = _open(two_phase=True)
    prepared = core.prepare()
    assert prepared == PreparedTransaction("billing", 7, 0)
    assert not core.may_write("t", 0)
    assert not core.has_open, "closing the producer leaves it alone"
    with pytest.raises(TransactionStateError, match="waits for commit or abort"):
        core.require_open()
    assert core.is_prepared(prepared)
    assert not core.is_prepared(PreparedTransaction("billing", 7, 1))
    core.begin_end(commit=True)
    assert core.end_answered(E.NONE, 7, 1) is Verdict.DONE


def _closing_aborts(core: Transactions) -> bool:
    return core.has_open


def test_a_commit_that_the_coordinator_has_not_heard_of_can_be_turned_into_an_abort() -> None:
    core = _committing()
    assert _closing_aborts(core)
    core.end_asked()
    assert not _closing_aborts(core)
    with pytest.raises(TransactionStateError, match="call commit again"):
        core.begin_end(commit=False)
    core.end_answered(E.CONCURRENT_TRANSACTIONS)
    core.end_given_up()
    assert _closing_aborts(core), "it surely was not committed"
    core.end_asked()
    core.end_lost()
    core.end_given_up()
    assert not _closing_aborts(core), "it may be committed"


def test_a_prepared_transaction_that_is_being_committed_is_left_alone() -> None:
    core = _prepared()
    core.begin_end(commit=True)
    assert not core.has_open


def _prepared() -> Transactions:
    core = _open(two_phase=True)
    core.prepare()
    return core


def _found() -> Transactions:
    core = Transactions("billing", is_two_phase=True)
    core.initialised(7, 5, is_second_dialect=True, found=(7, 4))
    return core


@pytest.mark.parametrize("make", [_prepared, _found])
@pytest.mark.parametrize(("commit", "done"), [(True, "aborted"), (False, "committed")])
def test_what_was_prepared_and_decided_the_other_way_is_told_so(
    make: Callable[[], Transactions], commit: bool, done: str
) -> None:
    core = make()
    core.begin_end(commit=commit)
    with pytest.raises(TransactionFailedError, match=f"decided the other way.* has {done} it"):
        core.end_answered(E.INVALID_TXN_STATE)
    assert core.phase is Phase.FATAL


@pytest.mark.parametrize("commit", [True, False])
def test_fencing_says_nothing_of_what_was_prepared(commit: bool) -> None:
    core = _prepared()
    core.begin_end(commit=commit)
    with pytest.raises(TransactionUnknownError, match="How it was decided is not known"):
        core.end_answered(E.PRODUCER_FENCED)


def test_what_is_found_prepared_is_decided_under_the_new_epoch() -> None:
    core = Transactions("billing", is_two_phase=True)
    core.initialised(7, 5, is_second_dialect=True, found=(7, 4))
    assert core.found == PreparedTransaction("billing", 7, 4)
    assert core.is_prepared(PreparedTransaction("billing", 7, 4))
    with pytest.raises(TransactionStateError):
        core.begin()
    core.begin_end(commit=False)
    core.end_answered(E.NONE, 7, 6)
    core.begin()


def test_without_two_phases_nothing_is_prepared_and_of_nothing_neither() -> None:
    with pytest.raises(TransactionStateError, match=r"two\.phase"):
        _open().prepare()
    core = _ready(two_phase=True)
    core.begin()
    assert core.prepare() is None
    assert core.phase is Phase.READY


@pytest.mark.parametrize("text", ["7:0:billing", "12:32767:a:b:c"])
def test_a_name_survives_being_written_down(text: str) -> None:
    assert str(PreparedTransaction.parse(text)) == text


@pytest.mark.parametrize("text", ["", "7", "7:0", "7:0:", "x:0:a", "7:-1:a", "7::a"])
def test_what_is_no_name_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="PRODUCER_ID:EPOCH:TRANSACTIONAL_ID"):
        PreparedTransaction.parse(text)


@pytest.mark.parametrize(
    ("step", "code", "verdict"),
    [
        (Step.INIT, E.CONCURRENT_TRANSACTIONS, Verdict.AGAIN),
        (Step.INIT, E.NOT_COORDINATOR, Verdict.ELSEWHERE),
        (Step.INIT, E.INVALID_TRANSACTION_TIMEOUT, Verdict.FATAL),
        (Step.INIT, E.PRODUCER_FENCED, Verdict.FENCED),
        (Step.ADD_PARTITIONS, E.UNKNOWN_TOPIC_OR_PARTITION, Verdict.AGAIN),
        (Step.ADD_PARTITIONS, E.TOPIC_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Step.ADD_PARTITIONS, E.INVALID_TXN_STATE, Verdict.FATAL),
        (Step.ADD_OFFSETS, E.GROUP_AUTHORIZATION_FAILED, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, E.ILLEGAL_GENERATION, Verdict.ABORT),
        (Step.COMMIT_OFFSETS, E.COORDINATOR_LOAD_IN_PROGRESS, Verdict.AGAIN),
        (Step.COMMIT_OFFSETS, E.REQUEST_TIMED_OUT, Verdict.ELSEWHERE),
        (Step.PRODUCE, E.INVALID_PRODUCER_EPOCH, Verdict.ABORT),
        (Step.PRODUCE, E.PRODUCER_FENCED, Verdict.FENCED),
        (Step.PRODUCE, E.MESSAGE_TOO_LARGE, Verdict.ABORT),
        (Step.PRODUCE, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Verdict.FATAL),
        (Step.END, E.INVALID_PRODUCER_EPOCH, Verdict.FENCED),
        (Step.END, E.UNKNOWN_SERVER_ERROR, Verdict.FATAL),
    ],
)
def test_answers_mean_what_they_mean_to_kafkas_own_producer(
    step: Step, code: ErrorCode, verdict: Verdict
) -> None:
    assert judge(step, code) is verdict


def test_every_step_and_every_code_have_a_verdict() -> None:
    for step in Step:
        for code in ErrorCode:
            assert (judge(step, code) is Verdict.DONE) == (code is E.NONE)


def test_what_nobody_foresaw_ends_the_producer() -> None:
    core = _open(second=False)
    assert core.answered(Step.ADD_OFFSETS, E.INVALID_TXN_STATE, "group g") is Verdict.FATAL
    with pytest.raises(TransactionFailedError, match="group g"):
        core.require_open()


# --- with the sender ------------------------------------------------------------------------------


class Desk:
    """A sender with a transaction that is open, one topic and a clock."""

    def __init__(self, *, second: bool = True) -> None:
        self.core = _ready(second=second)
        self.accumulator = Accumulator(
            AccumulatorSettings(batch_size=100, linger_ms=0), lambda count: 0
        )
        self.accumulator.know("t", 2, [0, 1], 0)
        self.sender = Sender(SenderSettings(), self.accumulator, self.core)
        self.now_ms = 1000.0
        self.core.begin()

    def put(self, value: bytes = b"v", count: int = 1) -> Batch:
        places = [
            self.accumulator.append("t", None, value, 0, 1, (), None, lambda: self.now_ms)
            for _ in range(count)
        ]
        return places[-1][0]

    def one(self) -> Batch:
        (dispatch,) = self.sender.collect(self.now_ms, lambda *_: 1)
        (batch,) = dispatch.batches
        return batch

    def answer(self, batch: Batch, code: ErrorCode) -> None:
        self.sender.answered(1, [(batch, Answer(code))], self.now_ms)

    def nothing_goes(self) -> bool:
        return self.sender.collect(self.now_ms, lambda *_: 1) == []

    def end(self, epoch: int, *, commit: bool = True) -> None:
        self.core.begin_end(commit=commit)
        self.core.end_answered(E.NONE, 7, epoch)


def test_a_transaction_whose_records_never_left_ends_without_a_word() -> None:
    # Kafka fences who ends it while the transaction before is completed.
    desk = Desk()
    desk.put()
    assert desk.sender.collect(desk.now_ms, lambda *_: None) == [], "nobody leads"
    assert not desk.core.has_begun
    desk.one()
    assert desk.core.has_begun


def test_every_transaction_of_the_second_dialect_counts_from_zero() -> None:
    desk = Desk()
    for epoch in range(3):
        batch = desk.put(count=2)
        assert desk.one() is batch
        assert desk.sender.identity_of(batch) == (7, epoch, 0)
        desk.answer(batch, E.NONE)
        desk.end(epoch + 1)
        desk.core.begin()


def test_transactions_of_the_first_dialect_go_on_counting() -> None:
    desk = Desk(second=False)
    for number in range(3):
        batch = desk.put(count=2)
        assert desk.nothing_goes()
        desk.core.adding()
        desk.core.added({WHERE: E.NONE})
        assert desk.one() is batch
        assert desk.sender.identity_of(batch) == (7, 0, 2 * number)
        desk.answer(batch, E.NONE)
        desk.end(-1)
        desk.core.begin()


def test_what_waits_behind_a_lost_record_is_never_sent() -> None:
    desk = Desk()
    first = desk.put()
    assert desk.one() is first
    second = desk.put()
    desk.answer(first, E.INVALID_RECORD)
    assert desk.core.phase is Phase.BROKEN
    assert desk.nothing_goes()
    assert second.outcome is not None
    assert second.outcome.state is State.FAILED
    assert not desk.accumulator.live


def test_a_lost_count_breaks_the_transaction_instead_of_beginning_again() -> None:
    desk = Desk()
    batch = desk.put()
    assert desk.one() is batch
    desk.answer(batch, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert desk.core.phase is Phase.BROKEN
    desk.end(1, commit=False)
    desk.core.begin()
    again = desk.put()
    assert desk.one() is again
    assert desk.sender.identity_of(again) == (7, 1, 0)


def test_the_halves_of_a_batch_that_is_too_large_keep_its_numbers() -> None:
    desk = Desk()
    whole = desk.put(count=4)
    assert desk.one() is whole
    desk.answer(whole, E.MESSAGE_TOO_LARGE)
    numbers = list[tuple[int, int, int]]()
    for _ in range(2):
        half = desk.one()
        numbers.append(desk.sender.identity_of(half))
        desk.answer(half, E.NONE)
    assert numbers == [(7, 0, 0), (7, 0, 2)]
    assert desk.core.phase is Phase.OPEN


def test_the_markers_of_the_transaction_before_are_waited_for_shortly() -> None:
    desk = Desk()
    batch = desk.put()
    assert desk.one() is batch
    desk.answer(batch, E.CONCURRENT_TRANSACTIONS)
    assert desk.nothing_goes()
    desk.now_ms += 20
    assert desk.one() is batch
