"""The leader of one partition: what is committed, and what clients are told (rules 21 to 33)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, InvariantError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd
from ottla.replication.progress import NEVER_MS, UNKNOWN_OFFSET
from tests.scripts.replication.led import EPOCH, LAG_MS, Led, view

NONE = ErrorCode.NONE


# ── Becoming leader ───────────────────────────────────────────────────────────────────────────


def test_rule_21_the_epoch_starts_where_the_log_ends() -> None:
    assert Led(view(1, 2, 3), end=10, high_watermark=4).core.epoch_start == 10


def test_rule_22_nothing_is_known_of_followers_and_who_is_in_sync_gets_time() -> None:
    core = Led(view(1, 2)).core
    second, third = core.progress_of(BrokerId(2)), core.progress_of(BrokerId(3))
    assert (second.held_offset, third.held_offset) == (UNKNOWN_OFFSET, UNKNOWN_OFFSET)
    assert (second.caught_up_ms, third.caught_up_ms) == (0, NEVER_MS)


def test_rule_22_metadata_of_the_same_leader_epoch_forgets_nothing() -> None:
    led = Led(view(1, 2, 3))
    led.fetch(2, 10)
    led.learn(1, 2)
    assert led.core.progress_of(BrokerId(2)).held_offset == 10


def test_rule_22_who_is_alone_commits_what_it_has_at_once() -> None:
    assert Led(view(1, min_isr=1), end=10, high_watermark=4).high_watermark == 10


def test_rule_23_until_the_followers_have_come_no_latest_offset_is_known() -> None:
    led = Led(view(1, 2, 3), end=10, high_watermark=4)
    assert led.high_watermark == 4
    assert not led.core.knows_high_watermark
    led.fetch(2, 10)
    led.fetch(3, 9)
    assert led.high_watermark == 9
    assert not led.core.knows_high_watermark
    led.fetch(3, 10)
    assert led.core.knows_high_watermark


@pytest.mark.parametrize("isr", [(2, 3), (1, 4)])
def test_rule_69_a_leader_is_in_sync_and_who_is_in_sync_is_a_replica(isr: tuple[int, ...]) -> None:
    with pytest.raises(InvariantError):
        Led(view(*isr))


def test_rule_69_a_high_watermark_above_the_log_stops_the_show() -> None:
    with pytest.raises(InvariantError):
        Led(view(1, 2, 3), end=10, high_watermark=11)


# ── What every replica has ────────────────────────────────────────────────────────────────────


def test_what_every_replica_has_is_what_the_slowest_has_said_in_sync_or_not() -> None:
    led = Led(view(1, 2), end=10)
    assert led.core.held_by_all == 0, "nobody was heard of"
    led.fetch(2, 10)
    assert led.core.held_by_all == 0, "one is away"
    led.fetch(3, 4)
    assert led.core.held_by_all == 4
    led.fetch(3, 9)
    assert led.core.held_by_all == 9


# ── acks ──────────────────────────────────────────────────────────────────────────────────────

MEMBERS = {3: (1, 2, 3), 2: (1, 2), 1: (1,)}


@pytest.mark.parametrize("in_sync", [3, 2, 1])
@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_rules_25_27_29_acks_all_by_size_of_the_isr_and_minimum(in_sync: int, min_isr: int) -> None:
    led = Led(view(*MEMBERS[in_sync], min_isr=min_isr))
    if in_sync < min_isr:
        assert led.core.refusal_of_all() is ErrorCode.NOT_ENOUGH_REPLICAS
        return
    assert led.core.refusal_of_all() is None
    led.append(11)
    for replica in MEMBERS[in_sync][1:]:
        assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(11)) is None
        led.fetch(replica, 11)
    assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(11)) is NONE


@pytest.mark.parametrize("in_sync", [3, 2, 1])
@pytest.mark.parametrize("min_isr", [1, 2, 3])
def test_rules_26_29_acks_one_is_appended_and_visible_only_with_the_minimum(
    in_sync: int, min_isr: int
) -> None:
    led = Led(view(*MEMBERS[in_sync], min_isr=min_isr))
    led.append(11)
    for replica in MEMBERS[in_sync][1:]:
        led.fetch(replica, 11)
    assert led.high_watermark == (11 if in_sync >= min_isr else 10)


def test_rule_27_the_minimum_was_lost_after_the_append() -> None:
    led = Led(view(1, 2))
    led.append(11)
    led.fetch(2, 11)
    led.learn(1)
    assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(11)) is (
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    )


def test_rule_27_what_is_not_committed_yet_waits_though_the_minimum_was_lost() -> None:
    led = Led(view(1, 2))
    led.append(11)
    led.learn(1)
    assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(11)) is None


def test_rule_27_a_lowered_minimum_lets_the_waiting_go_on() -> None:
    led = Led(view(1))
    led.append(11)
    assert led.high_watermark == 10
    led.told(min_isr=1)
    assert led.high_watermark == 11
    led.told(min_isr=2)
    assert led.core.refusal_of_all() is ErrorCode.NOT_ENOUGH_REPLICAS


def test_rule_69_a_proposed_member_does_not_make_up_the_minimum() -> None:
    led = Led(view(1, 2))
    led.append(11)
    led.fetch(2, 11)
    led.learn(1)
    led.fetch(2, 11)
    assert led.core.maximal_isr == {1, 2}
    assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(11)) is (
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    )


def test_rule_28_what_another_epoch_appended_is_not_acknowledged_in_this_one() -> None:
    led = Led(view(1, 2))
    led.fetch(2, 10)
    older = led.core.outcome_of_all(LeaderEpoch(EPOCH - 2), Offset(5))
    assert older is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rule_28_another_leader_epoch_ends_everything() -> None:
    led = Led(view(1, 2))
    led.append(11)
    led.learn(1, 2, leader_epoch=LeaderEpoch(EPOCH + 1))
    assert led.core.is_over
    assert led.fetch(2, 11) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.core.refusal_of_all() is ErrorCode.NOT_LEADER_OR_FOLLOWER
    told = led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(5))
    assert told is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_rule_28_a_leader_whose_epoch_is_over_commits_nothing_even_alone() -> None:
    led = Led(view(1, min_isr=1))
    led.learn(1, leader_epoch=LeaderEpoch(EPOCH + 1))
    led.append(11)
    assert led.high_watermark == 10
    assert led.core.outcome_of_all(LeaderEpoch(EPOCH), Offset(5)) is (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )


# ── The high watermark ────────────────────────────────────────────────────────────────────────


def test_rule_30_the_slowest_in_sync_decides() -> None:
    led = Led(view(1, 2, 3))
    led.append(20)
    led.fetch(2, 18)
    assert led.high_watermark == 10
    led.fetch(3, 15)
    assert led.high_watermark == 15
    led.fetch(3, 20)
    assert led.high_watermark == 18


def test_rule_30_it_never_falls() -> None:
    led = Led(view(1, 2))
    led.append(20)
    led.fetch(2, 20)
    led.fetch(2, 12)
    assert led.high_watermark == 20


def test_rule_30_it_waits_for_a_follower_that_is_about_to_join() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    # It is not proposed any more, but will be with one of its next fetches.
    led.answer(led.send(), ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert led.core.maximal_isr == {1, 2}
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 10
    led.fetch(3, 15)
    assert led.high_watermark == 15
    led.wait(LAG_MS + 1)
    led.append(21)
    assert led.high_watermark == 20


def test_rule_30_it_does_not_wait_for_one_that_is_fenced_or_far_behind() -> None:
    led = Led(view(1, 2, active=frozenset({1, 2})))
    led.fetch(3, 10)
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 20
    led.told(active=frozenset({1, 2, 3}))
    led.wait(LAG_MS + 1)
    led.append(30)
    led.fetch(2, 30)
    assert led.high_watermark == 30


def test_rule_30_it_does_not_wait_for_a_follower_that_has_just_restarted() -> None:
    led = Led(view(1, 2, 3))
    led.fetch(3, 10)
    led.learn(1, 2, broker_epochs={1: 11, 2: 12, 3: 33})
    assert led.fetch(3, 4, broker_epoch=33) is None
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 20


def test_rule_47_the_leader_counts_only_what_it_has_synced() -> None:
    led = Led(view(1, 2, 3))
    led.append(20, held=10)
    led.fetch(2, 20)
    led.fetch(3, 20)
    assert led.high_watermark == 10
    led.append(20, held=17)
    assert led.high_watermark == 17


def test_rule_47_a_follower_counts_only_what_it_has_synced() -> None:
    led = Led(view(1, 2, 3))
    led.append(20)
    led.fetch(2, 15, fetch_offset=20)
    led.fetch(3, 20)
    assert led.high_watermark == 15


def test_rule_47_a_claim_from_the_page_cache_does_not_count_with_fsync() -> None:
    led = Led(view(1, 2))
    led.append(20)
    assert led.fetch(2, 20, is_synced=False) is None
    assert led.high_watermark == 10
    led.fetch(2, 20)
    assert led.high_watermark == 20


def test_rule_47_after_a_change_to_fsync_old_claims_do_not_count() -> None:
    led = Led(view(1, 2, 3, is_fsync=False, is_durable=False))
    led.append(20)
    led.fetch(2, 20, is_synced=False)
    led.fetch(3, 15, is_synced=False)
    assert led.high_watermark == 15
    led.learn(1, 2, 3, is_fsync=True)
    led.fetch(3, 20)
    led.fetch(2, 20, is_synced=False)
    assert led.high_watermark == 15
    led.fetch(2, 20)
    assert led.high_watermark == 20


def test_rule_69_a_leaders_log_is_not_cut() -> None:
    with pytest.raises(InvariantError):
        Led(view(1, 2)).append(9)


# ── Fetches ───────────────────────────────────────────────────────────────────────────────────


def test_rule_33_a_fetch_of_an_earlier_life_is_refused() -> None:
    led = Led(view(1, 2))
    assert led.fetch(2, 10, broker_epoch=3) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.core.progress_of(BrokerId(2)).held_offset == UNKNOWN_OFFSET


def test_rule_33_a_later_life_than_the_metadata_has_is_served_and_ends_the_earlier_one() -> None:
    led = Led(view(1, 2))
    led.append(20)
    led.fetch(2, 15)
    assert led.fetch(2, 4, broker_epoch=99) is None
    second = led.core.progress_of(BrokerId(2))
    assert (second.held_offset, second.caught_up_ms) == (4, NEVER_MS)
    assert led.fetch(2, 20) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert led.high_watermark == 15


@pytest.mark.parametrize(
    ("replica", "leader_epoch", "code"),
    [
        (2, EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (2, EPOCH + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, EPOCH - 1, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_rule_39_who_fetches_in_another_epoch_or_is_a_stranger(
    replica: int, leader_epoch: int, code: ErrorCode
) -> None:
    assert Led(view(1, 2)).fetch(replica, 10, leader_epoch=leader_epoch) is code


def test_rule_41_a_fetch_that_diverges_changes_nothing() -> None:
    led = Led(view(1, 2))
    led.append(20)
    told = led.fetch(2, 15, last_epoch=4)
    assert told == EpochEnd(LeaderEpoch(2), Offset(10))
    second = led.core.progress_of(BrokerId(2))
    assert (second.held_offset, second.fetched_ms) == (UNKNOWN_OFFSET, NEVER_MS)
    assert led.high_watermark == 10


def test_rule_46_a_fetch_below_the_start_is_out_of_range_and_changes_nothing() -> None:
    led = Led(view(1, 2))
    assert led.fetch(2, 3, start=5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert led.core.progress_of(BrokerId(2)).held_offset == UNKNOWN_OFFSET
