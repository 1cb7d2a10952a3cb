"""Filters of a query make ranges shorter, and never too short."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ottla.clients.spark.filters import Bounds, bounds_of
from ottla.clients.spark.ranges import OffsetRange
from ottla.proto.ids import TopicPartition


@dataclass
class EqualTo:
    attribute: tuple[str, ...]
    value: Any


class GreaterThan(EqualTo):
    pass


class GreaterThanOrEqual(EqualTo):
    pass


class LessThan(EqualTo):
    pass


class LessThanOrEqual(EqualTo):
    pass


class In(EqualTo):
    pass


class StringContains(EqualTo):
    pass


WHOLE = OffsetRange(TopicPartition("orders", 2), 10, 100)


def _kept(*filters: EqualTo) -> OffsetRange | None:
    return bounds_of(filters).narrowed(WHOLE)


def test_offsets_shorten_a_range_at_both_ends() -> None:
    kept = _kept(GreaterThan(("offset",), 20), LessThanOrEqual(("offset",), 30))
    assert kept == OffsetRange(WHOLE.partition, 21, 31)
    assert _kept(EqualTo(("offset",), 50)) == OffsetRange(WHOLE.partition, 50, 51)
    assert _kept(LessThan(("offset",), 10)) is None


def test_other_partitions_and_topics_are_not_read() -> None:
    assert _kept(EqualTo(("partition",), 2)) == WHOLE
    assert _kept(EqualTo(("partition",), 1)) is None
    assert _kept(In(("partition",), (1, 2))) == WHOLE
    assert _kept(GreaterThanOrEqual(("partition",), 3)) is None
    assert _kept(LessThan(("partition",), 2)) is None
    assert _kept(EqualTo(("topic",), "orders")) == WHOLE
    assert _kept(In(("topic",), ("a", "b"))) is None


def test_what_is_not_understood_leaves_the_range_whole() -> None:
    assert _kept(StringContains(("topic",), "x")) == WHOLE
    assert _kept(EqualTo(("value", "inner"), 1)) == WHOLE
    assert _kept(EqualTo(("offset",), "7")) == WHOLE
    assert bounds_of([]) == Bounds()


def test_a_lower_bound_of_time_is_rounded_down() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    low = bounds_of([GreaterThanOrEqual(("timestamp",), noon)]).time_low_ms
    assert low is not None
    assert 0 <= noon.timestamp() * 1000 - low <= 2


def test_an_upper_bound_of_time_is_not_trusted() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert bounds_of([LessThan(("timestamp",), noon)]) == Bounds()
    assert bounds_of([GreaterThan(("timestamp",), noon.replace(tzinfo=None))]) == Bounds()
