"""What a query's filters say about where its records can be.

Spark hands over the conditions that are joined by AND. Those on topic, partition, offset and time
make fewer or shorter ranges; every condition is still looked at by Spark for each row, so a bound
here may be too wide and never too narrow.

Only a lower bound of time is used: a record's time is the producer's word, and a later record may
be older. What a broker tells of a time is "the first offset with this time or a later one", and
before that offset there is none.

Not here: Spark's own classes; they are told apart by their names (`source.py` hands them over).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from ottla.clients.spark.ranges import OffsetRange


class PushedFilter(Protocol):
    """One condition on one column: what all of Spark's have."""

    attribute: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the records that a query wants can be."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_low: int = 0
    partition_end: int | None = None
    offset_low: int = 0
    # Exclusive, as all ends are.
    offset_end: int | None = None
    time_low_ms: int | None = None

    def narrowed(self, one: OffsetRange) -> OffsetRange | None:
        """Return what of a range can hold wanted records, or None if nothing can."""
        topic, number = one.partition.topic, one.partition.partition
        if self.topics is not None and topic not in self.topics:
            return None
        if self.partitions is not None and number not in self.partitions:
            return None
        if number < self.partition_low:
            return None
        if self.partition_end is not None and number >= self.partition_end:
            return None
        end = one.end if self.offset_end is None else min(one.end, self.offset_end)
        start = max(one.start, self.offset_low)
        return replace(one, start=start, end=end) if start < end else None


def bounds_of(filters: Iterable[Any]) -> Bounds:
    """Return the bounds that all these conditions together make."""
    found = dict[str, list[tuple[str, Any]]]()
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        if len(column) == 1:
            found.setdefault(column[0].lower(), []).append(
                (type(one).__name__, getattr(one, "value", None))
            )
    partition_low, partition_end = _whole_bounds(found.get("partition", ()))
    offset_low, offset_end = _whole_bounds(found.get("offset", ()))
    return Bounds(
        topics=_members(found.get("topic", ()), str),
        partitions=_members(found.get("partition", ()), int),
        partition_low=partition_low,
        partition_end=partition_end,
        offset_low=offset_low,
        offset_end=offset_end,
        time_low_ms=_time_low(found.get("timestamp", ())),
    )


def _members(conditions: Iterable[tuple[str, Any]], kind: type) -> frozenset[Any] | None:
    """Return the values that equality leaves, or None if there is no such condition."""
    left: frozenset[Any] | None = None
    for name, value in conditions:
        values: Collection[Any]
        if name in ("EqualTo", "EqualNullSafe"):
            values = [value]
        elif name == "In" and isinstance(value, Collection):
            values = value
        else:
            continue
        # Null equals nothing, and another type is Spark's to compare.
        known = [one for one in values if one is not None]
        if all(isinstance(one, kind) for one in known):
            left = frozenset(known) if left is None else left & frozenset(known)
    return left


def _whole_bounds(conditions: Iterable[tuple[str, Any]]) -> tuple[int, int | None]:
    low, end = 0, None
    for name, value in conditions:
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        first, after = _one_bound(name, value)
        low = max(low, first)
        if after is not None:
            end = after if end is None else min(end, after)
    return low, end


def _one_bound(name: str, value: int) -> tuple[int, int | None]:
    match name:
        case "EqualTo" | "EqualNullSafe":
            return value, value + 1
        case "GreaterThan":
            return value + 1, None
        case "GreaterThanOrEqual":
            return value, None
        case "LessThan":
            return 0, value
        case "LessThanOrEqual":
            return 0, value + 1
        case _:
            return 0, None


def _time_low(conditions: Iterable[tuple[str, Any]]) -> int | None:
    low: int | None = None
    for name, value in conditions:
        if name not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            continue
        # A time without a zone would have to be guessed.
        if isinstance(value, datetime) and value.tzinfo is not None:
            # Rounded down: a bound may be too low.
            time_ms = int(value.timestamp() * 1000) - 1
            low = time_ms if low is None else max(low, time_ms)
    return None if low is None or low < 0 else low
