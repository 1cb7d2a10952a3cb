"""What to do after an error: ask again, look again, or give up; and how long to wait before.

R1  an answer never claims more than is known: a code counts as "surely not written" only if it
    stands in `SURELY_NOT_WRITTEN`; after every other one a write may be in the log. A leader that
    is deposed answers NOT_LEADER_OR_FOLLOWER for writes that its followers may hold already
R2  waits double from the first to the longest, and then stay

Not here: anything that waits.
"""

from __future__ import annotations

from typing import Final

from ottla.clients.errors import NotSentError, OutcomeUnknownError
from ottla.proto.errors import ErrorCode, OttlaError

_E: Final = ErrorCode

# After these, somebody else is to be asked: who leads, coordinates or controls has changed.
STALE_METADATA: Final = frozenset(
    {
        _E.UNKNOWN_TOPIC_OR_PARTITION,
        _E.LEADER_NOT_AVAILABLE,
        _E.NOT_LEADER_OR_FOLLOWER,
        _E.BROKER_NOT_AVAILABLE,
        _E.REPLICA_NOT_AVAILABLE,
        _E.NETWORK_EXCEPTION,
        _E.KAFKA_STORAGE_ERROR,
        _E.LISTENER_NOT_FOUND,
        _E.FENCED_LEADER_EPOCH,
        _E.UNKNOWN_LEADER_EPOCH,
        _E.UNKNOWN_TOPIC_ID,
        _E.INCONSISTENT_TOPIC_ID,
        _E.NOT_CONTROLLER,
    }
)
STALE_COORDINATOR: Final = frozenset({_E.COORDINATOR_NOT_AVAILABLE, _E.NOT_COORDINATOR})
# Refusals of a Produce that are decided before anything is appended.
SURELY_NOT_WRITTEN: Final = frozenset(
    {
        _E.CORRUPT_MESSAGE,
        _E.LEADER_NOT_AVAILABLE,
        _E.MESSAGE_TOO_LARGE,
        _E.INVALID_TOPIC_EXCEPTION,
        _E.RECORD_LIST_TOO_LARGE,
        _E.NOT_ENOUGH_REPLICAS,
        _E.INVALID_REQUIRED_ACKS,
        _E.TOPIC_AUTHORIZATION_FAILED,
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.INVALID_TIMESTAMP,
        _E.UNSUPPORTED_VERSION,
        _E.INVALID_REQUEST,
        _E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        _E.POLICY_VIOLATION,
        _E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        _E.INVALID_PRODUCER_EPOCH,
        _E.INVALID_PRODUCER_ID_MAPPING,
        _E.INVALID_TXN_STATE,
        _E.UNKNOWN_PRODUCER_ID,
        _E.UNSUPPORTED_COMPRESSION_TYPE,
        _E.INVALID_RECORD,
        _E.THROTTLING_QUOTA_EXCEEDED,
        _E.PRODUCER_FENCED,
        _E.UNKNOWN_TOPIC_ID,
        # The coordinator is asked before anything is appended (KIP-890).
        _E.CONCURRENT_TRANSACTIONS,
        _E.TRANSACTION_ABORTABLE,
    }
)


def may_be_written(code: ErrorCode) -> bool:
    """Return whether a Produce answered with this may have been appended all the same (R1)."""
    return code not in SURELY_NOT_WRITTEN


def is_retriable(code: ErrorCode) -> bool:
    """Return whether asking again, here or elsewhere, may help."""
    return code.retriable or code in STALE_METADATA


def is_transient(error: OttlaError) -> bool:
    """Return whether a request without an answer may be asked again, if that is harmless."""
    return isinstance(error, NotSentError | OutcomeUnknownError)


class Backoff:
    """How long to wait before the next try at one thing."""

    __slots__ = ("_first_ms", "_longest_ms", "failures")

    def __init__(self, first_ms: float, longest_ms: float) -> None:
        self._first_ms: Final = first_ms
        self._longest_ms: Final = max(first_ms, longest_ms)
        self.failures = 0

    def failed(self) -> float:
        """Return the wait in milliseconds after one more failure."""
        wait_ms = backoff_ms(self.failures, self._first_ms, self._longest_ms)
        self.failures += 1
        return wait_ms

    def succeeded(self) -> None:
        self.failures = 0


def backoff_ms(failures: int, first_ms: float, longest_ms: float) -> float:
    """Return the wait after so many failures before this one (R2)."""
    return min(max(first_ms, longest_ms), first_ms * (1 << min(failures, 20)))
