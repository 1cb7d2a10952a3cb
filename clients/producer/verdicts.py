"""What an answer means for a transaction: one row per kind of question. A core.

As Kafka's own producer has it. What is not in a row is fatal: better an end than a guess.

| answer | then |
| --- | --- |
| the coordinator has moved, or a request timed out there | look for it, ask again |
| can be tried again; CONCURRENT_TRANSACTIONS | ask again |
| PRODUCER_FENCED, INVALID_PRODUCER_EPOCH | another producer has taken over |
| INVALID_PRODUCER_EPOCH of a record | abort; the end of the transaction tells who is right |
| a row of `_ABORTABLE`; any other error of a record | abort |

Not here: what is done about it (`transactions.py`).
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final

from ottla.clients.retrying import STALE_COORDINATOR, is_retriable
from ottla.proto.errors import ErrorCode

_E: Final = ErrorCode


class Step(Enum):
    """What is asked of a broker on behalf of a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    PRODUCE = "Produce"
    END = "EndTxn"


class Verdict(IntEnum):
    """What follows from an answer; of several, the last one counts."""

    DONE = 0
    # Ask again, after a moment.
    AGAIN = 1
    # Ask who coordinates now, then again.
    ELSEWHERE = 2
    # The transaction can only be aborted.
    ABORT = 3
    # Another producer has taken over.
    FENCED = 4
    # Nothing more can be done with this producer.
    FATAL = 5


_FENCED: Final = frozenset({_E.PRODUCER_FENCED, _E.INVALID_PRODUCER_EPOCH})
_NEVER: Final = frozenset(
    {
        _E.PRODUCER_FENCED,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.CLUSTER_AUTHORIZATION_FAILED,
        _E.UNSUPPORTED_VERSION,
        _E.INVALID_PRODUCER_ID_MAPPING,
    }
)
# What spoils a transaction, and not the producer, by what was asked.
_ABORTABLE: Final = {
    Step.INIT: frozenset({_E.TRANSACTION_ABORTABLE}),
    Step.ADD_PARTITIONS: frozenset(
        {
            _E.TRANSACTION_ABORTABLE,
            _E.TOPIC_AUTHORIZATION_FAILED,
            _E.INVALID_TOPIC_EXCEPTION,
            _E.OPERATION_NOT_ATTEMPTED,
            _E.UNKNOWN_PRODUCER_ID,
            _E.INVALID_PRODUCER_ID_MAPPING,
        }
    ),
    Step.ADD_OFFSETS: frozenset(
        {
            _E.TRANSACTION_ABORTABLE,
            _E.GROUP_AUTHORIZATION_FAILED,
            _E.UNKNOWN_PRODUCER_ID,
            _E.INVALID_PRODUCER_ID_MAPPING,
        }
    ),
    Step.COMMIT_OFFSETS: frozenset(
        {
            _E.TRANSACTION_ABORTABLE,
            _E.GROUP_AUTHORIZATION_FAILED,
            _E.TOPIC_AUTHORIZATION_FAILED,
            _E.UNKNOWN_MEMBER_ID,
            _E.ILLEGAL_GENERATION,
            _E.STALE_MEMBER_EPOCH,
            _E.FENCED_INSTANCE_ID,
            _E.GROUP_ID_NOT_FOUND,
            _E.OFFSET_METADATA_TOO_LARGE,
        }
    ),
    Step.END: frozenset({_E.TRANSACTION_ABORTABLE}),
}
# After these an EndTxn surely changed nothing (T4). NOT_COORDINATOR is not among them, nor is
# COORDINATOR_LOAD_IN_PROGRESS: who loses its office after the decision was written says so, too.
SURELY_NOT_ENDED: Final = frozenset(
    {
        _E.CONCURRENT_TRANSACTIONS,
        _E.TRANSACTION_ABORTABLE,
        _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        _E.UNSUPPORTED_VERSION,
        _E.INVALID_REQUEST,
    }
)


def judge(step: Step, code: ErrorCode) -> Verdict:
    """Return what an answer with this code means for the transaction."""
    if code is _E.NONE:
        return Verdict.DONE
    if step is Step.PRODUCE:
        return Verdict.FENCED if code is _E.PRODUCER_FENCED else _of_records(code)
    if code in _ABORTABLE[step]:
        return Verdict.ABORT
    if code in STALE_COORDINATOR or code is _E.REQUEST_TIMED_OUT:
        return Verdict.ELSEWHERE
    if code in _FENCED:
        return Verdict.FENCED
    return Verdict.AGAIN if is_retriable(code) else Verdict.FATAL


def _of_records(code: ErrorCode) -> Verdict:
    # An old epoch may be the coordinator's own doing, after a time-out: the end will tell.
    return Verdict.FATAL if code in _NEVER else Verdict.ABORT
