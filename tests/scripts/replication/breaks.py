"""Cores that forget one rule each: for stories that show what it is for, and to test the tests.

Not here: whether they are found (`tests/unit/replication/test_leader_breaks_properties.py`).
"""

from __future__ import annotations

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import FIRST_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.replication.follower import FollowerCore, FollowerState, Step
from ottla.replication.leader import IsrProposal, LeaderCore
from ottla.replication.progress import FetchClaim, Verdict


class ShrinksEarly(LeaderCore):
    """Rule 31: it does not wait for those whom it wants to leave, before they may."""

    def _count(self) -> None:
        wanted = self.isr if self.proposed is None else self.proposed.members
        for follower in self._others:
            follower.is_counted = follower.replica in wanted


class ExpandsLate(LeaderCore):
    """Rule 31: who is proposed does not count before the metadata says so."""

    def _count(self) -> None:
        for follower in self._others:
            follower.is_counted = follower.is_in_isr


class ForgetsDoubt(LeaderCore):
    """Rule 38: a refusal ends a proposal, though an earlier copy of it is still under way."""

    def answered(self, proposal: IsrProposal, code: ErrorCode, now_ms: int) -> None:
        super().answered(proposal, code, now_ms)
        self._is_in_doubt = False


class RevertsOnTimeOut(LeaderCore):
    """Rule 38: it takes silence for a no."""

    def answered(self, proposal: IsrProposal, code: ErrorCode, now_ms: int) -> None:
        refused = ErrorCode.OPERATION_NOT_ATTEMPTED
        super().answered(proposal, refused if code is ErrorCode.REQUEST_TIMED_OUT else code, now_ms)


class NoMinimum(LeaderCore):
    """Rule 29: the high watermark moves, however few are in sync."""

    def _advance(self, now_ms: int) -> None:
        is_above, self._is_above_min = self._is_above_min, True
        super()._advance(now_ms)
        self._is_above_min = is_above


class NoEpochStart(LeaderCore):
    """Rule 37: whoever has passed the high watermark may join."""

    def __init__(self, *positional: object, **named: object) -> None:
        super().__init__(*positional, **named)  # type: ignore[arg-type]
        self.epoch_start = FIRST_OFFSET  # type: ignore[misc]


class OldLivesCount(LeaderCore):
    """Rules 33 and 37: it does not look at broker epochs."""

    def fetched(
        self,
        replica: BrokerId,
        broker_epoch: int,
        claim: FetchClaim,
        start_offset: Offset,
        now_ms: int,
    ) -> Verdict:
        follower = self._followers.get(replica)
        known = broker_epoch if follower is None else follower.registered_epoch
        return super().fetched(replica, known, claim, start_offset, now_ms)


class CountsUnsynced(FollowerCore):
    """Rule 47: it claims what is not on its disk."""

    def next_step(self, now_ms: int) -> Step | None:
        step = super().next_step(now_ms)
        if isinstance(step, FetchClaim):
            return step._replace(held_offset=step.fetch_offset)
        return step


class NoSyncAtLeader(LeaderCore):
    """Rule 47: the leader's own share is not synced either."""

    def progressed(self, end_offset: Offset, held_offset: Offset, now_ms: int) -> None:
        super().progressed(end_offset, end_offset, now_ms)


class CutsAtHighWatermark(FollowerCore):
    """Rule 43: it goes back to its high watermark whenever it begins to follow (KIP-101)."""

    def follow(
        self, leader_epoch: LeaderEpoch, *, is_led: bool, last_unclean_epoch: LeaderEpoch
    ) -> None:
        is_new = leader_epoch > self.leader_epoch
        super().follow(leader_epoch, is_led=is_led, last_unclean_epoch=last_unclean_epoch)
        is_ahead = self.end_offset > self.high_watermark
        if is_new and is_ahead and self.state is FollowerState.FETCHING:
            self._cut_to(self.high_watermark)


class NeverLooksBack(FollowerCore):
    """Rules 40 to 42: it does not say what its last epoch is."""

    def next_step(self, now_ms: int) -> Step | None:
        step = super().next_step(now_ms)
        if isinstance(step, FetchClaim):
            return step._replace(last_epoch=LeaderEpoch(-1))
        return step
