"""Which leader wrote which part of a log, and where two logs part (rules 21, 40, 42)."""

from __future__ import annotations

import pytest

from ottla.proto.errors import InvariantError
from ottla.proto.ids import NO_EPOCH, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory, EpochStart


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochStart(LeaderEpoch(epoch), Offset(at)) for epoch, at in entries)


def test_a_log_without_epochs_knows_none() -> None:
    assert history().latest == NO_EPOCH
    assert history().describe() == "(no epochs)"


def test_an_epoch_begins_where_it_was_assigned() -> None:
    epochs = history((1, 0), (4, 10))
    assert epochs.latest == 4
    assert epochs.describe() == "1@0 4@10"


def test_assigning_the_same_epoch_again_changes_nothing() -> None:
    epochs = history((1, 0))
    assert not epochs.assign(LeaderEpoch(1), Offset(7))
    assert epochs.entries == ((1, 0),)


def test_e1_an_epoch_that_wrote_nothing_gives_way_to_the_next_one() -> None:
    assert history((1, 0), (2, 10), (3, 10)).entries == ((1, 0), (3, 10))


@pytest.mark.parametrize("epoch", [-1, 0, 4])
def test_e1_epochs_never_go_back(epoch: int) -> None:
    with pytest.raises(InvariantError):
        history((5, 0)).assign(LeaderEpoch(epoch), Offset(10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (7, EpochEnd(LeaderEpoch(7), Offset(50))),  # the latest: the end of the log
        (8, None),  # higher than any known
        (-1, None),
        (1, EpochEnd(LeaderEpoch(1), Offset(10))),  # lower than the first known
        (2, EpochEnd(LeaderEpoch(2), Offset(20))),
        (3, EpochEnd(LeaderEpoch(2), Offset(20))),  # unknown: the largest below it
        (4, EpochEnd(LeaderEpoch(4), Offset(30))),
        (6, EpochEnd(LeaderEpoch(4), Offset(30))),
    ],
)
def test_rule_40_where_an_epoch_ends(asked: int, answer: EpochEnd | None) -> None:
    epochs = history((2, 10), (4, 20), (7, 30))
    assert epochs.end_of(LeaderEpoch(asked), Offset(50)) == answer


def test_rule_40_an_empty_history_can_tell_nothing() -> None:
    assert history().end_of(LeaderEpoch(0), Offset(0)) is None


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 4), (99, 4)])
def test_every_offset_has_the_epoch_that_wrote_it(offset: int, epoch: int) -> None:
    assert history((2, 10), (4, 20)).epoch_at(Offset(offset)) == epoch


def test_a_cut_log_forgets_the_epochs_that_start_at_the_cut_or_later() -> None:
    epochs = history((1, 0), (2, 10), (3, 20))
    epochs.truncate_end(Offset(10))
    assert epochs.entries == ((1, 0),)


def test_rule_21_a_leader_that_wrote_nothing_yet_is_kept_when_a_log_is_opened() -> None:
    epochs = history((1, 0), (2, 10), (3, 11))
    assert epochs.drop_above(Offset(10))
    assert epochs.entries == ((1, 0), (2, 10))
    assert not epochs.drop_above(Offset(10))


def test_the_epoch_that_covers_the_new_start_begins_there() -> None:
    epochs = history((1, 0), (2, 10), (3, 20))
    epochs.truncate_start(Offset(15))
    assert epochs.entries == ((2, 15), (3, 20))


def test_a_start_at_or_below_the_first_epoch_changes_nothing() -> None:
    epochs = history((1, 5), (2, 10))
    epochs.truncate_start(Offset(3))
    epochs.truncate_start(Offset(5))
    assert epochs.entries == ((1, 5), (2, 10))
