"""A follower of one partition: what it fetches, and where it cuts its log (rules 39 to 47)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, InvariantError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory, EpochStart
from ottla.replication.follower import (
    PAUSE_MAX_MS,
    PAUSE_MIN_MS,
    Cut,
    FollowerCore,
    FollowerState,
    Reset,
)
from ottla.replication.progress import FetchClaim

OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


class Followed:
    """A core over a log that is only numbers, and short words for what happens to it."""

    def __init__(
        self,
        *epochs: tuple[int, int],
        end: int = 20,
        held: int | None = None,
        high_watermark: int = 0,
        start: int = 0,
        follows: int = 9,
        unclean: int = -1,
    ) -> None:
        self.epochs = EpochHistory(EpochStart(LeaderEpoch(e), Offset(o)) for e, o in epochs)
        self.core = FollowerCore(
            epochs=self.epochs,
            start_offset=Offset(start),
            end_offset=Offset(end),
            held_offset=Offset(end if held is None else held),
            high_watermark=Offset(high_watermark),
        )
        self.follow(follows, unclean=unclean)

    def follow(self, epoch: int, *, is_led: bool = True, unclean: int = -1) -> None:
        self.core.follow(LeaderEpoch(epoch), is_led=is_led, last_unclean_epoch=LeaderEpoch(unclean))

    def claim(self, now_ms: int = 0) -> FetchClaim:
        step = self.core.next_step(now_ms)
        assert isinstance(step, FetchClaim)
        return step

    def serve(self, end: int, leader: int, *, held: int | None = None, start: int = 0) -> None:
        """Records up to `end` came from a leader whose high watermark is `leader`."""
        claim = self.claim()
        if end > self.core.end_offset:
            self.epochs.assign(self.core.leader_epoch, self.core.end_offset)
        self.core.served(
            claim,
            Offset(end),
            Offset(end if held is None else held),
            leader_high_watermark=Offset(leader),
            leader_start=Offset(start),
        )

    def diverge(self, epoch: int, end: int) -> object:
        """Return the step after the leader has said where an epoch of its log ends."""
        self.core.diverged(self.claim(), EpochEnd(LeaderEpoch(epoch), Offset(end)), 0)
        return self.core.next_step(0)

    def cut(self) -> None:
        """Do what the step says, as a log does."""
        step = self.core.next_step(0)
        assert isinstance(step, Cut)
        self.epochs.truncate_end(step.offset)
        self.core.was_cut(self.core.start_offset, step.offset, step.offset)

    def refuse(self, code: ErrorCode, *, start: int | None = None, end: int | None = None) -> None:
        self.core.refused(
            self.claim(),
            code,
            0,
            leader_start=None if start is None else Offset(start),
            leader_end=None if end is None else Offset(end),
        )


# ── What it fetches ───────────────────────────────────────────────────────────────────────────


def test_rule_40_a_fetch_names_the_end_and_the_last_epoch() -> None:
    assert Followed((2, 0), (4, 10)).claim() == FetchClaim(
        LeaderEpoch(9), Offset(20), Offset(20), LeaderEpoch(4), True
    )


def test_rule_40_a_follower_without_records_names_no_epoch() -> None:
    assert Followed(end=0).claim().last_epoch == -1


def test_rule_47_a_fetch_claims_only_what_is_synced() -> None:
    followed = Followed((2, 0), end=20, held=14)
    assert followed.claim()[1:3] == (20, 14)
    followed.core.progressed(Offset(0), Offset(20), Offset(20))
    assert followed.claim()[1:3] == (20, 20)


def test_without_a_leader_it_waits_for_one() -> None:
    followed = Followed((2, 0))
    followed.follow(10, is_led=False)
    assert followed.core.next_step(0) is None
    followed.follow(11)
    assert followed.claim().leader_epoch == 11


def test_rule_4_an_older_epoch_is_left_alone() -> None:
    followed = Followed((2, 0), follows=9)
    followed.follow(8)
    assert followed.claim().leader_epoch == 9


def test_a_log_that_is_ahead_of_the_metadata_waits_for_newer_metadata() -> None:
    followed = Followed((2, 0), (7, 10), follows=6)
    assert followed.core.state is FollowerState.WAITING
    followed.follow(8)
    assert followed.claim().last_epoch == 7


# ── What it takes ─────────────────────────────────────────────────────────────────────────────


def test_rule_45_what_was_asked_of_another_leader_is_not_taken() -> None:
    followed = Followed((2, 0))
    claim = followed.claim()
    followed.follow(10)
    assert not followed.core.accepts(claim)
    with pytest.raises(InvariantError):
        followed.core.served(
            claim,
            Offset(30),
            Offset(30),
            leader_high_watermark=Offset(30),
            leader_start=Offset(0),
        )


def test_rule_45_what_was_asked_at_another_end_is_not_taken() -> None:
    followed = Followed((2, 0))
    claim = followed.claim()
    followed.serve(25, 20)
    assert not followed.core.accepts(claim)


def test_rule_45_while_a_cut_is_due_nothing_is_taken() -> None:
    followed = Followed((2, 0))
    claim = followed.claim()
    followed.diverge(2, 10)
    assert not followed.core.accepts(claim)


def test_rule_45_the_high_watermark_is_the_leaders_as_far_as_the_log_goes() -> None:
    followed = Followed((2, 0))
    followed.serve(25, 40)
    assert followed.core.high_watermark == 25
    followed.serve(50, 40)
    assert followed.core.high_watermark == 40


def test_rule_45_it_never_falls_though_a_new_leader_knows_less() -> None:
    followed = Followed((2, 0), high_watermark=15)
    followed.serve(25, 3)
    assert followed.core.high_watermark == 15


def test_rule_45_what_the_last_leader_said_is_not_held_against_records_of_the_next_one() -> None:
    followed = Followed((2, 0))
    followed.serve(25, 40)
    followed.follow(10)
    followed.serve(30, 3)
    assert followed.core.high_watermark == 25


def test_a_new_leader_is_asked_at_once() -> None:
    followed = Followed((2, 0))
    followed.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    followed.follow(10)
    assert followed.claim(0).leader_epoch == 10
    followed.core.corrupted(followed.claim(), 0)
    assert followed.core.resume_at_ms == PAUSE_MIN_MS


def test_rule_47_the_high_watermark_waits_for_the_disk() -> None:
    followed = Followed((2, 0), high_watermark=15)
    followed.serve(30, 30, held=20)
    assert followed.core.high_watermark == 20
    followed.core.progressed(Offset(0), Offset(30), Offset(30))
    assert followed.core.high_watermark == 30


def test_rule_45_after_a_wrong_checksum_it_pauses_and_fetches_the_same_again() -> None:
    followed = Followed((2, 0))
    now_ms = 0
    for pause_ms in (PAUSE_MIN_MS, 2 * PAUSE_MIN_MS, 4 * PAUSE_MIN_MS):
        claim = followed.claim(now_ms)
        assert claim.fetch_offset == 20
        followed.core.corrupted(claim, now_ms)
        assert followed.core.next_step(now_ms + pause_ms - 1) is None
        now_ms += pause_ms
    assert followed.core.corrupt_count == 3
    followed.core.resume_at_ms = 0
    followed.serve(25, 20)
    followed.core.corrupted(followed.claim(), 0)
    assert followed.core.resume_at_ms == PAUSE_MIN_MS


def test_a_pause_has_a_bound() -> None:
    followed = Followed((2, 0))
    for _ in range(50):
        followed.core.corrupted(followed.claim(10**9), 0)
    assert followed.core.resume_at_ms == PAUSE_MAX_MS


def test_the_log_may_start_where_the_leaders_does_but_not_above_the_high_watermark() -> None:
    followed = Followed((2, 0))
    followed.serve(30, 30, held=22, start=25)
    assert followed.core.start_due == 22
    followed.core.progressed(Offset(22), Offset(30), Offset(30))
    assert followed.core.start_due == 25


# ── Where it cuts ─────────────────────────────────────────────────────────────────────────────


def test_rule_42_the_same_epoch_ended_earlier_at_the_leader() -> None:
    assert Followed((2, 0), (4, 10)).diverge(4, 15) == Cut(Offset(15))


def test_rule_42_the_epoch_ended_later_at_the_leader() -> None:
    assert Followed((2, 0), (4, 10)).diverge(2, 14) == Cut(Offset(10))


def test_rule_42_an_epoch_that_is_not_here_goes_back_to_the_one_below_and_asks_again() -> None:
    followed = Followed((1, 0), (3, 10), (5, 15))
    assert followed.diverge(4, 13) == Cut(Offset(15))
    followed.cut()
    assert followed.claim()[1:4] == (15, 15, 3)


def test_rule_42_kip_279_several_rounds_find_the_place() -> None:
    followed = Followed((1, 0), (3, 10), (5, 15), (7, 18))
    # The leader has 1@0 2@8 6@12: of 7 it knows 6, of 5 and 3 it knows 2.
    assert followed.diverge(6, 16) == Cut(Offset(18))
    followed.cut()
    assert followed.diverge(2, 12) == Cut(Offset(10))
    followed.cut()
    assert followed.diverge(1, 8) == Cut(Offset(8))
    followed.cut()
    assert followed.claim()[1:4] == (8, 8, 1)


def test_rule_42_an_epoch_in_which_nothing_was_written_is_cut_too() -> None:
    followed = Followed((2, 0), (4, 20), end=20, high_watermark=20)
    assert followed.diverge(2, 20) == Cut(Offset(20))
    followed.cut()
    assert followed.claim().last_epoch == 2


def test_rule_42_a_leader_without_any_of_these_epochs_leaves_nothing() -> None:
    for end in (30, 3):
        followed = Followed((3, 5), (4, 10), start=5, high_watermark=5)
        assert followed.diverge(2, end) == Cut(Offset(5))


@pytest.mark.parametrize(("epoch", "end"), [(4, 20), (4, 30), (5, 7), (-1, 0)])
def test_f4_a_divergence_that_is_none_is_not_asked_for_again_at_once(epoch: int, end: int) -> None:
    followed = Followed((2, 0), (4, 10))
    assert followed.diverge(epoch, end) is None
    assert followed.core.resume_at_ms == PAUSE_MIN_MS


def test_rule_43_a_new_leader_is_no_reason_to_cut() -> None:
    followed = Followed((2, 0), high_watermark=5)
    followed.follow(10)
    assert followed.claim().fetch_offset == 20


def test_a_cut_for_an_earlier_leader_is_not_carried_out() -> None:
    followed = Followed((2, 0), (4, 10))
    followed.diverge(4, 15)
    followed.follow(10)
    assert followed.claim().fetch_offset == 20


def test_a_cut_is_not_carried_out_when_there_is_no_leader_any_more() -> None:
    followed = Followed((2, 0), (4, 10))
    followed.diverge(4, 15)
    followed.follow(10, is_led=False)
    assert followed.core.next_step(0) is None
    with pytest.raises(InvariantError):
        followed.core.was_cut(Offset(0), Offset(15), Offset(15))


def test_rule_44_committed_records_are_not_cut_off() -> None:
    followed = Followed((2, 0), (4, 10), high_watermark=16)
    assert followed.diverge(4, 15) is None
    assert followed.core.state is FollowerState.FAILED
    assert "below 16 are committed" in followed.core.failure
    followed.follow(10)
    assert followed.core.next_step(0) is None


def test_rule_44_unless_an_unclean_election_came_after_all_that_is_here() -> None:
    followed = Followed((2, 0), (4, 10), high_watermark=16, unclean=5)
    assert followed.diverge(4, 12) == Cut(Offset(12), below_high_watermark=True)
    followed.cut()
    assert followed.core.high_watermark == 12


def test_rule_44_an_unclean_election_before_that_is_no_excuse() -> None:
    followed = Followed((2, 0), (4, 10), high_watermark=16, unclean=4)
    followed.diverge(4, 12)
    assert followed.core.state is FollowerState.FAILED


def test_rule_44_a_leader_that_starts_above_what_it_has_committed_is_not_believed() -> None:
    followed = Followed((2, 0), high_watermark=16)
    followed.serve(20, 16, start=18)
    assert followed.core.state is FollowerState.FAILED


# ── Out of range, and other errors ────────────────────────────────────────────────────────────


def test_rule_46_below_the_leaders_start_it_begins_anew_there() -> None:
    followed = Followed((2, 0), end=20, high_watermark=20)
    followed.refuse(OUT_OF_RANGE, start=50, end=90)
    assert followed.core.next_step(0) == Reset(Offset(50))
    followed.epochs.clear()
    followed.core.was_cut(Offset(50), Offset(50), Offset(50))
    assert followed.core.high_watermark == 50
    assert followed.claim()[1:4] == (50, 50, -1)


def test_rule_46_above_the_leaders_end_is_rule_44() -> None:
    followed = Followed((2, 0), end=20, high_watermark=16)
    followed.refuse(OUT_OF_RANGE, start=0, end=15)
    assert followed.core.state is FollowerState.FAILED


def test_rule_46_what_is_not_committed_may_go() -> None:
    followed = Followed((2, 0), end=20, high_watermark=14)
    followed.refuse(OUT_OF_RANGE, start=0, end=15)
    assert followed.core.next_step(0) == Cut(Offset(15))


def test_rule_46_after_an_unclean_election_even_the_start_may_go_back() -> None:
    followed = Followed((2, 10), start=10, end=20, high_watermark=14, unclean=5)
    followed.refuse(OUT_OF_RANGE, start=0, end=7)
    assert followed.core.next_step(0) == Reset(Offset(7))


@pytest.mark.parametrize(("start", "end"), [(0, 20), (0, 50), (20, 50), (None, None)])
def test_rule_46_else_it_fetches_again(start: int | None, end: int | None) -> None:
    followed = Followed((2, 0))
    followed.refuse(OUT_OF_RANGE, start=start, end=end)
    assert followed.core.next_step(0) is None
    assert followed.claim(PAUSE_MIN_MS).fetch_offset == 20


def test_rule_39_a_fenced_follower_waits_for_metadata() -> None:
    followed = Followed((2, 0))
    followed.refuse(ErrorCode.FENCED_LEADER_EPOCH)
    followed.follow(9)
    assert followed.core.next_step(10**9) is None
    followed.follow(10)
    assert followed.claim().leader_epoch == 10


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_rule_39_a_leader_that_does_not_know_it_yet_is_asked_again_soon(code: ErrorCode) -> None:
    followed = Followed((2, 0))
    followed.refuse(code)
    assert followed.core.next_step(0) is None
    assert followed.claim(PAUSE_MIN_MS).leader_epoch == 9


def test_rule_69_only_what_was_fetched_is_appended() -> None:
    with pytest.raises(InvariantError):
        Followed((2, 0)).core.progressed(Offset(0), Offset(21), Offset(20))
