"""What a leader makes of a follower's fetch (rules 39 to 41)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory, EpochStart
from ottla.replication.progress import FetchClaim, Verdict, judge_fetch

# The leader of epoch 7 has offsets 5 to 40, written in epochs 2, 4 and 7.
HISTORY = ((2, 5), (4, 20), (7, 30))


def judged(
    fetch_offset: int,
    last_epoch: int,
    *,
    epoch: int = 7,
    held: int | None = None,
    history: tuple[tuple[int, int], ...] = HISTORY,
    start: int = 5,
    end: int = 40,
) -> Verdict:
    claim = FetchClaim(
        LeaderEpoch(epoch),
        Offset(fetch_offset),
        Offset(fetch_offset if held is None else held),
        LeaderEpoch(last_epoch),
    )
    epochs = EpochHistory(EpochStart(LeaderEpoch(e), Offset(o)) for e, o in history)
    return judge_fetch(claim, epochs, LeaderEpoch(7), Offset(start), Offset(end))


def ends(epoch: int, end: int) -> EpochEnd:
    return EpochEnd(LeaderEpoch(epoch), Offset(end))


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch"), [(40, 7), (35, 7), (30, 4), (25, 4), (20, 2), (5, 2), (5, -1)]
)
def test_rule_40_a_log_that_agrees_is_served(fetch_offset: int, last_epoch: int) -> None:
    assert judged(fetch_offset, last_epoch) is None


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "end"),
    [
        (41, 7, ends(7, 40)),  # ahead of its leader
        (31, 4, ends(4, 30)),  # epoch 4 ended earlier here
        (25, 2, ends(2, 20)),
        (25, 3, ends(2, 20)),  # there was no epoch 3 here
        (30, 6, ends(4, 30)),
        (20, 3, ends(2, 20)),  # as long, and another last record
        (15, 1, ends(1, 5)),  # older than all that is known here
    ],
)
def test_rule_41_where_logs_part(fetch_offset: int, last_epoch: int, end: EpochEnd) -> None:
    assert judged(fetch_offset, last_epoch) == end


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch"),
    [
        (4, 2),  # below the start
        (4, 1),
        (41, -1),  # above the end, without an epoch to compare
        (40, 8),  # an epoch from the future
    ],
)
def test_rules_40_46_out_of_range(fetch_offset: int, last_epoch: int) -> None:
    assert judged(fetch_offset, last_epoch) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_rule_39_the_epoch_is_looked_at_first() -> None:
    assert judged(99, 99, epoch=6) is ErrorCode.FENCED_LEADER_EPOCH
    assert judged(99, 99, epoch=8) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_rule_47_nobody_holds_more_than_it_has() -> None:
    assert judged(30, 4, held=31) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "verdict"),
    [
        (40, 4, None),
        (43, 4, ends(4, 40)),
        (43, 6, ends(4, 40)),  # a dead leader's epoch that was never seen here
        (40, 6, ends(4, 40)),
        (40, 7, None),
    ],
)
def test_rule_21_an_epoch_in_which_nothing_was_appended_yet_needs_no_entry(
    fetch_offset: int, last_epoch: int, verdict: Verdict
) -> None:
    assert judged(fetch_offset, last_epoch, history=HISTORY[:2]) == verdict
    with_entry = (*HISTORY[:2], (7, 40))
    assert judged(fetch_offset, last_epoch, history=with_entry) == verdict


def test_rule_40_an_empty_leader_sends_its_followers_back_to_its_start() -> None:
    assert judged(9, 3, history=(), start=0, end=0) == ends(3, 0)
    assert judged(9, 3, history=((7, 0),), start=0, end=0) == ends(3, 0)
