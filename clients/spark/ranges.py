"""Ranges of offsets: what a task of Spark reads, and how much of what is there a batch takes.

Slicing bread: first how much of each loaf is eaten today (`limited`), then into how many slices it
is cut so that all at the table are busy (`split`). No crumb is lost, and none is eaten twice.

G1  the pieces of a split lie end to end: together they are the range, in order
G2  a limited batch takes exactly the limit, or all there is if that is less
G3  a partition that has something gets something as long as the limit has room for each
G4  offsets of a stream say by id whose they are: a number of one topic means nothing in another one
    of the same name. Where no id is known, names have to do

Not here: how an end is known (`planning.py`), and reading (`range_reader.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

Offsets = dict[TopicPartition, int]
TopicIds = Mapping[str, UUID]
# Stands among the topics of stored offsets; no topic can be called so.
TOPIC_IDS: Final = "@topic-ids"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Records of one partition from `start` to before `end`."""

    partition: TopicPartition
    start: int
    # Exclusive.
    end: int
    # ZERO_UUID where it is not known.
    topic_id: UUID = ZERO_UUID

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """How far a stream is: the next offset of each partition, and of which topics these are."""

    offsets: Offsets
    # By name; a topic whose id is not known is not there (G4).
    topic_ids: TopicIds = field(default_factory=dict)

    def stored(self) -> dict[str, dict[str, Any]]:
        """Return what `read_stored` reads; sorted, so that the same offsets are the same text."""
        stored = dict[str, dict[str, Any]]()
        for where in sorted(self.offsets):
            stored.setdefault(where.topic, {})[str(where.partition)] = self.offsets[where]
        told = {topic: str(self.topic_ids[topic]) for topic in stored if topic in self.topic_ids}
        return {**stored, TOPIC_IDS: told} if told else stored

    def of_same_topics(self, now: TopicIds) -> Offsets:
        """Return the offsets that mean something in the topics that are there now."""
        others = made_anew(self.topic_ids, now)
        return {where: at for where, at in self.offsets.items() if where.topic not in others}


def read_stored(stored: Mapping[str, Mapping[str, Any]]) -> StreamOffsets:
    """Return offsets as Spark keeps them in a checkpoint: `{"topic": {"0": 23}}`, with ids or not.

    Checkpoints of earlier releases have no ids, and what people write down has none either.
    """
    offsets = {
        TopicPartition(topic, int(number)): int(offset)
        for topic, inner in stored.items()
        if topic != TOPIC_IDS
        for number, offset in inner.items()
    }
    told = stored.get(TOPIC_IDS, {})
    return StreamOffsets(offsets, {topic: UUID(text) for topic, text in told.items()})


def made_anew(before: TopicIds, now: TopicIds) -> list[str]:
    """Return the names under which there is another topic now."""
    return sorted(topic for topic in before if now.get(topic, before[topic]) != before[topic])


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
