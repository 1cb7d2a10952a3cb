"""Who is in sync with a leader, and how that is agreed on (rules 31, 34 to 38)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, InvariantError
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.replication.leader import IsrProposal
from tests.scripts.replication.led import EPOCH, LAG_MS, Led, proposed, view

NONE = ErrorCode.NONE
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT


# ── The in-sync set ───────────────────────────────────────────────────────────────────────────


def test_rule_34_who_has_reached_the_end_is_caught_up_now() -> None:
    led = Led(view(1, 2))
    led.now_ms = 500
    led.fetch(2, 10)
    assert led.core.progress_of(BrokerId(2)).caught_up_ms == 500


def test_rule_34_who_has_reached_the_end_of_its_previous_fetch_was_caught_up_then() -> None:
    led = Led(view(1, 2))
    led.append(20)
    led.now_ms = 500
    led.fetch(2, 10)
    led.append(30)
    led.now_ms = 700
    led.fetch(2, 20)
    assert led.core.progress_of(BrokerId(2)).caught_up_ms == 500


def test_rule_34_a_disk_that_syncs_two_fetches_late_is_still_caught_up() -> None:
    led = Led(view(1, 2))
    for turn in range(1, 100):
        led.append(10 * turn + 10)
        led.now_ms += 100
        led.fetch(2, max(0, 10 * turn - 10), fetch_offset=10 * turn)
        led.core.check_isr(led.now_ms)
    assert proposed(led) is None
    assert led.now_ms - led.core.progress_of(BrokerId(2)).caught_up_ms <= 400


def test_rule_34_a_follower_that_falls_ever_further_behind_is_not_caught_up() -> None:
    led = Led(view(1, 2))
    held = 0
    while proposed(led) is None:
        led.append(led.core.end_offset + 100)
        held += 10
        led.now_ms += 100
        led.fetch(2, held)
        led.core.check_isr(led.now_ms)
    assert led.now_ms <= 2 * LAG_MS
    assert proposed(led) == (1,)


def test_rule_35_who_has_everything_stays_in_sync_though_it_is_silent() -> None:
    led = Led(view(1, 2))
    led.fetch(2, 10)
    led.wait(100 * LAG_MS)
    assert proposed(led) is None


@pytest.mark.parametrize("since_ms", range(0, LAG_MS // 2, 99))
def test_rule_36_who_stops_is_proposed_away_within_one_and_a_half_times_the_lag(
    since_ms: int,
) -> None:
    led = Led(view(1, 2, 3))
    led.now_ms = since_ms
    led.fetch(2, 10)
    led.fetch(3, 10)
    led.append(20)
    led.fetch(3, 10)
    interval_ms = led.core.check_interval_ms
    checked_ms = 0
    while proposed(led) is None:
        checked_ms += interval_ms
        led.now_ms = checked_ms
        led.fetch(3, 20)
        led.core.check_isr(led.now_ms)
    assert proposed(led) == (1, 3)
    assert LAG_MS < led.now_ms - since_ms <= 1.5 * LAG_MS


def test_rule_36_nothing_is_proposed_while_a_change_is_under_way() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    assert proposed(led) == (1, 2, 3)
    led.append(20)
    led.wait(10 * LAG_MS)
    assert proposed(led) == (1, 2, 3)


def test_rule_37_nobody_joins_while_a_change_is_under_way() -> None:
    led = Led(view(1, 2, min_isr=1))
    led.append(20)
    led.wait(LAG_MS + 1)
    assert proposed(led) == (1,)
    led.fetch(3, 20)
    assert proposed(led) == (1,)
    led.learn(1)
    led.fetch(3, 20)
    assert proposed(led) == (1, 3)


def test_rule_37_a_follower_joins_past_the_high_watermark_and_the_start_of_the_epoch() -> None:
    led = Led(view(1, 2, min_isr=1), end=10, high_watermark=4)
    led.fetch(3, 3)
    assert proposed(led) is None
    led.fetch(3, 4)
    assert proposed(led) is None
    led.fetch(3, 9)
    assert proposed(led) is None
    led.fetch(3, 10)
    assert led.send() == IsrProposal(LeaderEpoch(EPOCH), 1, ((1, 11), (2, -1), (3, 13)))  # type: ignore[arg-type]


def test_rule_37_a_follower_below_the_high_watermark_does_not_join() -> None:
    led = Led(view(1, 2))
    led.append(20)
    led.fetch(2, 20)
    led.fetch(3, 19)
    assert proposed(led) is None
    led.fetch(3, 20)
    assert proposed(led) == (1, 2, 3)


def test_rule_37_what_it_has_not_synced_does_not_let_it_join() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 9, fetch_offset=10)
    assert proposed(led) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"active": frozenset({1, 2})},
        {"broker_epochs": {1: 11, 2: 12, 3: 7}},
        {"broker_epochs": {1: 11, 2: 12}},
    ],
    ids=["fenced or shutting down", "metadata has an earlier life", "not registered"],
)
def test_rule_37_who_is_not_eligible_does_not_join(changes: dict[str, object]) -> None:
    led = Led(view(1, 2, **changes))  # type: ignore[arg-type]
    assert led.fetch(3, 10) is None
    assert proposed(led) is None
    led.told(active=frozenset({1, 2, 3}), broker_epochs={1: 11, 2: 12, 3: 13})
    led.fetch(3, 10)
    assert proposed(led) == (1, 2, 3)


def test_rule_31_a_member_counts_until_the_metadata_says_it_has_left() -> None:
    led = Led(view(1, 2, 3))
    led.append(20)
    led.wait(LAG_MS + 1)
    led.fetch(2, 20)
    assert proposed(led) == (1,)
    led.answer(led.send(), NONE)
    assert led.high_watermark == 10
    led.learn(1, 2)
    assert led.high_watermark == 20


def test_rule_31_who_is_proposed_counts_at_once() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    assert led.core.maximal_isr == {1, 2, 3}
    led.wait(2 * LAG_MS)
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 10


# ── Answers ───────────────────────────────────────────────────────────────────────────────────


def test_rule_38_a_granted_proposal_waits_for_the_metadata() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    led.answer(led.send(), NONE)
    assert led.core.isr == (1, 2)
    assert led.core.maximal_isr == {1, 2, 3}
    led.learn(1, 2, 3)
    assert set(led.core.isr) == {1, 2, 3}
    assert led.core.proposed is None


def test_rule_38_a_shrink_is_not_applied_before_a_minimum_that_was_raised_earlier() -> None:
    led = Led(view(1, 2, min_isr=1))
    led.append(20)
    led.wait(LAG_MS + 1)
    led.answer(led.send(), NONE)
    assert led.high_watermark == 10
    led.learn(1, min_isr=2)
    assert led.high_watermark == 10


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_rule_38_a_refused_proposal_is_given_up(code: ErrorCode) -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    led.answer(led.send(), code)
    assert led.core.maximal_isr == {1, 2}
    assert led.core.proposed is None
    # Not again with the very next fetch.
    led.fetch(3, 10)
    assert led.core.proposed is None
    led.wait(led.core.check_interval_ms)
    led.fetch(3, 10)
    assert proposed(led) == (1, 2, 3)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_rule_38_an_overtaken_proposal_waits_for_the_metadata(code: ErrorCode) -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    led.answer(led.send(), code)
    assert led.core.unsent is None
    assert led.core.maximal_isr == {1, 2, 3}
    led.learn(1, 2)
    assert led.core.maximal_isr == {1, 2}


@pytest.mark.parametrize("code", [TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION])
def test_rule_38_an_unknown_outcome_is_asked_for_again(code: ErrorCode) -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    proposal = led.send()
    led.answer(proposal, code)
    assert led.core.unsent is proposal
    assert led.core.maximal_isr == {1, 2, 3}


def test_rule_38_after_an_unknown_outcome_a_refusal_is_not_the_last_word() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    proposal = led.send()
    led.answer(proposal, TIMED_OUT)
    led.send()
    led.answer(proposal, ErrorCode.INELIGIBLE_REPLICA)
    # The first copy may still be committed. The same set again, and whatever is first, decides.
    assert led.core.maximal_isr == {1, 2, 3}
    led.fetch(2, 10)
    led.wait(led.core.check_interval_ms)
    assert proposed(led) == (1, 2)
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 10
    led.learn(1, 2)
    assert led.core.maximal_isr == {1, 2}


def test_rule_38_once_the_metadata_has_settled_it_there_is_no_doubt() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    led.answer(led.send(), TIMED_OUT)
    led.fetch(2, 10)
    led.learn(1, 2, 3)
    led.wait(led.core.check_interval_ms)
    assert proposed(led) is None


def test_rule_38_what_waited_for_somebody_who_was_refused_is_committed_then() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    proposal = led.send()
    # The metadata has 3 fenced, at the same partition epoch: it may still be committed.
    led.told(active=frozenset({1, 2}))
    led.append(20)
    led.fetch(2, 20)
    assert led.high_watermark == 10
    led.answer(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert led.high_watermark == 20


def test_rule_38_who_was_refused_is_proposed_again_once_the_metadata_has_changed() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    led.answer(led.send(), ErrorCode.INELIGIBLE_REPLICA)
    led.told(active=frozenset({1, 2, 3, 4}))
    led.fetch(3, 10)
    assert proposed(led) == (1, 2, 3)


def test_a_leader_whose_epoch_is_over_proposes_nothing() -> None:
    led = Led(view(1, 2))
    led.append(20)
    led.learn(1, 2, leader_epoch=LeaderEpoch(EPOCH + 1))
    led.wait(10 * LAG_MS)
    assert led.core.unsent is None


def test_rule_38_an_answer_to_what_is_settled_is_ignored() -> None:
    led = Led(view(1, 2))
    led.fetch(3, 10)
    proposal = led.send()
    led.learn(1, 2)
    led.fetch(3, 10)
    again = led.core.proposed
    led.answer(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert led.core.proposed is again
    assert again is not None
    assert again.partition_epoch == 2


def test_rule_4_older_metadata_is_left_alone() -> None:
    led = Led(view(1, 2, 3, partition_epoch=7))
    led.core.adopt(view(1, partition_epoch=6), 0)
    led.core.adopt(view(1, partition_epoch=9, leader_epoch=LeaderEpoch(EPOCH - 1)), 0)
    assert led.core.isr == (1, 2, 3)


def test_rule_69_one_partition_epoch_has_one_in_sync_set() -> None:
    led = Led(view(1, 2, 3))
    with pytest.raises(InvariantError):
        led.told(isr=(1, 2))


def test_rule_35_after_a_long_rest_who_had_everything_has_the_whole_lag_for_what_comes() -> None:
    led = Led(view(1, 2))
    led.fetch(2, 10)
    led.now_ms = 100 * LAG_MS
    led.append(11)
    led.core.check_isr(led.now_ms)
    assert proposed(led) is None
    led.now_ms += LAG_MS + 1
    led.append(12)
    led.core.check_isr(led.now_ms)
    assert proposed(led) == (1,)


# ── Words for others ──────────────────────────────────────────────────────────────────────────


def test_rule_8_the_leader_swears_once_all_have_synced_what_the_change_found() -> None:
    led = Led(view(1, 2, is_fsync=False, is_durable=False))
    led.append(20)
    led.fetch(2, 20, is_synced=False)
    led.wait(1)
    assert proposed(led) is None
    led.learn(1, 2, is_fsync=True)
    led.fetch(2, 19, fetch_offset=20)
    led.wait(1)
    assert proposed(led) is None
    led.fetch(2, 20)
    led.append(20, held=19)
    led.wait(1)
    assert proposed(led) is None
    led.append(20)
    led.wait(1)
    assert led.send().is_synced
    led.learn(1, 2, is_durable=True)
    led.wait(1)
    assert proposed(led) is None


def test_rule_8_the_leader_does_not_swear_for_somebody_who_is_eligible_and_away() -> None:
    led = Led(view(1, elr=(2,), is_durable=False))
    led.wait(1)
    assert proposed(led) is None


def test_rule_16_a_leader_that_was_elected_uncleanly_says_that_it_is_in_office() -> None:
    led = Led(view(1, is_recovering=True))
    led.wait(1)
    assert led.send().members == (1,)
    led.learn(1, is_recovering=False)
    led.wait(1)
    assert proposed(led) is None
