"""One partition followed: what to fetch next, and where the own log has to be cut.

A student copies a notebook. Before going on he makes sure that his last page is also in the
original; if it is not, he goes back to the last page that is, and never further.

The core is asked for the next step (`next_step`), and told what came of it. A step is a fetch, a
cut, or a reset; it is carried out at once or not at all, because news from the metadata may replace
it. What was fetched is appended by the shell, and the core is told where the log ends now.

A cut goes where the two logs part, as their epochs show (rule 42). It may take several fetches to
find that place: each tells where the leader's last common epoch ends, and the follower goes back by
at least one epoch (KIP-279). The high watermark never is the place: two followers that cut there
when they start lose together what was committed (rule 43, KIP-101).

With fsync the high watermark of a follower, too, counts only what it has synced.

Not here: bytes and checksums (`log/incoming.py`), carrying out a step, sending, pacing a node's
stream.

F1  an answer counts only for the epoch and the end offset that its fetch named     (rule 45)
F2  nothing below the own high watermark is cut, unless an unclean election came after all that is
    here: else the replica has failed, and keeps every byte                     (rule 44)
F3  high watermark ≤ held offset when it moves, and it never falls but by such a cut (rule 45)
F4  every cut makes the log shorter or its last epoch older: the search ends
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory
from ottla.replication.progress import FetchClaim

# The pause after a fetch that brought nothing but trouble doubles from the first to the second.
PAUSE_MIN_MS: Final = 20
PAUSE_MAX_MS: Final = 1000


class FollowerState(Enum):
    """What a follower is about."""

    FETCHING = "fetching"
    # A cut or a reset is to be carried out before the next fetch.
    TRUNCATING = "truncating"
    # There is nobody to fetch from until the metadata says so.
    WAITING = "waiting"
    # What must not happen did; the bytes are kept, and a person has to look at them.
    FAILED = "failed"


class Cut(NamedTuple):
    """Truncate the log so that it ends at this offset, and its epochs with it."""

    offset: Offset
    # Records that were committed go too, as an unclean election wants it.
    below_high_watermark: bool = False


class Reset(NamedTuple):
    """Throw all batches away, and start anew at this offset."""

    offset: Offset


Step = FetchClaim | Cut | Reset


class FollowerCore:
    """A follower of one partition, from one leader to the next; ends when this replica leads."""

    __slots__ = (
        "_epochs",
        "_last_unclean_epoch",
        "_leader_high_watermark",
        "_leader_start",
        "_step",
        "_troubles",
        "corrupt_count",
        "end_offset",
        "failure",
        "held_offset",
        "high_watermark",
        "is_fsync",
        "leader_epoch",
        "resume_at_ms",
        "start_offset",
        "state",
    )

    def __init__(
        self,
        *,
        epochs: EpochHistory,
        start_offset: Offset,
        end_offset: Offset,
        held_offset: Offset,
        high_watermark: Offset,
        is_fsync: bool = True,
    ) -> None:
        """Begin with the log as it is. `epochs` is the log's own history, and is only looked at."""
        self._epochs: Final = epochs
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.held_offset = held_offset
        self.high_watermark = high_watermark
        # The held offset counts only what is synced (rule 47).
        self.is_fsync = is_fsync
        self.leader_epoch = NO_EPOCH
        self.state = FollowerState.WAITING
        # Why it has failed, for people.
        self.failure = ""
        # No fetch before this time.
        self.resume_at_ms = 0
        # Answers with a wrong checksum, for an alarm.
        self.corrupt_count = 0
        self._step: Cut | Reset | None = None
        self._last_unclean_epoch = NO_EPOCH
        self._leader_high_watermark = FIRST_OFFSET
        self._leader_start = FIRST_OFFSET
        self._troubles = 0

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def follow(
        self, leader_epoch: LeaderEpoch, *, is_led: bool, last_unclean_epoch: LeaderEpoch
    ) -> None:
        """Follow in this epoch; without a leader, wait for one."""
        if leader_epoch <= self.leader_epoch:
            return
        self.leader_epoch = leader_epoch
        self._last_unclean_epoch = last_unclean_epoch
        # Of the last leader. It was right, but the next one may be an unclean one.
        self._leader_high_watermark = self._leader_start = FIRST_OFFSET
        self._step = None
        self._troubles = self.resume_at_ms = 0
        if self.state is not FollowerState.FAILED:
            # A log that is ahead of the metadata waits for newer metadata: this node has just
            # started, and has not read all of it yet.
            may_fetch = is_led and self._epochs.latest <= leader_epoch
            self.state = FollowerState.FETCHING if may_fetch else FollowerState.WAITING

    # ── The own log ───────────────────────────────────────────────────────────────────────────

    def progressed(self, start_offset: Offset, end_offset: Offset, held_offset: Offset) -> None:
        """Take note of a sync, or that the start has moved; the end is where it was."""
        ensure(end_offset == self.end_offset, "a follower appends what it fetched", at=end_offset)
        ensure(start_offset <= self.high_watermark, "only committed records go", at=start_offset)
        self.start_offset = start_offset
        self._hold(held_offset)

    def was_cut(self, start_offset: Offset, end_offset: Offset, held_offset: Offset) -> None:
        """Take note that the step, a cut or a reset, was carried out."""
        step = self._step
        ensure(step is not None, "nothing is cut that is not to be cut", end_offset=end_offset)
        self.start_offset, self.end_offset = start_offset, end_offset
        if isinstance(step, Reset):
            self.high_watermark = end_offset
        elif step is not None and step.below_high_watermark:
            self.high_watermark = Offset(min(self.high_watermark, end_offset))
        self._step = None
        if self.state is FollowerState.TRUNCATING:
            self.state = FollowerState.FETCHING
        self._hold(held_offset)

    def _hold(self, held_offset: Offset) -> None:
        ensure(held_offset <= self.end_offset, "nobody holds what is not there", held=held_offset)
        self.held_offset = held_offset
        known = min(self._leader_high_watermark, held_offset)
        if known > self.high_watermark:
            self.high_watermark = Offset(known)
        ensure(
            self.start_offset <= self.high_watermark <= self.end_offset,
            "the high watermark is inside the log",
            start_offset=self.start_offset,
            high_watermark=self.high_watermark,
            end_offset=self.end_offset,
        )

    @property
    def start_due(self) -> Offset:
        """Where the log may start, now that the leader's does not start before."""
        return Offset(max(self.start_offset, min(self._leader_start, self.high_watermark)))

    # ── Steps and answers ─────────────────────────────────────────────────────────────────────

    def next_step(self, now_ms: int) -> Step | None:
        """Return what to do now, or None: wait for metadata, or until `resume_at_ms`."""
        if self.state is FollowerState.FETCHING:
            if now_ms < self.resume_at_ms:
                return None
            return FetchClaim(
                self.leader_epoch,
                self.end_offset,
                self.held_offset,
                self._epochs.latest,
                self.is_fsync,
            )
        return self._step

    def accepts(self, claim: FetchClaim) -> bool:
        """Whether an answer to this fetch still means anything (rule 45)."""
        return (
            self.state is FollowerState.FETCHING
            and claim.leader_epoch == self.leader_epoch
            and claim.fetch_offset == self.end_offset
        )

    def served(
        self,
        claim: FetchClaim,
        end_offset: Offset,
        held_offset: Offset,
        *,
        leader_high_watermark: Offset,
        leader_start: Offset,
    ) -> None:
        """Take note of an answer that was accepted and appended; the log ends at `end_offset`."""
        ensure(self.accepts(claim), "what is appended was asked for", fetch=claim)
        ensure(end_offset >= self.end_offset, "an append cuts nothing", end_offset=end_offset)
        ensure(
            self._epochs.latest <= self.leader_epoch, "a leader sends no later epoch than its own"
        )
        self.end_offset = end_offset
        self._troubles = 0
        if leader_start > leader_high_watermark:
            self._fail(
                f"The leader starts at {leader_start}, above its high watermark "
                f"{leader_high_watermark}: it has lost what was committed."
            )
            return
        self._leader_start = max(self._leader_start, leader_start)
        self._leader_high_watermark = max(self._leader_high_watermark, leader_high_watermark)
        self._hold(held_offset)

    def corrupted(self, claim: FetchClaim, now_ms: int) -> None:
        """Take note that what came was damaged: nothing of it was appended, and none is skipped."""
        if self.accepts(claim):
            self.corrupt_count += 1
            self._pause(now_ms)

    def diverged(self, claim: FetchClaim, leaders: EpochEnd, now_ms: int) -> None:
        """Take note that the logs part: `leaders` is the leader's end of an epoch (rule 42)."""
        if not self.accepts(claim):
            return
        epochs, end_offset = self._epochs, self.end_offset
        own = epochs.end_of(leaders.epoch, end_offset)
        if own is None or (leaders.epoch == epochs.latest and leaders.end_offset >= end_offset):
            # That is no divergence at all, and would be told again for ever (F4).
            self._pause(now_ms)
        elif own.epoch != leaders.epoch or leaders.epoch < epochs.entries[0].epoch:
            # The leader has nothing of the epochs above; of this one here is nothing. Ask again.
            self._cut_to(own.end_offset)
        else:
            self._cut_to(min(own.end_offset, leaders.end_offset))

    def refused(
        self,
        claim: FetchClaim,
        code: ErrorCode,
        now_ms: int,
        *,
        leader_start: Offset | None = None,
        leader_end: Offset | None = None,
    ) -> None:
        """Take note of an error; the leader's bounds come with OFFSET_OUT_OF_RANGE (rule 46)."""
        if not self.accepts(claim):
            return
        if code is ErrorCode.FENCED_LEADER_EPOCH:
            # The leader knows of a later epoch, and so will the metadata here.
            self.state = FollowerState.WAITING
        elif (
            code is not ErrorCode.OFFSET_OUT_OF_RANGE or leader_start is None or leader_end is None
        ):
            # UNKNOWN_LEADER_EPOCH and NOT_LEADER_OR_FOLLOWER as well: the new leader may hear of
            # its epoch later than we do, and then nothing would tell us to ask again.
            self._pause(now_ms)
        elif leader_end < self.end_offset:
            self._cut_to(leader_end)
        elif leader_start > self.end_offset:
            self._reset(leader_start)
        else:
            self._pause(now_ms)

    def _cut_to(self, offset: Offset) -> None:
        is_below = offset < self.high_watermark
        if is_below and self._last_unclean_epoch <= self._epochs.latest:
            self._fail(
                f"The leader of epoch {self.leader_epoch} lacks records from {offset} on, and all "
                f"below {self.high_watermark} are committed; there was no unclean election since "
                f"epoch {self._epochs.latest}."
            )
        elif offset < self.start_offset:
            self._reset(offset)
        else:
            self._step = Cut(offset, is_below)
            self.state = FollowerState.TRUNCATING

    def _reset(self, offset: Offset) -> None:
        self._step = Reset(offset)
        self.state = FollowerState.TRUNCATING

    def _fail(self, sentence: str) -> None:
        self.failure = sentence
        self._step = None
        self.state = FollowerState.FAILED

    def _pause(self, now_ms: int) -> None:
        self.resume_at_ms = now_ms + min(PAUSE_MAX_MS, PAUSE_MIN_MS << min(self._troubles, 10))
        self._troubles += 1
