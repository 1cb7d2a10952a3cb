"""One partition led in one leader epoch: what is committed, and who is in sync.

A tug-of-war team counts as far as its last member has come. Who falls behind for too long leaves
the team, but only once the referee has said so: until then the rope is where the last one holds it.

Facts come in through methods (`progressed`, `fetched`, `check_isr`, `answered`, `adopt`). What is
to be done about them can be read afterwards: `high_watermark`, to be told to the log and to those
who wait, and `unsent`, an in-sync set to be proposed to the controller. A new leader epoch is a new
core.

The in-sync set that is committed comes from the metadata and from nowhere else. An answer to a
proposal says only whether to go on waiting: by the time the metadata has reached the answer's
version it has the new set too, and with it everything that was decided before (rule 38). A proposal
is a compare-and-set on the partition epoch, so a newer one settles all proposals for older ones.

Between the proposal and the metadata either set may be the committed one. Every replica that may be
in it counts: the *maximal* in-sync set, which never lacks a member of the committed one (rule 31).

Not here: the log, waiting, sending, pacing, and whether a leader may serve at all (rule 13).

H1  everything below the high watermark is held by every replica of every in-sync set that is
    committed or may be committed next                                       (rules 30, 31)
H2  the high watermark never falls, and is never above the end offset        (rule 69)
H3  it moves only while at least the minimum are in the committed in-sync set    (rule 29)
H4  acks=all is acknowledged only below the high watermark, by the leader of the epoch in which it
    was appended, with at least the minimum in sync at that moment    (rules 27, 28, 69)
H5  one proposal at a time; whoever joins holds all below the high watermark and all that was here
    when the epoch began                                                     (rules 37, 38)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import INT64_MAX, BrokerId, LeaderEpoch, Offset
from ottla.replication.epochs import EpochHistory
from ottla.replication.progress import (
    NEVER_MS,
    FetchClaim,
    FollowerProgress,
    Verdict,
    judge_fetch,
)

# Surely not committed, and never to be (rule 38).
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The metadata here is old, and what comes next settles the proposal.
_OVERTAKEN: Final = frozenset(
    {
        # Granted: the metadata brings it.
        ErrorCode.NONE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """What the metadata says, at one version, of a partition and the brokers that hold it."""

    leader_epoch: LeaderEpoch
    partition_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...] = ()
    # Effective: at most the number of replicas (rule 25).
    min_isr: int
    # Of every replica that is registered.
    broker_epochs: Mapping[BrokerId, int]
    # Who is not fenced and not shutting down; brokers without this partition do no harm.
    active: Collection[BrokerId]
    # Replicas count only what is synced (rule 47).
    is_fsync: bool = True
    # Whatever is committed was synced by all in sync (rule 8).
    is_durable: bool = True
    # The leader was elected uncleanly, and has not said yet that it is in office (rule 16).
    is_recovering: bool = False


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An in-sync set that the leader asks the controller for."""

    leader_epoch: LeaderEpoch
    # It counts only if the partition epoch is still this one.
    partition_epoch: int
    # With the broker epoch of each, as its fetches told it; −1: none came in this epoch.
    isr: tuple[tuple[BrokerId, int], ...]
    # All of them have synced what was committed when the topic was changed to fsync (rule 8).
    is_synced: bool = False

    @property
    def members(self) -> tuple[BrokerId, ...]:
        return tuple(member for member, _ in self.isr)


class LeaderCore:
    """The leader of one partition, from the metadata that made it so to the next leader epoch."""

    __slots__ = (
        "_broker_epoch",
        "_epochs",
        "_followers",
        "_is_above_min",
        "_is_in_doubt",
        "_lag_ms",
        "_me",
        "_others",
        "_possible",
        "_swears_from",
        "end_offset",
        "epoch_start",
        "held_offset",
        "high_watermark",
        "is_over",
        "leader_epoch",
        "proposed",
        "unsent",
        "view",
    )

    def __init__(
        self,
        me: BrokerId,
        view: PartitionView,
        *,
        epochs: EpochHistory,
        end_offset: Offset,
        held_offset: Offset,
        high_watermark: Offset,
        lag_ms: int,
        now_ms: int,
    ) -> None:
        """Lead (rules 21 to 23). `epochs` is the log's own history, and is only looked at."""
        self._me: Final = me
        self._epochs: Final = epochs
        self._lag_ms: Final = lag_ms
        self.leader_epoch: Final = view.leader_epoch
        # Where this epoch begins: all that was here before anybody is led.
        self.epoch_start: Final = end_offset
        self.end_offset = end_offset
        # With fsync the synced offset (rule 47).
        self.held_offset = held_offset
        self.high_watermark = high_watermark
        # Another leader epoch has begun: this core acknowledges nothing any more.
        self.is_over = False
        self.view = view
        # What was asked of the controller and is not settled, and what of it is to be sent (again).
        self.proposed: IsrProposal | None = None
        self.unsent: IsrProposal | None = None
        # Who is in a proposal that may still be committed at this partition epoch.
        self._possible: frozenset[BrokerId] = frozenset()
        # Whether the outcome of some proposal at this partition epoch is unknown.
        self._is_in_doubt = False
        # By whom this is held, all that is committed is synced.
        self._swears_from = end_offset
        self._followers: dict[BrokerId, FollowerProgress] = {}
        self._others: tuple[FollowerProgress, ...] = ()
        self._is_above_min = False
        self._broker_epoch = -1
        ensure(
            0 <= high_watermark <= end_offset, "the high watermark is inside the log", at=end_offset
        )
        self._adopt(view, now_ms)

    # ── What the log and the followers do ─────────────────────────────────────────────────────

    def progressed(self, end_offset: Offset, held_offset: Offset, now_ms: int) -> None:
        """Take note that this replica has appended or synced (rule 32)."""
        ensure(held_offset <= end_offset, "nobody holds what is not there", held=held_offset)
        ensure(end_offset >= self.end_offset, "a leader's log is not cut", at=end_offset)
        if end_offset > self.end_offset:
            # Who had everything until now claims nothing anew while the partition rests, and must
            # not pass for one that lags since then (P3).
            for follower in self._others:
                if follower.is_in_isr and follower.held_offset >= self.end_offset:
                    follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        self.end_offset = end_offset
        self.held_offset = held_offset
        self._advance(now_ms)

    def fetched(
        self,
        replica: BrokerId,
        broker_epoch: int,
        claim: FetchClaim,
        start_offset: Offset,
        now_ms: int,
    ) -> Verdict:
        """Return whether to serve a follower's fetch; only one that is served counts (rule 41)."""
        if self.is_over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        verdict = judge_fetch(claim, self._epochs, self.leader_epoch, start_offset, self.end_offset)
        follower = self._followers.get(replica)
        if follower is None:
            # A stranger, or metadata here that does not know of it yet (rule 39).
            is_fenced = verdict is ErrorCode.FENCED_LEADER_EPOCH
            return verdict if is_fenced else ErrorCode.UNKNOWN_LEADER_EPOCH
        if verdict is not None:
            return verdict
        if broker_epoch != follower.broker_epoch:
            if broker_epoch < max(follower.broker_epoch, follower.registered_epoch):
                # From an earlier life of that broker (rule 33).
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            follower.lives(broker_epoch)
        if claim.is_synced or not self.view.is_fsync:
            follower.took(claim.held_offset, self.end_offset, now_ms)
            if not follower.is_in_isr:
                self._maybe_expand(follower)
            self._advance(now_ms)
        return None

    def _advance(self, now_ms: int) -> None:
        """Move the high watermark as far as all have come who count (rules 29 and 30)."""
        if not self._is_above_min or self.is_over:
            return
        lowest = self.held_offset
        for follower in self._others:
            if follower.held_offset < lowest and (
                follower.is_counted or self._is_joining(follower, now_ms)
            ):
                lowest = follower.held_offset
        if lowest > self.high_watermark:
            ensure(lowest <= self.end_offset, "nothing is committed that is not here", at=lowest)
            self.high_watermark = lowest

    def _is_joining(self, follower: FollowerProgress, now_ms: int) -> bool:
        # Else the high watermark would run away from a follower that is about to join.
        return follower.is_eligible and follower.is_in_sync(self.end_offset, now_ms, self._lag_ms)

    @property
    def held_by_all(self) -> Offset:
        """Below which offset every other replica has everything, in sync or not, as it has said.

        An offset that no log reaches, if there is no other; 0 while one was not heard of.
        """
        return Offset(max(0, min((one.held_offset for one in self._others), default=INT64_MAX)))

    # ── Who is in sync ────────────────────────────────────────────────────────────────────────

    @property
    def isr(self) -> tuple[BrokerId, ...]:
        return self.view.isr

    @property
    def maximal_isr(self) -> frozenset[BrokerId]:
        """Everybody who is in the committed in-sync set, or may be soon (rule 31)."""
        return self._possible.union(self.view.isr)

    @property
    def check_interval_ms(self) -> int:
        """How often to call `check_isr`: who is too slow is out after 1.5 times the lag."""
        return max(1, self._lag_ms // 2)

    def check_isr(self, now_ms: int) -> None:
        """Propose the in-sync set without those who lag for too long (rules 35 and 36)."""
        for follower in self._others:
            follower.is_refused = False
        if self.proposed is not None or self.is_over:
            return
        slow = {
            one.replica
            for one in self._others
            if one.is_in_isr and not one.is_in_sync(self.end_offset, now_ms, self._lag_ms)
        }
        left = [member for member in self.view.isr if member not in slow]
        is_synced = self._can_swear(left)
        has_news = self.view.is_recovering or (is_synced and not self.view.is_durable)
        # In doubt the same set is proposed again. Whichever proposal is committed first settles the
        # others, and those who are only possible need not be waited for any more.
        if slow or has_news or self._is_in_doubt:
            self._propose(left, is_synced=is_synced)

    def _maybe_expand(self, follower: FollowerProgress) -> None:
        """Propose a follower that has come far enough (rule 37)."""
        held = follower.held_offset
        if (
            self.proposed is None
            and held >= self.high_watermark
            # Between the high watermark and here may be records that the last leader has committed.
            and held >= self.epoch_start
            and follower.is_eligible
            and not follower.is_refused
        ):
            self._propose((*self.view.isr, follower.replica))

    def _can_swear(self, members: Iterable[BrokerId]) -> bool:
        """Whether all of these have synced what was committed before the change to fsync."""
        held = [
            self.held_offset if member == self._me else self._followers[member].held_offset
            for member in members
        ]
        return self.view.is_fsync and not self.view.elr and min(held) >= self._swears_from

    def _propose(self, isr: Iterable[BrokerId], *, is_synced: bool = False) -> None:
        view = self.view
        members = frozenset(isr)
        ensure(self._me in members, "a leader is in sync with itself", isr=sorted(members))
        self.proposed = self.unsent = IsrProposal(
            self.leader_epoch,
            view.partition_epoch,
            tuple((one, self._epoch_of(one)) for one in view.replicas if one in members),
            is_synced,
        )
        self._possible |= members
        self._count()

    def _epoch_of(self, member: BrokerId) -> int:
        if member == self._me:
            return self._broker_epoch
        return self._followers[member].broker_epoch

    def sent(self) -> None:
        """Take note that `unsent` is on its way: its answer, or that none came, will be told."""
        self.unsent = None

    def answered(self, proposal: IsrProposal, code: ErrorCode, now_ms: int) -> None:
        """Take note of what became of a proposal (rule 38). No answer is REQUEST_TIMED_OUT."""
        if proposal is not self.proposed or self.is_over or code in _OVERTAKEN:
            return
        if code not in _REFUSED:
            # It may have been committed, or may yet be.
            self._is_in_doubt = True
            self.unsent = proposal
            return
        self.proposed = self.unsent = None
        for follower in self._others:
            follower.is_refused |= not follower.is_in_isr and follower.is_counted
        if not self._is_in_doubt:
            # With doubt it is not safe to forget those who were proposed:
            #   1. a proposal with broker 3 is sent, and nobody knows what became of it
            #   2. it is sent again, and refused: 3 is fenced at the moment
            #   3. 3 is back, and the first copy, long under way, is committed
            #   4. the high watermark moves without 3; the leader dies; 3 leads
            self._possible = frozenset()
            self._count()
            self._advance(now_ms)

    # ── Metadata ──────────────────────────────────────────────────────────────────────────────

    def adopt(self, view: PartitionView, now_ms: int) -> None:
        """Obey newer metadata: of this partition, its brokers, or its topic's options.

        Another leader epoch ends this core. Older metadata is left alone (rule 4).
        """
        if view.leader_epoch > self.leader_epoch:
            self.end()
        old = self.view
        if self.is_over or view.leader_epoch < self.leader_epoch:
            return
        if view.partition_epoch < old.partition_epoch:
            return
        ensure(
            view.partition_epoch > old.partition_epoch or view.isr == old.isr,
            "one partition epoch has one in-sync set",
            partition_epoch=view.partition_epoch,
        )
        self._adopt(view, now_ms)

    def end(self) -> None:
        """Another leader epoch has begun: acknowledge and propose nothing any more."""
        self.is_over = True
        self.proposed = self.unsent = None

    def _adopt(self, view: PartitionView, now_ms: int) -> None:
        ensure(self._me in view.isr, "a leader is in sync with itself", isr=view.isr)
        ensure(set(view.isr) <= set(view.replicas), "who is in sync is a replica", isr=view.isr)
        ensure(view.min_isr >= 1, "a minimum is at least one", min_isr=view.min_isr)
        if view.partition_epoch > self.view.partition_epoch:
            self.proposed = self.unsent = None
            self._possible = frozenset()
            self._is_in_doubt = False
            if not view.is_durable:
                self._swears_from = self.end_offset
        if view.is_fsync and not self.view.is_fsync:
            # What was claimed so far may be in page caches only.
            for follower in self._others:
                follower.forget()
        self.view = view
        self._broker_epoch = view.broker_epochs.get(self._me, -1)
        self._is_above_min = len(view.isr) >= view.min_isr
        known = self._followers
        self._followers = {
            one: known.get(one) or FollowerProgress(one, now_ms if one in view.isr else NEVER_MS)
            for one in view.replicas
            if one != self._me
        }
        self._others = tuple(self._followers.values())
        for follower in self._others:
            follower.registered(view.broker_epochs.get(follower.replica, -1))
            follower.is_active = follower.replica in view.active
            follower.is_in_isr = follower.replica in view.isr
            follower.is_refused = False
        self._count()
        self._advance(now_ms)

    def _count(self) -> None:
        for follower in self._others:
            follower.is_counted = follower.is_in_isr or follower.replica in self._possible

    # ── What may be told to clients ───────────────────────────────────────────────────────────

    @property
    def knows_high_watermark(self) -> bool:
        """Whether it is not below what an earlier leader has shown; until then no latest offset
        is told to anybody (rule 23)."""
        return self.high_watermark >= self.epoch_start

    def refusal_of_all(self) -> ErrorCode | None:
        """Return why nothing may be appended with acks=all, or None (rule 25)."""
        if self.is_over:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None if self._is_above_min else ErrorCode.NOT_ENOUGH_REPLICAS

    def outcome_of_all(self, leader_epoch: LeaderEpoch, end_offset: Offset) -> ErrorCode | None:
        """Return what to answer to acks=all for what was appended below `end_offset`, in that
        epoch; None: not yet (rules 27 and 28).

        The minimum is held against the committed in-sync set. The maximal one would do for what
        is below the high watermark; this is stricter, and is what rule 69 says.
        """
        if self.is_over or leader_epoch != self.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.high_watermark < end_offset:
            return None
        return ErrorCode.NONE if self._is_above_min else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    def progress_of(self, replica: BrokerId) -> FollowerProgress:
        """Return what is known of a follower, to be looked at."""
        return self._followers[replica]
