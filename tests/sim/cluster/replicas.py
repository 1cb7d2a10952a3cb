"""Logs of the simplest kind, so that an election can be wrong: lists of numbered records.

Leaders append, followers fetch, and the high watermark moves as the rules say (25, 29 to 33, 37 and
38): it is the least end of all who are in sync, of all whom the leader has asked to be in sync, and
it stands still below the minimum. What lies below it is committed, and whoever is elected must hold
it (I7). Every append is synced at once; a power cut takes nothing, a lost disk takes all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.controller.commands import PartitionChange
from ottla.controller.election import min_insync_of
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from tests.sim.cluster.invariants import Invariants

Place = tuple[UUID, int]
# A leader epoch and a number that is used once.
Record = tuple[int, int]


@dataclass(slots=True)
class Pending:
    """An in-sync set that a leader has asked for, until it learns what came of it (rule 31)."""

    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(slots=True)
class Copy:
    """One broker's copy of a partition. Only `log` survives its process."""

    log: list[Record] = field(default_factory=list)
    # Of the leader: its epoch, where it began, and how far its followers are (rules 21 and 22).
    epoch: int = -1
    epoch_start: int = 0
    ends: dict[int, int] = field(default_factory=dict)
    heard_ms: dict[int, int] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    pending: Pending | None = None
    watermark: int = 0
    # At which partition epoch each follower has fetched last.
    fetched_at: dict[int, int] = field(default_factory=dict)
    # The last in-sync set with somebody new in it that it asked for as a leader.
    asked: PartitionChange | None = None
    # Bad bytes were found in it: it is not served, not written and not led by any more, until a
    # later life has told the controllers and begins anew.
    is_failed: bool = False
    # Whether a report of that is under way, and whether one was obeyed in this life.
    is_reporting: bool = False
    was_reported: bool = False

    def forget(self) -> None:
        """The process ended."""
        self.epoch, self.pending, self.watermark, self.asked = -1, None, 0, None
        self.is_reporting = self.was_reported = False

    def begin_anew(self) -> None:
        """The controllers know that it is damaged: it is copied again, from the beginning."""
        self.log, self.is_failed = [], False

    def lead(self, epoch: int, now_ms: int, isr: tuple[int, ...]) -> None:
        if self.epoch != epoch:
            self.epoch, self.epoch_start, self.pending = epoch, len(self.log), None
            self.ends, self.broker_epochs, self.fetched_at = {}, {}, {}
            self.heard_ms = dict.fromkeys(isr, now_ms)

    def follow(self, leader_log: list[Record]) -> None:
        """Take over what the leader has, and give up what it has not."""
        shared = 0
        for mine, its in zip(self.log, leader_log, strict=False):
            if mine != its:
                break
            shared += 1
        self.log = self.log[:shared] + leader_log[shared:]

    def committed(
        self, me: int, image: MetadataImage, topic: TopicInfo, index: int
    ) -> list[Record]:
        """Move the high watermark and return what lies below it (rules 29 to 31)."""
        partition = topic.partitions[index]
        if self.pending is not None and partition.partition_epoch > self.pending.partition_epoch:
            self.pending = None
        if len(partition.isr) >= min_insync_of(image, topic):
            needed = {*partition.isr, *(self.pending.isr if self.pending else ())} - {me}
            ends = [self.ends.get(one, 0) for one in needed]
            self.watermark = max(self.watermark, min([len(self.log), *ends]))
        return self.log[: self.watermark]

    def wanted_isr(
        self, me: int, image: MetadataImage, partition: PartitionInfo, lag_ms: int, now_ms: int
    ) -> tuple[int, ...] | None:
        """Return the in-sync set to ask for, if it is another than that of the metadata."""
        if self.pending is not None:
            return None
        kept = [
            one
            for one in partition.isr
            if one == me or now_ms - self.heard_ms.get(one, -lag_ms) <= lag_ms
        ]
        for one in partition.replicas:
            if one in kept or one in partition.isr:
                continue
            broker = image.brokers.get(BrokerId(one))
            is_far = self.ends.get(one, -1) >= max(self.watermark, self.epoch_start)
            is_same = broker is not None and broker.broker_epoch == self.broker_epochs.get(one)
            # Asked for after a fetch, and never for an old fetch's sake (rule 37).
            is_same &= self.fetched_at.get(one) == partition.partition_epoch
            if is_far and is_same and image.is_active(BrokerId(one)):
                kept.append(one)
        wanted = tuple(one for one in partition.replicas if one in kept)
        return None if set(wanted) == set(partition.isr) else wanted

    def change(
        self, topic_id: UUID, index: int, partition: PartitionInfo, isr: tuple[int, ...]
    ) -> PartitionChange:
        self.pending = Pending(isr, partition.partition_epoch)
        members = tuple((BrokerId(one), self.broker_epochs.get(one, -1)) for one in isr)
        epochs = (partition.leader_epoch, partition.partition_epoch)
        change = PartitionChange(topic_id, index, *epochs, members)
        if len(isr) > len(partition.isr):
            self.asked = change
        return change


class Committed:
    """What was committed to each partition, as an outside observer knows it."""

    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._records: dict[Place, list[Record]] = {}

    @property
    def count(self) -> int:
        return sum(map(len, self._records.values()))

    def of(self, place: Place) -> list[Record]:
        return self._records.get(place, [])

    def grow(self, place: Place, records: list[Record], by: int) -> None:
        before = self.of(place)
        if len(records) <= len(before):
            before, records = records, before
        if records[: len(before)] != before:
            told = f"broker {by} commits {records[-3:]} where {before[-3:]} is committed"
            self._invariants.fail("I7", told)
        self._records[place] = records

    def check(self, place: Place, broker: int, log: list[Record], partition: PartitionInfo) -> None:
        """Whoever leads, is in sync or is eligible holds everything (I7)."""
        records = self.of(place)
        if log[: len(records)] != records:
            told = f"broker {broker} holds {len(log)} records and lacks some of {len(records)}"
            self._invariants.fail("I7", f"{told} that are committed: {partition}")
