"""How what a leader has sent gets into a follower's log, and what the core is told of it.

Y1  what is bad is not appended, and none of it is skipped: it is fetched again (rule 45)
Y2  the core is told where the log ends, also if only a part could be written

Not here: whether an answer still counts (`follower.py`), checking batches (`log/incoming.py`),
syncing, and who is told afterwards (`replica.py`).
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from ottla.proto.errors import CorruptionError, ErrorCode, StorageError
from ottla.proto.ids import FIRST_OFFSET, Offset
from ottla.replication.follower import FollowerCore, FollowerState
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import delete_records
from ottla.replication.progress import FetchClaim
from ottla.replication.storage.failpoints import hit


class Sent(NamedTuple):
    """What a leader has sent in answer to a claim."""

    batches: bytes | memoryview
    high_watermark: Offset
    start_offset: Offset
    # Below it compaction at the leader may have left gaps between offsets.
    gaps_below: Offset
    # Every replica has what is below, as far as the leader knows.
    held_by_all: Offset = FIRST_OFFSET


def copy_into(
    log: Log, core: FollowerCore, claim: FetchClaim, sent: Sent, *, now_ms: int, wall_ms: int
) -> CorruptionError | None:
    """Append, and tell the core; only if it accepts the claim. Return what was bad, if it was."""
    is_whole = True
    log.held_by_all = sent.held_by_all
    try:
        if len(sent.batches):
            hit("follower.append.before")
            log.append_as_follower(
                sent.batches,
                now_ms=wall_ms,
                gaps_allowed=log.end_offset < sent.gaps_below,
                leader_epoch=claim.leader_epoch,
            )
            hit("follower.append.after")
    except CorruptionError as error:
        core.corrupted(claim, now_ms)
        return error
    except StorageError:
        # Offline, which says so; or no descriptor for another segment: some of it is there (Y2).
        is_whole = False
    core.served(
        claim,
        log.end_offset,
        log.held_offset,
        leader_high_watermark=sent.high_watermark,
        leader_start=sent.start_offset,
    )
    next_claim = core.next_step(now_ms)
    if not is_whole and isinstance(next_claim, FetchClaim):
        core.refused(next_claim, ErrorCode.KAFKA_STORAGE_ERROR, now_ms)
    return None


def follow_start(log: Log, core: FollowerCore, *, wall_ms: int) -> None:
    """Let go of what the leader has let go of."""
    if core.state is FollowerState.FAILED or core.start_due <= log.start_offset:
        return
    with suppress(StorageError):
        delete_records(log, core.start_due, now_ms=wall_ms)
        core.progressed(log.start_offset, log.end_offset, log.held_offset)
