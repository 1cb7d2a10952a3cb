"""Legal transactions, drawn at random, break no row; one lie in any of them does."""

from __future__ import annotations

import pytest

from ottla.chaos.evidence import Ruling
from tests.unit.chaos.legal_transactions import Lie, legal_run
from tests.unit.chaos.story import broken, rows

ROWS = {22, *range(28, 35)}
SEEDS = range(12)
# Which rows have to notice, at least one of them. A lie about one moment may do no harm.
NOTICED = {
    Lie.INCLUSIVE: {22, 28, 30},
    Lie.NO_MARKER: {33},
    Lie.OTHER_MARKER: {22, 28, 31},
    Lie.NO_OFFSETS: {32},
    Lie.TIMES_OUT: {34},
    Lie.OTHER_DECISION: {22, 28, 31, 34},
}


@pytest.mark.parametrize("seed", SEEDS)
def test_legal_transactions_break_no_row(seed: int) -> None:
    evidence = legal_run(seed)
    assert not broken(evidence)
    assert rows(evidence, Ruling.NOT_JUDGED).isdisjoint(ROWS)


@pytest.mark.parametrize("lie", Lie)
def test_a_lie_is_noticed(lie: Lie) -> None:
    missed = [seed for seed in SEEDS if not broken(legal_run(seed, lie)) & NOTICED[lie]]
    assert len(missed) <= len(SEEDS) // 4, missed
