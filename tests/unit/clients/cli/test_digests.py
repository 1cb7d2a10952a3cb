"""Replicas compared by their batches: where the first difference is, and what is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.cli.digests import Batch, Comparison, Page, Stretch, page_of, stretch_of
from ottla.proto.errors import RemoteProtocolError

TOLD: dict[str, Any] = {
    "node": 1,
    "log_start_offset": 0,
    "high_watermark": 4,
    "compacted_below": 0,
    "batches": [
        {
            "base_offset": 0,
            "last_offset": 3,
            "leader_epoch": 2,
            "crc": 77,
            "size": 100,
            "attributes": 0,
        }
    ],
    "next": None,
    "damage": None,
}


def _batches(count: int, first: int = 0, **changes: int) -> list[Batch]:
    return [
        Batch(at, at + 1, 3, at * 7, 90, 0)._replace(**changes)
        for at in range(first, first + 2 * count, 2)
    ]


def _compared(*replicas: list[Batch], compacted_below: int = 0, page: int = 3) -> Comparison:
    """Give batches in pages, as nodes do."""
    comparison = Comparison(range(1, len(replicas) + 1), compacted_below)
    at = [0] * len(replicas)
    while wanted := comparison.wants:
        for node in wanted:
            start = at[node - 1]
            at[node - 1] += page
            rest = replicas[node - 1][start : start + page]
            comparison.give(node, rest, is_last=start + page >= len(replicas[node - 1]))
    return comparison


def test_what_is_the_same_is_identical_however_it_comes() -> None:
    for page in (1, 3, 4, 100):
        found = _compared(_batches(12), _batches(12), _batches(12), page=page)
        assert (found.difference, found.compared) == (None, 12)
    assert _compared([], [], []).difference is None
    assert _compared(_batches(3)).compared == 3


@pytest.mark.parametrize(
    "change",
    [{"leader_epoch": 4}, {"crc": 1}, {"size": 91}, {"attributes": 8}, {"last_offset": 99}],
)
def test_any_field_that_differs_is_a_difference(change: dict[str, int]) -> None:
    other = _batches(10)
    other[6] = other[6]._replace(**change)
    found = _compared(_batches(10), other)
    assert (found.difference_at, found.compared) == (12, 6)
    assert found.difference is not None
    assert found.difference.startswith("different from offset 12 on: node 1 has a batch from 12 ")
    assert "node 2 has a batch from 12 to " in found.difference


def test_what_one_lacks_is_a_difference() -> None:
    shorter = _compared(_batches(10), _batches(9))
    assert shorter.difference_at == 18
    assert shorter.difference is not None
    assert shorter.difference.endswith("; node 2 has none there")
    hole = _batches(10)
    del hole[4]
    assert _compared(_batches(10), _batches(10), hole).difference_at == 8


def test_where_one_was_compacted_only_what_all_have_is_compared() -> None:
    cleaned = _batches(10)
    del cleaned[3]
    cleaned[1] = cleaned[1]._replace(crc=5, size=70)
    found = _compared(_batches(10), cleaned, compacted_below=10)
    assert (found.difference, found.compared, found.cleaned) == (None, 8, 2)
    # The same differences above that offset are differences.
    assert _compared(_batches(10), cleaned, compacted_below=2).difference_at == 2
    assert _compared(_batches(10), cleaned, compacted_below=4).difference_at == 6


def test_compaction_explains_no_other_epoch() -> None:
    other = _batches(10)
    other[2] = other[2]._replace(leader_epoch=9)
    assert _compared(_batches(10), other, compacted_below=20).difference_at == 4


@given(
    count=st.integers(0, 20),
    changed=st.integers(0, 30),
    replica=st.integers(0, 2),
    page=st.integers(1, 8),
)
def test_the_first_difference_is_found_wherever_it_is(
    count: int, changed: int, replica: int, page: int
) -> None:
    replicas = [_batches(count) for _ in range(3)]
    if changed < count:
        replicas[replica][changed] = replicas[replica][changed]._replace(crc=1)
    found = _compared(*replicas, page=page)
    if changed < count:
        assert (found.difference_at, found.compared) == (2 * changed, changed)
    else:
        assert (found.difference, found.compared) == (None, count)


def test_a_page_is_read_and_nonsense_is_refused() -> None:
    page = page_of(TOLD)
    assert page.batches == [Batch(0, 3, 2, 77, 100, 0)]
    assert page == Page(1, 0, 4, 0, page.batches, None, None)
    for wrong in (
        {},
        {**TOLD, "batches": None},
        {**TOLD, "batches": [{}]},
        {**TOLD, "node": "x"},
        {**TOLD, "next": []},
    ):
        with pytest.raises(RemoteProtocolError):
            page_of(wrong)


def test_only_what_all_have_and_have_committed_is_compared() -> None:
    def head(start: int, high_watermark: int, compacted: int = 0) -> Page:
        return Page(1, start, high_watermark, compacted, [], None, None)

    assert stretch_of([head(0, 9), head(3, 8), head(1, 10)]) == Stretch(3, 8, 3)
    assert stretch_of([head(0, 9, 6), head(3, 8)]) == Stretch(3, 8, 6)
    assert stretch_of([head(0, 9, 60), head(3, 8)]) == Stretch(3, 8, 8)
    assert stretch_of([head(9, 9), head(0, 2)]).is_empty
