"""The partitions of this broker: made, found and removed.

S1  what is in the data directory and in nobody's metadata is set aside under another name, never
    deleted, and never taken for a new topic that has the same name

Not here: which partitions there should be (`node/reconcile.py`), and what a log does by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Final

from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import LeaderEpoch, TopicPartition
from ottla.replication.log.manager import LogManager
from ottla.replication.replica import Replica

# So many logs share one transaction, and hold up whoever else wants the disk for as long.
_MADE_AT_ONCE: Final = 100


class Replicas:
    """All the replicas on this broker, by topic and index."""

    def __init__(
        self, manager: LogManager, executor: Executor, *, observe_sync: Callable[[float], None]
    ) -> None:
        self.manager: Final = manager
        self._executor: Final = executor
        self._observe_sync: Final = observe_sync
        self._replicas: dict[tuple[str, int], Replica] = {}
        # Partitions that should be here and cannot be served, with the reason.
        self._lost: dict[tuple[str, int], str] = {}
        # Held while recovery points are written: no log is removed under them.
        self.checkpointing: Final = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._replicas)

    def __iter__(self) -> Iterator[Replica]:
        return iter(tuple(self._replicas.values()))

    def get(self, topic: str, index: int) -> Replica | None:
        return self._replicas.get((topic, index))

    def refusal(self, topic: str, index: int) -> RequestError:
        """Return why a partition that `get` does not find is not served."""
        reason = self._lost.get((topic, index))
        if reason is None:
            return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def lose(self, partition: TopicPartition, reason: str) -> None:
        """A partition that should be here cannot be served: it is not begun anew, and says why."""
        self._lost[partition.topic, partition.partition] = reason

    def is_lost(self, partition: TopicPartition) -> bool:
        return (partition.topic, partition.partition) in self._lost

    def strays(self) -> list[TopicPartition]:
        """Return the logs that no replica stands on."""
        return [
            partition
            for partition in self.manager.logs
            if (partition.topic, partition.partition) not in self._replicas
        ]

    async def make(self, partitions: Sequence[TopicPartition]) -> None:
        """Make empty logs for partitions that have none; raises `StorageError`.

        On a thread, because it takes a sync or two for each of what may be thousands.
        """
        logs = self.manager.logs
        new = [one for one in partitions if one not in logs and not self.is_lost(one)]
        loop = asyncio.get_running_loop()
        for start in range(0, len(new), _MADE_AT_ONCE):
            some = new[start : start + _MADE_AT_ONCE]
            self.manager.adopt(await loop.run_in_executor(self._executor, self.manager.make, some))

    def lead(self, partition: TopicPartition, epoch: LeaderEpoch) -> None:
        """Lead a partition whose log is there."""
        key = (partition.topic, partition.partition)
        replica = self._replicas.get(key)
        if replica is not None:
            replica.leader_epoch = epoch
            return
        self._replicas[key] = Replica(
            partition,
            self.manager.logs[partition],
            self._executor,
            leader_epoch=epoch,
            observe_sync=self._observe_sync,
        )

    async def remove(self, partition: TopicPartition) -> None:
        """Delete a partition for ever. Who waits is told that it is gone."""
        key = (partition.topic, partition.partition)
        self._lost.pop(key, None)
        # Out of the table first: nobody new comes while the last sync is waited for.
        replica = self._replicas.pop(key, None)
        if replica is None:
            return
        async with self.checkpointing, replica.cleaning:
            await replica.close(
                RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} was deleted.")
            )
            self.manager.delete(partition)

    async def close(self) -> None:
        for replica in self:
            await replica.close()
