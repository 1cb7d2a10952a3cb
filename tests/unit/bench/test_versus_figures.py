"""Medians, spreads and ratios that can be counted by hand."""

from __future__ import annotations

import pytest

from bench.versus.figures import (
    Summary,
    agree,
    at_share,
    is_saturated,
    longest_gap,
    ratio_of,
    summary_of,
)


def test_a_figure_is_the_median_and_its_spread_the_least_and_the_most() -> None:
    found = summary_of([3.0, 1.0, 2.0])
    assert found == Summary(2.0, 1.0, 3.0, 3)
    assert found.spread == 1.0


def test_nothing_has_no_summary() -> None:
    assert summary_of([]) is None


def test_a_ratio_is_taken_within_each_round() -> None:
    # Both were twice as slow in the second round: the ratio does not move.
    found = ratio_of({1: 100.0, 2: 50.0}, {1: 50.0, 2: 25.0})
    assert found == Summary(2.0, 2.0, 2.0, 2)


def test_a_ratio_leaves_out_rounds_that_only_one_side_has() -> None:
    assert ratio_of({1: 10.0, 2: 99.0}, {1: 5.0, 3: 1.0}) == Summary(2.0, 2.0, 2.0, 1)
    assert ratio_of({1: 10.0}, {2: 5.0}) is None


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100), (0.001, 1)]
)
def test_a_share_of_times_is_the_least_that_so_many_do_not_exceed(share: float, value: int) -> None:
    assert at_share(list(range(1, 101)), share) == value


def test_who_is_done_soon_after_the_last_record_was_due_kept_up() -> None:
    assert not is_saturated(8.0, 8.4)
    assert is_saturated(8.0, 9.5)


def test_the_gap_is_the_longest_that_ends_after_the_kill() -> None:
    # Three seconds before the kill do not count; one that begins before it and ends after it does.
    assert longest_gap([0.0, 3.0, 3.1, 5.0, 5.2], since=4.0) == pytest.approx(1.9)
    assert longest_gap([1.0], since=0.0) == 0.0


def test_two_runs_agree_when_a_median_lies_in_the_spread_of_the_other() -> None:
    assert agree(Summary(100, 90, 120, 5), Summary(118, 110, 140, 5))
    assert agree(Summary(100, 95, 105, 5), Summary(150, 105, 160, 5)) is False
    assert agree(Summary(100, 95, 105, 5), Summary(150, 100, 160, 5))
    assert not agree(Summary(100, 95, 105, 5), Summary(150, 140, 160, 5))
    # Spreads that only touch do not make two runs agree.
    assert not agree(Summary(100, 90, 120, 5), Summary(140, 115, 160, 5))


def test_a_spread_may_be_widened() -> None:
    assert not agree(Summary(100, 95, 105, 5), Summary(112, 106, 115, 5))
    assert agree(Summary(100, 95, 105, 5), Summary(112, 106, 115, 5), slack=0.1)
