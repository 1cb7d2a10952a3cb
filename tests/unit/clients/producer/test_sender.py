"""What goes out now, and what follows from each answer."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.batch import Batch, State
from ottla.clients.producer.sender import EPOCH_MAX, Answer, Dispatch, Sender, SenderSettings
from ottla.proto.errors import ErrorCode

E = ErrorCode


class Desk:
    """A sender with one topic of two partitions, both led by broker 1, and a clock."""

    def __init__(self, *, linger_ms: float = 0, **settings: Any) -> None:
        self.accumulator = Accumulator(
            AccumulatorSettings(batch_size=100, linger_ms=linger_ms), lambda count: 0
        )
        self.accumulator.know("t", 2, [0, 1], 0)
        self.sender = Sender(SenderSettings(**settings), self.accumulator)
        self.sender.identity = (7, 0)
        self.now_ms = 1000.0

    def put(self, value: bytes = b"v", partition: int = 0) -> Batch:
        place = self.accumulator.append(
            "t", None, value, partition, 1, (), None, lambda: self.now_ms
        )
        return place[0]

    def collect(self) -> list[Dispatch]:
        return self.sender.collect(self.now_ms, lambda *_: 1)

    def one(self) -> Batch:
        """Collect what must be one request with one batch."""
        (dispatch,) = self.collect()
        (batch,) = dispatch.batches
        return batch

    def answer(self, batch: Batch, code: ErrorCode, offset: int = -1) -> None:
        self.sender.answered(1, [(batch, Answer(code, offset))], self.now_ms)

    def wait(self, ms: float) -> None:
        self.now_ms += ms


def _anchored(desk: Desk) -> Desk:
    """Let the broker know the count of partition 0."""
    desk.put()
    desk.answer(desk.one(), E.NONE, 0)
    return desk


def _state(batch: Batch) -> State | None:
    return None if batch.outcome is None else batch.outcome.state


def test_a_batch_waits_for_company_and_then_goes() -> None:
    desk = Desk(linger_ms=5)
    batch = desk.put()
    assert desk.collect() == []
    assert desk.sender.next_ms(desk.now_ms, lambda *_: 1) == 1005
    desk.wait(5)
    assert desk.one() is batch


def test_a_full_batch_goes_at_once_and_so_does_everything_when_somebody_flushes() -> None:
    desk = Desk(linger_ms=50)
    desk.put(b"x" * 100)
    assert len(desk.collect()) == 1
    desk.put(partition=1)
    assert desk.collect() == []
    desk.sender.is_flushing = True
    assert len(desk.collect()) == 1


def test_no_more_requests_are_in_flight_than_allowed() -> None:
    desk = _anchored(Desk(max_in_flight=2))
    for _ in range(2):
        desk.put()
        assert len(desk.collect()) == 1
    desk.put()
    assert desk.collect() == []


def test_numbers_follow_one_another_in_each_partition() -> None:
    desk = Desk()
    for partition in (0, 1):
        desk.put(partition=partition)
        desk.answer(desk.one(), E.NONE, 0)
    found = []
    for partition in (0, 1, 0, 0):
        desk.put(partition=partition)
        found.append(desk.sender.identity_of(desk.one()))
    assert found == [(7, 0, 1), (7, 0, 1), (7, 0, 2), (7, 0, 3)]


def test_nothing_goes_before_there_is_an_id() -> None:
    desk = Desk()
    desk.sender.identity = None
    desk.put()
    assert desk.collect() == []
    assert desk.sender.needs_identity


def test_what_is_refused_for_a_moment_goes_again_after_a_wait_and_alone() -> None:
    desk = Desk()
    desk.put()
    first = desk.one()
    desk.answer(first, E.NOT_ENOUGH_REPLICAS)
    second = desk.put()
    assert desk.collect() == []
    desk.wait(100)
    assert desk.one() is first
    assert desk.collect() == [], "nothing beside what goes again"
    desk.answer(first, E.NONE, 0)
    assert desk.one() is second


def test_a_hint_at_the_leader_needs_no_wait() -> None:
    desk = Desk()
    desk.put()
    first = desk.one()
    desk.answer(first, E.NOT_LEADER_OR_FOLLOWER)
    assert desk.collect() == []
    desk.sender.retry_at_once("t", 0)
    assert desk.one() is first


def test_the_first_batch_of_a_count_goes_alone() -> None:
    desk = Desk()
    desk.put()
    first = desk.one()
    second = desk.put()
    assert desk.collect() == []
    desk.answer(first, E.NONE, 0)
    assert desk.one() is second


def test_what_comes_back_out_of_order_behind_a_failure_keeps_its_place() -> None:
    desk = _anchored(Desk())
    desk.put()
    first = desk.one()
    desk.put()
    second = desk.one()
    desk.answer(first, E.NOT_ENOUGH_REPLICAS)
    desk.answer(second, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    desk.wait(1000)
    assert desk.one() is first
    desk.answer(first, E.NONE, 0)
    assert desk.one() is second
    assert desk.sender.identity_of(second) == (7, 0, 2)


@pytest.mark.parametrize(
    "code", [E.OUT_OF_ORDER_SEQUENCE_NUMBER, E.UNKNOWN_PRODUCER_ID, E.INVALID_PRODUCER_EPOCH]
)
def test_a_lost_count_begins_again_under_the_next_epoch(code: ErrorCode) -> None:
    desk = Desk()
    desk.put()
    desk.answer(desk.one(), E.NONE, 0)
    desk.put()
    batch = desk.one()
    desk.answer(batch, code)
    desk.wait(100)
    assert desk.one() is batch
    assert desk.sender.identity_of(batch) == (7, 1, 0)


def test_a_lost_count_after_an_attempt_in_doubt_is_unknown() -> None:
    desk = Desk()
    desk.put()
    batch = desk.one()
    desk.sender.lost(1, [batch], "it broke", desk.now_ms, sent=True)
    desk.wait(100)
    assert desk.one() is batch
    desk.answer(batch, E.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert _state(batch) is State.UNKNOWN
    after = desk.put()
    assert desk.one() is after
    assert desk.sender.identity_of(after) == (7, 1, 0)


def test_when_all_epochs_are_used_up_another_id_is_asked_for() -> None:
    desk = Desk()
    desk.sender.identity = (7, EPOCH_MAX)
    desk.put()
    desk.answer(desk.one(), E.UNKNOWN_PRODUCER_ID)
    desk.wait(100)
    assert desk.collect() == []
    assert desk.sender.needs_identity
    desk.sender.identity = (8, 0)
    assert desk.sender.identity_of(desk.one()) == (8, 0, 0)


def test_a_repeat_that_the_broker_recognises_is_ok_without_an_offset() -> None:
    desk = Desk()
    desk.put()
    batch = desk.one()
    desk.answer(batch, E.DUPLICATE_SEQUENCE_NUMBER)
    assert _state(batch) is State.OK
    assert batch.report(0).offset is None


def test_what_is_refused_for_good_has_failed_and_the_next_one_is_no_gap() -> None:
    desk = Desk()
    desk.put()
    batch = desk.one()
    desk.answer(batch, E.INVALID_RECORD)
    assert _state(batch) is State.FAILED
    report = batch.report(0)
    assert report.error is not None
    assert report.error.code is E.INVALID_RECORD
    after = desk.put()
    assert desk.sender.identity_of(desk.one()) == (7, 1, 0)
    assert after.sequence == 0


def test_what_was_never_sent_in_time_has_failed() -> None:
    desk = Desk(delivery_timeout_ms=500)
    desk.sender.identity = None
    batch = desk.put()
    desk.sender.hindrance = "nobody is there"
    desk.wait(500)
    desk.collect()
    assert _state(batch) is State.FAILED
    assert str(batch.report(0).error) == "t-0: delivery.timeout.ms (500) is over: nobody is there"


def test_what_is_in_flight_when_the_time_is_over_is_unknown() -> None:
    desk = Desk(delivery_timeout_ms=500)
    desk.put()
    batch = desk.one()
    desk.wait(500)
    desk.collect()
    assert _state(batch) is State.UNKNOWN
    assert "may or may not" in str(batch.report(0).error)
    # The answer comes all the same, and changes nothing.
    desk.answer(batch, E.NONE, 0)
    assert _state(batch) is State.UNKNOWN


@pytest.mark.parametrize(("sent", "state"), [(True, State.UNKNOWN), (False, State.FAILED)])
def test_a_broken_connection_counts_as_doubt_only_if_the_request_had_left(
    sent: bool, state: State
) -> None:
    desk = Desk(retries=0)
    desk.put()
    batch = desk.one()
    desk.sender.lost(1, [batch], "it broke", desk.now_ms, sent=sent)
    assert _state(batch) is state


def test_closing_gives_up_all_and_says_what_is_known() -> None:
    desk = Desk()
    flying = desk.put()
    assert desk.one() is flying
    waiting = desk.put()
    desk.sender.give_up_all("closed")
    assert (_state(flying), _state(waiting)) == (State.UNKNOWN, State.FAILED)
    desk.answer(flying, E.NONE, 0)
    assert desk.accumulator.used_bytes == 0


def test_with_acks_0_what_has_left_is_unknown_and_that_is_no_error() -> None:
    desk = Desk(is_idempotent=False, acks=0)
    desk.put()
    batch = desk.one()
    desk.sender.sent_unasked(1, [batch])
    report = batch.report(0)
    assert (report.state, report.error) == (State.UNKNOWN, None)


def test_a_lane_without_a_leader_waits() -> None:
    desk = Desk()
    desk.put()
    assert desk.sender.collect(desk.now_ms, lambda *_: None) == []
