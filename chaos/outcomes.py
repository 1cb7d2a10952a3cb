"""What an answer means for a write: it happened, it surely did not, or nobody can tell.

This is where a harness lies to itself most easily. A write that is called failed and happened gives
a false alarm; one that is called failed and was unknown hides a lost one. So the list of sure
refusals is short: errors that are given before anything is appended. Two codes that sound like
refusals are not on it: NOT_LEADER_OR_FOLLOWER and UNKNOWN_TOPIC_OR_PARTITION are also said of
writes that had been appended and waited for their copies when the partition moved away.

A client that tries again has several answers for one write. It happened if any of them says so;
else it is unknown if any of them is. What the last one said decides nothing.

Not here: what follows from outcomes (`checkers/`).

O1  what was not sent has failed; what was sent and got no answer is unknown
O2  with acks=0 everything that was sent is unknown
O3  an acknowledgement without an offset is unknown
O4  of a commit, NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE are unknown: they are also said of
    what was written and waited for its copies
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla.chaos.history import Kind
from ottla.proto.errors import ErrorCode

# Refusals that are given before anything is appended.
SURELY_NOT: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.INVALID_RECORD,
    }
)

# Refusals of a commit that are given before anything is written.
SURELY_NOT_COMMITTED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    }
)


def outcome_of(code: int | None, was_sent: bool, acks: int, *, offset: int = 0) -> Kind:
    """Return what one attempt has come to. `code` is None if no answer came."""
    if not was_sent:
        return Kind.FAIL
    if acks == 0 or code is None:
        return Kind.UNKNOWN
    if code == ErrorCode.NONE:
        return Kind.OK if offset >= 0 else Kind.UNKNOWN
    return Kind.FAIL if code in SURELY_NOT else Kind.UNKNOWN


def commit_outcome(codes: Collection[int]) -> Kind:
    """Return what one attempt to commit has come to, by the codes of its partitions (O4).

    Without any code no answer came, or one that said nothing.
    """
    if codes and all(code == ErrorCode.NONE for code in codes):
        return Kind.OK
    return (
        Kind.FAIL if codes and all(one in SURELY_NOT_COMMITTED for one in codes) else Kind.UNKNOWN
    )


def least_certain(attempts: Collection[Kind]) -> Kind:
    """Return what a write has come to whose attempts came to these; with none, it was not sent."""
    for kind in (Kind.OK, Kind.UNKNOWN):
        if kind in attempts:
            return kind
    return Kind.FAIL


def is_kept(code: int | None) -> bool:
    """Whether an answer says that the write is in the log, though not where (`Event.is_kept`)."""
    return code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
