"""Rules that are undone on purpose: the simulator must notice each of them.

Chaos.md B6 asks for seven, and six of them are here: acknowledging before replication, a local
shrink, cutting to the high watermark, no look at the epoch's start, no sync, no sequences. The
seventh, a last stable offset that is inclusive, is not: no transactions are simulated here. It is
undone in real nodes (`make mutants`); the high watermark, inclusive, stands in its place.
Those that forget one rule of a core are shared with the small world of copies
(`tests/scripts/replication/breaks.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ottla.controller import brokers as controller_brokers
from ottla.controller import state
from ottla.controller.commands import UnfenceBroker
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, Offset
from ottla.proto.records.header import read_header
from ottla.proto.replication import decode_answer
from ottla.replication import replica as replica_module
from ottla.replication.epochs import EpochEnd
from ottla.replication.follower import Cut, FollowerCore, FollowerState
from ottla.replication.leader import LeaderCore
from ottla.replication.log import append as append_module
from ottla.replication.log.incoming import checked_headers
from ottla.replication.log.sync import SyncJob
from ottla.replication.producers import ProducerStates
from ottla.replication.progress import FetchClaim, Verdict
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica
from ottla.replication.waiters import Waiters
from tests.scripts.replication.breaks import (
    CountsUnsynced,
    CutsAtHighWatermark,
    ExpandsLate,
    ForgetsDoubt,
    NeverLooksBack,
    NoEpochStart,
    NoMinimum,
    NoSyncAtLeader,
    OldLivesCount,
    RevertsOnTimeOut,
    ShrinksEarly,
)
from tests.sim.replication.broker import BrokerProcess


class Patch(Protocol):
    """What `pytest.MonkeyPatch` does."""

    def setattr(self, target: object, name: str, value: object) -> None: ...


class HighWatermarkInclusive(LeaderCore):
    """Rules 30 and 57: one record more than all have."""

    def _advance(self, now_ms: int) -> None:
        super()._advance(now_ms)
        if self._is_above_min and not self.is_over and self.high_watermark < self.end_offset:
            self.high_watermark = Offset(self.high_watermark + 1)


class CountsDiverged(LeaderCore):
    """Rule 41: a follower whose log is another one counts for as long as its log is."""

    def fetched(
        self,
        replica: BrokerId,
        broker_epoch: int,
        claim: FetchClaim,
        start_offset: Offset,
        now_ms: int,
    ) -> Verdict:
        verdict = super().fetched(replica, broker_epoch, claim, start_offset, now_ms)
        if isinstance(verdict, EpochEnd):
            held = Offset(min(claim.held_offset, self.end_offset))
            self._followers[replica].took(held, self.end_offset, now_ms)
            self._advance(now_ms)
        return verdict


class SwearsTooSoon(LeaderCore):
    """Rule 8: it says that all have synced as soon as the topic is changed to fsync."""

    def _can_swear(self, members: Iterable[BrokerId]) -> bool:
        return self.view.is_fsync


class AnyAnswerWillDo(FollowerCore):
    """Rule 45: an answer counts whatever leader epoch and offset it was asked for."""

    def accepts(self, claim: FetchClaim) -> bool:
        return self.state is FollowerState.FETCHING


class AheadOfItsDisk(FollowerCore):
    """Rule 45: what a follower shows as committed is not on its own disk."""

    def _hold(self, held_offset: Offset) -> None:
        super()._hold(held_offset)
        known = min(self._leader_high_watermark, self.end_offset)
        self.high_watermark = max(self.high_watermark, known)


class CutsAnything(FollowerCore):
    """Rule 44: it obeys a leader that lacks what is committed."""

    def _cut_to(self, offset: Offset) -> None:
        if offset < self.start_offset:
            self._reset(offset)
            return
        self._step = Cut(offset, offset < self.high_watermark)
        self.state = FollowerState.TRUNCATING


def lead_with(broken: type[LeaderCore]) -> Callable[[Patch], None]:
    def undo(patch: Patch) -> None:
        patch.setattr(replica_module, "LeaderCore", broken)

    undo.__name__ = broken.__name__
    return undo


def follow_with(broken: type[FollowerCore]) -> Callable[[Patch], None]:
    def undo(patch: Patch) -> None:
        patch.setattr(replica_module, "FollowerCore", broken)

    undo.__name__ = broken.__name__
    return undo


def acknowledge_before_replication(patch: Patch) -> None:
    """Rule 27: acks=all is answered like acks=1."""

    def when_committed(replica: Replica, offset: Offset, waiter: Any) -> ErrorCode | None:
        return ErrorCode.NONE if replica.when_held(offset, waiter) else None

    patch.setattr(Replica, "when_committed", when_committed)


def never_sync(patch: Patch) -> None:
    """Rule 47: a sync says "done", and nothing is on the disk."""
    patch.setattr(SyncJob, "run", lambda job: None)
    leave_syncs_to_us(patch)


def leave_syncs_to_us(patch: Patch) -> None:
    """No rule: the kernel would sync by itself, and pass by what is undone in `SyncJob`."""
    patch.setattr(SyncJob, "begin_in_kernel", lambda job: None)


def wait_beyond_the_epoch(patch: Patch) -> None:
    """Rule 28: who waits for acks=all goes on waiting when the leader is another one."""
    patch.setattr(Waiters, "fail", lambda waiters, error: None)


def forget_sequences(patch: Patch) -> None:
    """Rule 61: a retry is a new batch."""
    patch.setattr(ProducerStates, "check", lambda states, header: None)


def append_whatever_comes(patch: Patch) -> None:
    """Rule 45: nobody looks whether an answer is the one that was asked for.

    Four look: the stream at its number, the puller and the core at epoch and offset, the log at the
    offset of the batch. Any three of them can be missed.
    """
    take, take_part = Puller.take, Puller._take_part

    def take_any(puller: Puller, answer: bytes) -> None:
        puller._has_fetch, puller._number = True, decode_answer(answer).number - 1
        take(puller, answer)

    def take_any_part(puller: Puller, followed: Any, part: Any) -> None:
        epoch, offset = part.leader_epoch, part.fetch_offset
        followed.claim = FetchClaim(epoch, offset, offset, epoch)
        take_part(puller, followed, part)

    def check_nothing(batches: memoryview, **how: Any) -> Any:
        how["end_offset"] = read_header(batches).base_offset if len(batches) > 61 else 0
        return checked_headers(batches, **how)

    patch.setattr(Puller, "take", take_any)
    patch.setattr(Puller, "_take_part", take_any_part)
    patch.setattr(append_module, "checked_headers", check_nothing)
    follow_with(AnyAnswerWillDo)(patch)


def append_below_the_minimum(patch: Patch) -> None:
    """Rule 25: acks=all is taken however few are in sync, and acknowledged so."""
    patch.setattr(LeaderCore, "refusal_of_all", lambda core: None)
    outcome_of_all = LeaderCore.outcome_of_all

    def outcome(core: LeaderCore, *given: Any) -> ErrorCode | None:
        found = outcome_of_all(core, *given)
        is_few = found is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE if is_few else found

    patch.setattr(LeaderCore, "outcome_of_all", outcome)


def serve_when_cut_off(patch: Patch) -> None:
    """Rule 13: a leader that hears from nobody goes on."""
    patch.setattr(BrokerProcess, "may_serve", lambda broker, replica: replica.is_leader)


def keep_claims_of_damaged_logs(patch: Patch) -> None:
    """Rule 8: nobody is told what a start has found."""
    unfence = controller_brokers.unfence_broker

    def undamaged(image: Any, command: Any) -> Any:
        return unfence(image, replace(command, damaged={}))

    patch.setattr(state, "_TABLE", {**state._TABLE, UnfenceBroker: undamaged})


def keep_claims_of_other_lives(patch: Patch) -> None:
    """Rules 8 and 54: whoever registers keeps its claim, on whatever disk."""
    patch.setattr(controller_brokers, "_keeps_claim", lambda old, command, partition: True)


def obey_whom_one_should_not(patch: Patch) -> None:
    """Rules 44 and 54 together: an empty disk leads, and the others cut their logs for it."""
    keep_claims_of_other_lives(patch)
    follow_with(CutsAnything)(patch)


@dataclass(frozen=True, slots=True)
class Break:
    """One rule undone, the family of seeds that is mostly about it, and what it may break first."""

    undo: Callable[[Patch], None]
    family: str
    rules: tuple[str, ...]


BREAKS = (
    Break(acknowledge_before_replication, "everything", ("I4",)),
    Break(lead_with(ShrinksEarly), "cuts", ("I3",)),
    Break(follow_with(CutsAtHighWatermark), "deaths", ("I3", "I2")),
    Break(lead_with(NoEpochStart), "handovers", ("I3",)),
    Break(lead_with(HighWatermarkInclusive), "everything", ("I1", "I2", "I3")),
    Break(never_sync, "deaths", ("I3", "I10")),
    Break(forget_sequences, "everything", ("I6",)),
    Break(follow_with(CountsUnsynced), "everything", ("I3", "I4")),
    Break(lead_with(NoSyncAtLeader), "everything", ("I1", "I3", "I4")),
    Break(follow_with(AheadOfItsDisk), "everything", ("I1",)),
    Break(lead_with(CountsDiverged), "proposals", ("I2", "I3", "I4")),
    Break(lead_with(SwearsTooSoon), "pagecache", ("I3",)),
    Break(wait_beyond_the_epoch, "proposals", ("I4",)),
    Break(lead_with(NoMinimum), "cuts", ("I3",)),
    Break(append_below_the_minimum, "cuts", ("I4",)),
    Break(lead_with(ExpandsLate), "proposals", ("I3",)),
    Break(lead_with(OldLivesCount), "losses", ("I3",)),
    Break(lead_with(ForgetsDoubt), "proposals", ("I3",)),
    Break(lead_with(RevertsOnTimeOut), "proposals", ("I3",)),
    Break(append_whatever_comes, "frames", ("I1", "I2", "I3", "I6", "I10")),
    Break(follow_with(NeverLooksBack), "deaths", ("I2", "I3", "I5", "I10")),
    Break(serve_when_cut_off, "cuts", ("I8",)),
    Break(keep_claims_of_damaged_logs, "losses", ("I3",)),
    Break(keep_claims_of_other_lives, "losses", ("I3", "I10")),
    Break(obey_whom_one_should_not, "losses", ("I3", "I2")),
)
