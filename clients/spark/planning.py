"""What a query is to read, in numbers: asks the cluster for topics, beginnings, ends and times.

On the driver, and only there: tasks are told their ranges.

Q1  topics are asked for anew each time, so that new partitions and deleted topics are noticed
Q2  a partition that a stream did not know before begins at 0: what was written to it before it was
    noticed is read, or told as lost
Q3  a topic of the same name and another id is another topic: what the stream had not read of the
    one before is lost, and is told so; the new one is read from its start

Not here: reading records (`range_reader.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.spark.errors import data_loss
from ottla.clients.spark.filters import Bounds
from ottla.clients.spark.options import SourceOptions
from ottla.clients.spark.places import EARLIEST_OFFSET, LATEST_OFFSET, Place, Rule
from ottla.clients.spark.ranges import (
    OffsetRange,
    Offsets,
    StreamOffsets,
    TopicIds,
    made_anew,
    split,
)
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import ZERO_UUID

LOG: Final = logging.getLogger("ottla.spark")
STARTING: Final = "startingOffsets"
ENDING: Final = "endingOffsets"
# So many partitions are named in a sentence.
_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Found:
    """What there is of a query's topics, as of one moment."""

    # Sorted.
    partitions: list[TopicPartition]
    # Without those that the cluster is too old to tell.
    topic_ids: TopicIds


class Planner:
    """One query's view of the cluster; closed once."""

    def __init__(self, options: SourceOptions) -> None:
        self._options: Final = options
        self._admin: Final = Admin(options.admin_config())
        self._consumer: Final = Consumer(dict(options.client))

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    # --- what there is ---

    def look(self) -> Found:
        """Return all partitions that the query means, as of now."""
        options = self._options
        names: Collection[str] = options.topics
        if options.assigned:
            names = {one.topic for one in options.assigned}
        elif options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            names = [name for name in self._admin.list_topics() if matches(name)]
        known = self._topics(names)
        topic_ids = {name: one.topic_id for name, one in known.items() if one.topic_id != ZERO_UUID}
        if options.assigned:
            _require_partitions("assign", options.assigned, known)
            return Found([one for one in options.assigned if one.topic in known], topic_ids)
        partitions = (
            TopicPartition(topic.name, one)
            for topic in known.values()
            for one in range(len(topic.partitions))
        )
        return Found(sorted(partitions), topic_ids)

    def _topics(self, names: Collection[str]) -> dict[str, TopicInfo]:
        if not names:
            return {}
        found = dict[str, TopicInfo]()
        for name, told in self._admin.describe_topics(sorted(names)).items():
            if isinstance(told, TopicInfo):
                found[name] = told
            elif told.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise told
        return found

    def require_topics(self) -> None:
        """Refuse a topic that is named and not there."""
        named = set(self._options.topics) | {one.topic for one in self._options.assigned}
        missing = sorted(named - set(self._topics(named)))
        if missing:
            told = ", ".join(missing)
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {told} is not there; `ottla topics create {missing[0]}` makes it.",
            )

    def ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._consumer.end_offsets(partitions) if partitions else {}

    # --- places in numbers ---

    def at(self, place: Place, found: Found, name: str) -> Offsets:
        """Return the offset of a place in each partition."""
        partitions = found.partitions
        if not partitions:
            return {}
        match place.rule:
            case Rule.EARLIEST:
                return self._consumer.beginning_offsets(partitions)
            case Rule.LATEST:
                return self._consumer.end_offsets(partitions)
            case Rule.COMMITTED:
                return self._committed(partitions)
            case Rule.OFFSETS:
                return self._written_down(place, found, name)
            case Rule.TIMES:
                return self._since(place, partitions, name)

    def _committed(self, partitions: list[TopicPartition]) -> Offsets:
        found = self._consumer.committed(partitions)
        missing = [one for one in partitions if found.get(one) is None]
        begins = self._consumer.beginning_offsets(missing) if missing else {}
        kept = {where: told.offset for where, told in found.items() if told is not None}
        return {**begins, **kept}

    def _written_down(self, place: Place, found: Found, name: str) -> Offsets:
        partitions = found.partitions
        _require_all(name, place.numbers, partitions)
        chosen = {where: place.numbers[where] for where in partitions}
        whole = EARLIEST_OFFSET if name == STARTING else LATEST_OFFSET
        for topic in made_anew(place.topic_ids, found.topic_ids):
            self.lost(
                f"{topic}: {name} is of the topic with the id {place.topic_ids[topic]}, which was "
                f"deleted; the one that is there has the id {found.topic_ids[topic]}."
            )
            chosen |= {one: whole for one in partitions if one.topic == topic}
        early = [one for one in partitions if chosen[one] == EARLIEST_OFFSET]
        late = [one for one in partitions if chosen[one] == LATEST_OFFSET]
        if early:
            chosen |= self._consumer.beginning_offsets(early)
        if late:
            chosen |= self._consumer.end_offsets(late)
        return chosen

    def _since(self, place: Place, partitions: list[TopicPartition], name: str) -> Offsets:
        if place.time_ms is not None:
            times = dict.fromkeys(partitions, place.time_ms)
        else:
            _require_all(name, place.numbers, partitions)
            times = {where: place.numbers[where] for where in partitions}
        return self.since(times)

    def since(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset of each time or later; the end where there is none so late."""
        found = self._consumer.offsets_for_times(times)
        ends = self._consumer.end_offsets(list(times))
        return {
            where: ends[where] if (one := found.get(where)) is None else one.offset
            for where in times
        }

    # --- ranges ---

    def batch_ranges(self, bounds: Bounds) -> list[OffsetRange]:
        """Return what a batch query reads, cut into pieces."""
        self.require_topics()
        found = self.look()
        starts = self.at(self._options.start, found, STARTING)
        ends = self.at(self._options.end, found, ENDING)
        ranges = list[OffsetRange]()
        for where in found.partitions:
            topic_id = found.topic_ids.get(where.topic, ZERO_UUID)
            kept = bounds.narrowed(OffsetRange(where, starts[where], ends[where], topic_id))
            if kept is not None:
                ranges.append(kept)
        if bounds.time_low_ms is not None and ranges:
            lows = self.since({one.partition: bounds.time_low_ms for one in ranges})
            narrowed = [replace(one, start=max(one.start, lows[one.partition])) for one in ranges]
            ranges = [one for one in narrowed if one.size]
        return self.pieces(ranges)

    def pieces(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        return split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def began(self, start: StreamOffsets, now: TopicIds) -> Offsets:
        """Return where the next batch begins; not where the topic was made anew (Q2, Q3)."""
        for topic in made_anew(start.topic_ids, now):
            places = [
                f"{at} in partition {where.partition}"
                for where, at in sorted(start.offsets.items())
                if where.topic == topic
            ]
            more = ", …" if len(places) > _SHOWN else ""
            self.lost(
                f"{topic}: the topic was deleted and made anew (id {start.topic_ids[topic]}, now "
                f"{now[topic]}): the stream was at {', '.join(places[:_SHOWN])}{more}, and what it "
                "had not read of the old topic is gone."
            )
        return start.of_same_topics(now)

    def stream_ranges(self, start: StreamOffsets, end: StreamOffsets) -> list[OffsetRange]:
        """Return what one batch of a stream reads, cut into pieces (Q2)."""
        for topic in made_anew(start.topic_ids, end.topic_ids):
            # Which of them is the older one is not said: Spark does not keep where a stream began,
            # and asks for it anew when its first batch comes again.
            self.lost(
                f"{topic}: the batch begins in the topic with the id {start.topic_ids[topic]} and "
                f"ends in the one with the id {end.topic_ids[topic]}: it was deleted and made anew."
            )
        began = start.of_same_topics(end.topic_ids)
        ranges = list[OffsetRange]()
        for where, last in sorted(end.offsets.items()):
            first = began.get(where, 0)
            if last < first:
                self.lost(f"{where}: the stream was at {first}, and the log ends at {last}.")
            elif last > first:
                topic_id = end.topic_ids.get(where.topic, ZERO_UUID)
                ranges.append(OffsetRange(where, first, last, topic_id))
        return self.pieces(ranges)

    def lost(self, sentence: str) -> None:
        """Tell of a loss, in the way that `failOnDataLoss` says."""
        if self._options.fail_on_data_loss:
            raise data_loss(sentence)
        LOG.warning("%s", sentence)

    def commit(self, offsets: Offsets) -> None:
        self._consumer.commit(offsets)


def _require_all(
    name: str, numbers: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]
) -> None:
    missing = sorted(set(partitions) - set(numbers))
    if missing:
        raise ConfigError(f"{name} says nothing of {', '.join(map(str, missing[:_SHOWN]))}.")
    unknown = sorted(set(numbers) - set(partitions))
    if unknown:
        told = ", ".join(map(str, unknown[:_SHOWN]))
        raise ConfigError(f"{name} speaks of {told}, and the query does not read that.")


def _require_partitions(
    name: str, wanted: Collection[TopicPartition], known: Mapping[str, TopicInfo]
) -> None:
    for where in wanted:
        topic = known.get(where.topic)
        if topic is not None and where.partition >= len(topic.partitions):
            raise ConfigError(f"{name}: {where.topic} has {len(topic.partitions)} partitions.")
