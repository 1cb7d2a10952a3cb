"""What a query is to read, in numbers: asks the cluster for topics, beginnings, ends and times.

On the driver, and only there: tasks are told their ranges.

Q1  topics are asked for anew each time, so that new partitions and deleted topics are noticed
Q2  a partition that a stream did not know before begins at 0: what was written to it before it was
    noticed is read, or told as lost

Not here: reading records (`range_reader.py`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from typing import Final

from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.metadata import TopicInfo
from ottla.clients.spark.errors import data_loss
from ottla.clients.spark.filters import Bounds
from ottla.clients.spark.options import SourceOptions
from ottla.clients.spark.places import EARLIEST_OFFSET, LATEST_OFFSET, Place, Rule
from ottla.clients.spark.ranges import OffsetRange, Offsets, split
from ottla.proto.errors import ConfigError, ErrorCode, RequestError
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.spark")


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

    def partitions(self) -> list[TopicPartition]:
        """Return all partitions that the query means, as of now, sorted."""
        options = self._options
        if options.assigned:
            known = self._topics({one.topic for one in options.assigned})
            _require_partitions("assign", options.assigned, known)
            return list(options.assigned)
        names: Collection[str] = options.topics
        if options.pattern is not None:
            matches = re.compile(options.pattern).fullmatch
            names = [name for name in self._admin.list_topics() if matches(name)]
        return sorted(
            TopicPartition(topic.name, one)
            for topic in self._topics(names).values()
            for one in range(len(topic.partitions))
        )

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

    def at(self, place: Place, partitions: list[TopicPartition], name: str) -> Offsets:
        """Return the offset of a place in each partition."""
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
                return self._written_down(place.numbers, partitions, name)
            case Rule.TIMES:
                return self._since(place, partitions, name)

    def _committed(self, partitions: list[TopicPartition]) -> Offsets:
        found = self._consumer.committed(partitions)
        missing = [one for one in partitions if found.get(one) is None]
        begins = self._consumer.beginning_offsets(missing) if missing else {}
        kept = {where: told.offset for where, told in found.items() if told is not None}
        return {**begins, **kept}

    def _written_down(
        self, numbers: Mapping[TopicPartition, int], partitions: list[TopicPartition], name: str
    ) -> Offsets:
        _require_all(name, numbers, partitions)
        chosen = {where: numbers[where] for where in partitions}
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
        partitions = self.partitions()
        starts = self.at(self._options.start, partitions, "startingOffsets")
        ends = self.at(self._options.end, partitions, "endingOffsets")
        ranges = list[OffsetRange]()
        for where in partitions:
            kept = bounds.narrowed(OffsetRange(where, starts[where], ends[where]))
            if kept is not None:
                ranges.append(kept)
        if bounds.time_low_ms is not None and ranges:
            lows = self.since({one.partition: bounds.time_low_ms for one in ranges})
            narrowed = [
                OffsetRange(one.partition, max(one.start, lows[one.partition]), one.end)
                for one in ranges
            ]
            ranges = [one for one in narrowed if one.size]
        return self.pieces(ranges)

    def pieces(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        return split(
            ranges,
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
        )

    def stream_ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """Return what one batch of a stream reads, cut into pieces (Q2)."""
        ranges = list[OffsetRange]()
        for where in sorted(end):
            first = start.get(where, 0)
            if end[where] < first:
                self.lost(f"{where}: the stream was at {first}, and the log ends at {end[where]}.")
            elif end[where] > first:
                ranges.append(OffsetRange(where, first, end[where]))
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
        raise ConfigError(f"{name} says nothing of {', '.join(map(str, missing[:5]))}.")
    unknown = sorted(set(numbers) - set(partitions))
    if unknown:
        told = ", ".join(map(str, unknown[:5]))
        raise ConfigError(f"{name} speaks of {told}, and the query does not read that.")


def _require_partitions(
    name: str, wanted: Collection[TopicPartition], known: Mapping[str, TopicInfo]
) -> None:
    for where in wanted:
        topic = known.get(where.topic)
        if topic is not None and where.partition >= len(topic.partitions):
            raise ConfigError(f"{name}: {where.topic} has {len(topic.partitions)} partitions.")
