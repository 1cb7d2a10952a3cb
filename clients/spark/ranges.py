"""Ranges of offsets: what a task of Spark reads, and how much of what is there a batch takes.

Slicing bread: first how much of each loaf is eaten today (`limited`), then into how many slices it
is cut so that all at the table are busy (`split`). No crumb is lost, and none is eaten twice.

G1  the pieces of a split lie end to end: together they are the range, in order
G2  a limited batch takes exactly the limit, or all there is if that is less
G3  a partition that has something gets something as long as the limit has room for each

Not here: how an end is known (`planning.py`), and reading (`range_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ottla.proto.ids import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `start` to before `end`."""

    partition: TopicPartition
    start: int
    # Exclusive.
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def offsets_of(stored: Mapping[str, Mapping[str, int]]) -> Offsets:
    """Return offsets as Spark keeps them in a checkpoint: `{"topic": {"0": 23}}`."""
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, inner in stored.items()
        for number, offset in inner.items()
    }


def stored_of(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return what `offsets_of` reads; sorted, so that the same offsets are the same text."""
    stored = dict[str, dict[str, int]]()
    for where in sorted(offsets):
        stored.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return stored


def limited(start: Mapping[TopicPartition, int], end: Offsets, rows: int) -> Offsets:
    """Return ends that are at most `rows` records from `start`, in proportion to what is there.

    A partition that `start` does not know is new, and begins at 0.
    """
    there = {where: max(0, end[where] - start.get(where, 0)) for where in end}
    total = sum(there.values())
    if total <= rows:
        return dict(end)
    # At least one record each while that is possible, then a fair share of the rest (G3).
    waiting = sorted(where for where in there if there[where])
    taken = dict.fromkeys(end, 0)
    for where in waiting[:rows]:
        taken[where] = 1
    left = rows - min(rows, len(waiting))
    rest = {where: there[where] - taken[where] for where in waiting}
    shares = sum(rest.values())
    for where in waiting:
        taken[where] += rest[where] * left // shares
    # What rounding down has left over goes to whoever still has something.
    over = rows - sum(taken.values())
    for where in waiting:
        more = min(over, there[where] - taken[where])
        taken[where] += more
        over -= more
    return {where: start.get(where, 0) + taken[where] for where in end}


def split(
    ranges: Iterable[OffsetRange],
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Return ranges that are not empty, cut so that there are at least as many as asked for.

    With `max_records` no piece is longer than that. There are never more pieces than records.
    """
    whole = [one for one in ranges if one.size]
    total = sum(one.size for one in whole)
    pieces = list[OffsetRange]()
    for one in whole:
        count = 1
        if min_partitions is not None and min_partitions > len(whole):
            count = -(-one.size * min_partitions // total)
        if max_records is not None:
            count = max(count, -(-one.size // max_records))
        pieces += _cut(one, min(count, one.size))
    return pieces


def _cut(one: OffsetRange, count: int) -> list[OffsetRange]:
    marks = [one.start + one.size * index // count for index in range(count + 1)]
    return [replace(one, start=marks[i], end=marks[i + 1]) for i in range(count)]
