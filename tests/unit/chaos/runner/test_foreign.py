"""librdkafka: what a delivery report is worth after attempts that nobody saw."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import KafkaError

from ottla.chaos.history import Kind
from ottla.chaos.runner.foreign import kind_of
from ottla.chaos.runner.foreign_transactor import StuckError, within
from ottla.proto.errors import ErrorCode


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_INFLIGHT,
        # It may have been sent, been refused, and been put back into the queue.
        KafkaError._PURGE_QUEUE,
        KafkaError._FATAL,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    ],
)
def test_what_may_have_been_written_by_an_earlier_attempt_is_unknown(code: int) -> None:
    assert kind_of(code) is Kind.UNKNOWN


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_what_every_attempt_is_refused_has_failed(code: int) -> None:
    assert kind_of(code) is Kind.FAIL


def test_a_step_that_comes_back_is_done_or_raises() -> None:
    done = list[int]()
    within(done.append, 7)
    assert done == [7]
    with pytest.raises(KeyError):
        within({}.__getitem__, 1)


def test_a_step_that_does_not_come_back_is_left_to_itself() -> None:
    release = threading.Event()
    with pytest.raises(StuckError):
        within(release.wait, stuck_s=0.01)
    release.set()
