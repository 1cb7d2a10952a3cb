"""What errors mean to a client, and what a client counts."""

from __future__ import annotations

from ottla.clients.metrics import KEPT, Metrics
from ottla.clients.retrying import Backoff, is_retriable, may_be_written
from ottla.proto.errors import ErrorCode


def test_a_write_is_called_surely_not_written_only_after_refusals_before_the_append() -> None:
    doubtful = {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert all(may_be_written(code) for code in doubtful)
    assert not may_be_written(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert not may_be_written(ErrorCode.MESSAGE_TOO_LARGE)


def test_what_kafka_calls_retriable_is_tried_again() -> None:
    assert is_retriable(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert is_retriable(ErrorCode.BROKER_NOT_AVAILABLE)
    assert not is_retriable(ErrorCode.MESSAGE_TOO_LARGE)


def test_waits_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    backoff = Backoff(100, 1000)
    assert [backoff.failed() for _ in range(6)] == [100, 200, 400, 800, 1000, 1000]
    backoff.succeeded()
    assert backoff.failed() == 100


def test_metrics_tell_counts_and_percentiles_in_bounded_memory() -> None:
    metrics = Metrics()
    metrics.count("n")
    metrics.count("n", 2)
    for value in range(5 * KEPT):
        metrics.observe("ms", value)
    told = metrics.snapshot()
    assert told["n"] == 3
    assert told["ms.count"] == 5 * KEPT
    assert told["ms.max"] == 5 * KEPT - 1
    # Of the newest ones only.
    assert 4 * KEPT <= told["ms.p50"] < told["ms.p99"] < 5 * KEPT
    assert list(told) == sorted(told)
