"""What a leader says of one partition in an answer: its batches, where logs part, or a refusal.

Not here: when that is said (`feeding.py`), and its bytes (`proto/replication.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.proto.errors import ErrorCode
from ottla.proto.replication import DIVERGED, REFUSED, SERVED, AnswerPart
from ottla.replication.epochs import EpochEnd
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica

# Of a partition on a stream: the id of its topic, and its number.
Key = tuple[bytes, int]
# Leader epoch, high watermark and start offset; and, of a log that is compacted, whether every
# replica has all of it: how far they have come before that is told by the way.
News = tuple[int, int, int, bool]


def news_of(claim: FetchClaim, replica: Replica) -> News:
    """Return what is worth an answer without batches, if it is not as it was told before."""
    log = replica.log
    is_everywhere = log.settings.compact and log.held_by_all >= log.end_offset
    return claim.leader_epoch, log.high_watermark, log.start_offset, is_everywhere


def why_not(replica: Replica | None, claim: FetchClaim) -> ErrorCode:
    """Return why a claim is not one for the leader of this moment."""
    if replica is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not replica.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    is_old = claim.leader_epoch < replica.leader_epoch
    return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH


def service(key: Key, claim: FetchClaim, replica: Replica, pieces: Sequence[bytes]) -> AnswerPart:
    """Return the answer to a claim that is served, with these batches."""
    log = replica.log
    return AnswerPart(
        *key,
        claim.leader_epoch,
        claim.fetch_offset,
        SERVED,
        0,
        log.high_watermark,
        log.start_offset,
        log.end_offset,
        gaps_below=log.gaps_below,
        held_by_all=log.held_by_all,
        batches=pieces[0],
        more=tuple(pieces[1:]),
    )


def divergence(key: Key, claim: FetchClaim, replica: Replica, end: EpochEnd) -> AnswerPart:
    """Return the answer to a claim of a log that parts from the leader's."""
    log = replica.log
    return AnswerPart(
        *key,
        claim.leader_epoch,
        claim.fetch_offset,
        DIVERGED,
        0,
        log.high_watermark,
        log.start_offset,
        end.end_offset,
        end.epoch,
    )


def refusal(key: Key, claim: FetchClaim, code: ErrorCode, replica: Replica | None) -> AnswerPart:
    """Return the answer to a claim that is not served."""
    bounds = (-1, -1, -1)
    if replica is not None:
        log = replica.log
        is_below = claim.fetch_offset < log.start_offset
        start_offset = replica.readable_from if is_below else log.start_offset
        bounds = log.high_watermark, start_offset, log.end_offset
    return AnswerPart(*key, claim.leader_epoch, claim.fetch_offset, REFUSED, int(code), *bounds)
