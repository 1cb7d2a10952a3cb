"""The partitions of this broker: made, found and removed.

S1  what is in the data directory and in nobody's metadata is set aside under another name, never
    deleted, and never taken for a new topic of the same name: the id tells them apart (rule 5)
S2  a partition that is lost is not begun anew; one that could not be made is tried again

Not here: which partitions there should be (`node/reconcile.py`), and what a log does by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, TypeVar

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition
from ottla.replication.leader import PartitionView
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import NO_TOPIC_ID
from ottla.replication.replica import Replica
from ottla.replication.surroundings import Surroundings

A = TypeVar("A")
# What is to be deleted, and is served no more.
Removal = Mapping[TopicPartition, Replica | None]
T = TypeVar("T")

# So many logs share one transaction, and hold up whoever else wants the disk for as long.
_AT_ONCE: Final = 100


class Replicas:
    """All the replicas on this broker, by topic and index."""

    def __init__(self, manager: LogManager, executor: Executor, around: Surroundings) -> None:
        self.manager: Final = manager
        self._executor: Final = executor
        self._around: Final = around
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._by_id: dict[tuple[bytes, int], Replica] = {}
        # Partitions that should be here and cannot be served, with the reason: their records are
        # gone or damaged, or their logs could not be made so far.
        self._lost: dict[tuple[str, int], str] = {}
        self._unmade: dict[tuple[str, int], str] = {}
        # Partitions that are deleted as soon as their compaction is over.
        self._lingering: dict[TopicPartition, asyncio.Task[None]] = {}
        # Held while recovery points are written: no log is removed under them.
        self.checkpointing: Final = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    def get(self, topic: str, index: int) -> Replica | None:
        return self._replicas.get((topic, index))

    def by_id(self, topic_id: bytes, index: int) -> Replica | None:
        return self._by_id.get((topic_id, index))

    def refusal(self, topic: str, index: int) -> RequestError:
        """Return why a partition that `get` does not find is not served."""
        reason = self._lost.get((topic, index)) or self._unmade.get((topic, index))
        if reason is None:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def lose(self, partition: TopicPartition, reason: str) -> None:
        """A partition that should be here cannot be served: it is not begun anew, and says why."""
        self._lost[_key(partition)] = reason

    def is_lost(self, partition: TopicPartition) -> bool:
        return _key(partition) in self._lost

    def strays(self) -> list[TopicPartition]:
        """Return the logs that nobody claims: no replica stands on them, and none should."""
        return [
            one
            for one in self.manager.logs
            if _key(one) not in self._replicas and not self.is_lost(one)
        ]

    async def make(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Make empty logs for partitions that have none; raises `StorageError`.

        On a thread, because it takes a sync or two for each of what may be thousands.
        """
        lingering = [self._lingering[one] for one in topic_ids if one in self._lingering]
        if lingering:
            await asyncio.wait(lingering)
        try:
            new = [one for one in topic_ids if self._needs_log(one, topic_ids[one])]
            for some in _parts(new):
                ids = {one: topic_ids[one] for one in some}
                self.manager.adopt(await self._on_a_thread(self.manager.make, ids))
        except StorageError as error:
            for one, topic_id in topic_ids.items():
                if not self.has_log(one, topic_id):
                    self._unmade[_key(one)] = str(error)
            raise

    def has_log(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Return whether there is a log of this very topic, not of another of the same name."""
        log = self.manager.logs.get(partition)
        return log is not None and log.state.topic_id in (topic_id, NO_TOPIC_ID)

    def is_at_hand(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Return whether its log can be led or followed without making anything first."""
        log = self.manager.logs.get(partition)
        return log is not None and log.state.topic_id == topic_id and not self.is_lost(partition)

    def _needs_log(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Return whether a log is to be made; one of another topic of this name goes aside (S1)."""
        if self.is_lost(partition):
            return False
        if self.has_log(partition, topic_id):
            log = self.manager.logs[partition]
            if log.state.topic_id != topic_id:
                # The power went while it was made, and took its record. Without the id nobody
                # would know on a stream what it is.
                log.commit_state(replace(log.state, topic_id=topic_id))
            return False
        if partition in self.manager.logs:
            self.manager.set_aside(partition)
        return True

    def lead(self, partition: TopicPartition, view: PartitionView) -> Replica | None:
        """Lead a partition whose log is there; None if it is lost."""
        log = self.manager.logs[partition]
        if log.epochs.latest > view.leader_epoch:
            # Metadata from before it, brought back perhaps. To write under an old epoch would fork.
            self.lose(
                partition,
                f"its log knows epoch {log.epochs.latest}, the metadata {view.leader_epoch}",
            )
            return None
        replica = self._replica(partition)
        replica.lead(view)
        return replica

    def follow(
        self,
        partition: TopicPartition,
        epoch: LeaderEpoch,
        leader: BrokerId | None,
        *,
        last_unclean_epoch: LeaderEpoch = NO_EPOCH,
    ) -> Replica:
        """Hold a partition whose log is there, and that another one leads, or nobody."""
        replica = self._replica(partition)
        replica.follow(epoch, leader, last_unclean_epoch=last_unclean_epoch)
        return replica

    def _replica(self, partition: TopicPartition) -> Replica:
        key = _key(partition)
        self._unmade.pop(key, None)
        replica, log = self._replicas.get(key), self.manager.logs[partition]
        if replica is None or replica.log is not log:
            replica = Replica(partition, log, self._around)
            self._replicas[key] = replica
            self._by_id[replica.topic_id, partition.partition] = replica
        return replica

    def fail(self, log: Log, reason: str) -> None:
        """The bytes of a log are bad: its replica must not lead, and does not follow (rule 55)."""
        for replica in self:
            if replica.log is log:
                replica.fail(reason)

    def take_out(self, partitions: Sequence[TopicPartition]) -> Removal:
        """Serve these no more, to be deleted for ever by `remove`. Waits for nothing.

        A topic of the same name may have been made since, and nobody may be served from these
        under its name (rule 5).
        """
        return {one: self._take_out(one) for one in partitions}

    async def remove(self, removal: Removal) -> None:
        """Delete what was taken out. Who waits is told that it is gone."""
        for some in _parts(tuple(removal)):
            await self._remove_some({one: removal[one] for one in some})

    def _take_out(self, partition: TopicPartition) -> Replica | None:
        self._unmade.pop(_key(partition), None)
        replica = self._replicas.pop(_key(partition), None)
        if replica is not None:
            self._by_id.pop((replica.topic_id, partition.partition), None)
            replica.retire(_gone(partition))
        return replica

    async def _remove_some(self, replicas: Removal) -> None:
        there = list[TopicPartition]()
        for partition, replica in replicas.items():
            if replica is not None and replica.cleaning.locked():
                # That may take minutes, and who obeys metadata must not wait for it.
                task = asyncio.get_running_loop().create_task(self._remove_later(replica))
                task.add_done_callback(_report)
                self._lingering[partition] = task
            elif replica is not None:
                await replica.close()
                there.append(partition)
            if self._lost.pop(_key(partition), None) is not None and replica is None:
                self.manager.forget(partition)
        if there:
            async with self.checkpointing:
                await self._on_a_thread(self.manager.bury, self.manager.take_out(there))

    async def _remove_later(self, replica: Replica) -> None:
        """Delete a partition whose log is being compacted, when that is over."""
        partition = replica.partition
        try:
            async with replica.cleaning:
                await replica.close()
            async with self.checkpointing:
                await self._on_a_thread(self.manager.bury, self.manager.take_out([partition]))
        finally:
            del self._lingering[partition]

    async def _on_a_thread(self, work: Callable[[A], T], given: A) -> T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._executor, work, given)
        except RuntimeError as error:
            raise StorageError("The node is stopping.") from error
        return await future

    async def close(self) -> None:
        if self._lingering:
            await asyncio.wait(tuple(self._lingering.values()))
        for replica in self:
            await replica.close()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": "a partition could not be deleted", "exception": error}
        task.get_loop().call_exception_handler(context)


def _gone(partition: TopicPartition) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was deleted.")


def _key(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition


def _parts(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    return (partitions[start : start + _AT_ONCE] for start in range(0, len(partitions), _AT_ONCE))
