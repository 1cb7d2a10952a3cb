"""What a follower says when it fetches, and what its leader may conclude from that.

A child reads a story aloud that was dictated to it: "I am at page 12, and the last word I have is
*bridge*." From the page one knows how far it is; from the word, whether it has the same story.

A fetch names two positions, and they are not the same with fsync (rule 47):

  fetch offset   the follower's end offset: send me what comes next
  held offset    the follower's synced offset: this much will survive here, count me in up to it

The held offset is what the high watermark and the in-sync set go by; the fetch offset only says
which bytes to send, and where the two logs may part. So a follower fetches on while its disk syncs.
When a sync ends while its fetch is waiting at the leader, it says the same again with the new held
offset: a claim that asks for no bytes. Without fsync the two offsets are equal.

Not here: the high watermark and the in-sync set (`leader.py`), what a follower does with an answer
(`follower.py`), and bytes.

P1  a claim counts only if the two logs agree below its fetch offset    (rules 33, 40, 41)
P2  held offset ≤ fetch offset ≤ the leader's end offset
P3  at the time a follower was caught up the leader had nothing that the follower lacks now; within
    one life of the follower that time never falls                       (rule 34)
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import NO_EPOCH, BrokerId, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory

# Nothing was heard of a follower yet; below every offset, so that nothing is committed by mistake.
UNKNOWN_OFFSET: Final = Offset(-1)
# Before every time, whatever the clock begins with.
NEVER_MS: Final = -(2**62)


class FetchClaim(NamedTuple):
    """What a follower says of itself in a fetch of one partition."""

    # The epoch in which it follows (rule 39).
    leader_epoch: LeaderEpoch
    # Its end offset.
    fetch_offset: Offset
    # What it will have after a power cut, or, in the page cache, after a crash.
    held_offset: Offset
    # Of the last batch it has; NO_EPOCH: it has none (rule 40).
    last_epoch: LeaderEpoch
    # The held offset counts only what is synced.
    is_synced: bool = True


# None: serve the fetch. An EpochEnd: the logs part, and that is where the leader's epoch ends.
Verdict = EpochEnd | ErrorCode | None


def judge_fetch(
    claim: FetchClaim,
    epochs: EpochHistory,
    leader_epoch: LeaderEpoch,
    start_offset: Offset,
    end_offset: Offset,
) -> Verdict:
    """Return whether the leader in `leader_epoch` may serve this fetch (rules 39 to 41).

    `epochs` may lack the leader's own epoch while nothing was appended in it.
    """
    if claim.leader_epoch != leader_epoch:
        is_old = claim.leader_epoch < leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    fetch_offset, last_epoch = claim.fetch_offset, claim.last_epoch
    if last_epoch != NO_EPOCH and (last_epoch != leader_epoch or fetch_offset > end_offset):
        end = _end_of(last_epoch, epochs, leader_epoch, end_offset)
        if end is None:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        if end.epoch < last_epoch or end.end_offset < fetch_offset:
            return end
    if not start_offset <= fetch_offset <= end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if claim.held_offset > fetch_offset:
        return ErrorCode.INVALID_REQUEST
    return None


def _end_of(
    epoch: LeaderEpoch, epochs: EpochHistory, leader_epoch: LeaderEpoch, end_offset: Offset
) -> EpochEnd | None:
    """Return where an epoch ends, as if the leader's own stood in the history in any case."""
    latest = epochs.latest
    if epoch > leader_epoch or epoch < 0:
        return None
    if epoch == leader_epoch:
        return EpochEnd(epoch, end_offset)
    if epoch > latest:
        # An epoch that this log never saw. The leader's own begins at the end: nothing was
        # appended in it, or it would be in the history.
        return EpochEnd(epoch if latest == NO_EPOCH else latest, end_offset)
    return epochs.end_of(epoch, end_offset)


class FollowerProgress:
    """What a leader knows of one follower. Made when an epoch begins, and forgotten with it."""

    __slots__ = (
        "_mark_end",
        "_mark_ms",
        "_previous_end",
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "held_offset",
        "is_active",
        "is_counted",
        "is_in_isr",
        "is_refused",
        "registered_epoch",
        "replica",
    )

    def __init__(self, replica: BrokerId, caught_up_ms: int) -> None:
        self.replica: Final = replica
        self.held_offset = UNKNOWN_OFFSET
        # The latest known time at which it had all that the leader had.
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER_MS
        # The leader's end offset at its previous fetch, and at an earlier one, still to be reached.
        self._previous_end = UNKNOWN_OFFSET
        self._mark_end = UNKNOWN_OFFSET
        self._mark_ms = NEVER_MS
        # Of the life that fetches, and of the one that the metadata has; −1: none.
        self.broker_epoch = -1
        self.registered_epoch = -1
        # Registered, not fenced and not shutting down.
        self.is_active = False
        self.is_in_isr = False
        # The high watermark waits for it: it is in the maximal in-sync set (rule 31).
        self.is_counted = False
        # The controller would not have it; not asked for again until something changes.
        self.is_refused = False

    def took(self, held_offset: Offset, end_offset: Offset, now_ms: int) -> None:
        """Take note that it holds all below `held_offset`, while the log ends at `end_offset`.

        Rule 34 looks at the leader's end at the previous fetch. With fsync that is not enough: what
        one fetch brings is synced two fetches later, so under steady load no fetch ever claims what
        the previous one saw, and a healthy follower would leave the in-sync set. So a mark stays
        until it is reached.
        """
        if held_offset >= end_offset:
            self.caught_up_ms = now_ms
        elif held_offset >= self._previous_end:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        elif held_offset >= self._mark_end:
            self.caught_up_ms = max(self.caught_up_ms, self._mark_ms)
        if held_offset >= self._mark_end:
            self._mark_end = end_offset
            self._mark_ms = now_ms
        self._previous_end = end_offset
        self.held_offset = held_offset
        self.fetched_ms = now_ms

    def lives(self, broker_epoch: int) -> None:
        """Take note which life of the broker fetches."""
        if broker_epoch != max(self.broker_epoch, self.registered_epoch):
            self._start_over()
        self.broker_epoch = broker_epoch

    def registered(self, broker_epoch: int) -> None:
        """Take note which life of the broker the metadata has."""
        if self.registered_epoch not in (-1, broker_epoch) and broker_epoch > self.broker_epoch:
            self._start_over()
        self.registered_epoch = broker_epoch

    def _start_over(self) -> None:
        # A restarted follower must not pass for one that was caught up a moment ago: the high
        # watermark would wait for it until it is so again, or for the whole of the lag.
        self.forget()
        self.caught_up_ms = NEVER_MS

    def forget(self) -> None:
        """Know nothing any more of what it holds."""
        self.held_offset = UNKNOWN_OFFSET

    def is_in_sync(self, end_offset: Offset, now_ms: int, lag_ms: int) -> bool:
        """Whether it has all, or had so not long ago (rule 35)."""
        return self.held_offset >= end_offset or now_ms - self.caught_up_ms <= lag_ms

    @property
    def is_eligible(self) -> bool:
        """Whether the controller would let it join, as far as is known here (rule 37)."""
        return self.is_active and self.broker_epoch == self.registered_epoch
