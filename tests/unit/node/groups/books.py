"""A ledger on a real replica and log, with a disk, a clock and metadata that the test holds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from ottla.node.clock import Clock
from ottla.node.groups.ledger import Ledger, World
from ottla.node.groups.offsets import Changes
from ottla.node.groups.places import OFFSETS_TOPIC
from ottla.node.groups.records import OffsetValue
from ottla.node.groups.words import Reason, Terms
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset, TopicPartition
from ottla.proto.kafka.uuids import UUID
from ottla.replication.log.log import Log
from ottla.replication.replica import Replica
from tests.builders import NOW_MS, OneLog, small_settings
from tests.replicas import ME, surroundings, view

HERE = TopicPartition(OFFSETS_TOPIC, 0)
TERMS = Terms(initial_delay_ms=0, size_max=100)
T = TypeVar("T")


class HeldClock(Clock):
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.ms = 0

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return NOW_MS + self.ms


class HeldDisk:
    """Syncs when the test says so, or says that it cannot."""

    def __init__(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> None:
        self._log, self._on_synced, self._on_failed = log, on_synced, on_failed
        self.asked = 0

    def request(self) -> None:
        self.asked += 1

    async def close(self) -> None: ...

    def sync(self) -> None:
        self._log.sync()
        self._on_synced(self._log.synced_offset)

    def lack(self) -> None:
        self._on_failed(StorageError("sync: too many open files"))


class Books:
    """One partition of groups, led here."""

    def __init__(self) -> None:
        self.clock = HeldClock()
        self.topics: dict[str, UUID] = {"t": UUID(int=100)}
        self.has_standing = True
        # What reading the log raises.
        self.trouble: Exception | None = None
        self._versions = 0
        self.disk: HeldDisk
        log = OneLog(small_settings(segment_bytes=1 << 20)).create()
        around = replace(surroundings(Executor()), make_syncs=self._make_disk)
        self.replica = Replica(HERE, log, around)
        self.replica.lead(view())
        self.ledger = self.new_ledger()

    def _make_disk(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> HeldDisk:
        self.disk = HeldDisk(log, on_synced, on_failed)
        return self.disk

    def new_ledger(self) -> Ledger:
        world = World(
            clock=self.clock,
            terms=lambda: TERMS,
            require_standing=self._require_standing,
            on_a_thread=self._at_once,
            count_rebalance=_ignore,
            is_topic=lambda name: name in self.topics,
            topics=lambda: dict(self.topics),
        )
        return Ledger(self.replica, world)

    def _require_standing(self, replica: Replica) -> None:
        if not self.has_standing:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _at_once(self, work: Callable[[], T]) -> T:
        if self.trouble is not None:
            raise self.trouble
        return work()

    def need_replicas(self, count: int) -> None:
        """Let so many have to be in sync for a write; there is one."""
        self._versions += 1
        alone = (ME,)
        self.replica.lead(view(1, 2, isr=alone, min_isr=count, partition_epoch=self._versions))

    async def loaded(self) -> Ledger:
        """Return a new ledger that has read all there is."""
        self.disk.sync()
        self.ledger = self.new_ledger()
        await self.ledger.load()
        return self.ledger

    def commit(self, offset: int, topic: str = "t", group: str = "g") -> list[ErrorCode | None]:
        """Begin a commit; what is told of it will be in the list."""
        told: list[ErrorCode | None] = []
        self.ledger.commit(group, changes(offset, topic), told.append)
        return told

    def shown(self, topic: str = "t", group: str = "g") -> int | None:
        offsets = self.ledger.offsets.get(group)
        value = None if offsets is None else offsets.get((topic, 0))
        return None if value is None else value.offset


def changes(offset: int, topic: str = "t") -> Changes:
    return {(topic, 0): OffsetValue(offset, -1, "", NOW_MS)}


def _ignore(reason: Reason) -> None: ...
