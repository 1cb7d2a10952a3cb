"""What a node does by itself, all the time: checkpoints, retention, compaction, looking at itself.

One task each. None of them holds up the event loop: what blocks for long runs on a thread, and what
cannot goes partition by partition, with a pause between them.

Not here: what retention removes and what compaction keeps (`replication`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Final

from ottla.node.broker import Broker
from ottla.node.logs import logger
from ottla.node.process import measure_loop_delay
from ottla.proto.errors import StorageError
from ottla.proto.options import node
from ottla.proto.options.option import Option
from ottla.replication.compaction.cleaner import begin_cleaning, finish_cleaning
from ottla.replication.replica import Replica

_log = logger("node.housekeeping")

# A checkpoint syncs. Where nobody asked for syncs it comes in one round of so many: every minute by
# default, as in Kafka, since writers wait while the disk works.
_PAGECACHE_ROUNDS: Final = 12
# Memory per key in the map of a cleaning, as Python has it.
_KEY_BYTES: Final = 160


class Housekeeping:
    """The tasks of one broker. `start`, then `stop`."""

    def __init__(self, broker: Broker, executor: Executor) -> None:
        self._broker: Final = broker
        self._executor: Final = executor
        self._tasks: list[asyncio.Task[None]] = []
        # Counts the checkpoints.
        self._round = 0

    def start(self) -> None:
        rounds: tuple[tuple[str, Option[int], Callable[[], Awaitable[None]]], ...] = (
            ("checkpoint", node.OFFSET_CHECKPOINT_INTERVAL_MS, self.checkpoint),
            ("retention", node.RETENTION_CHECK_INTERVAL_MS, self.retain),
            ("cleaning", node.CLEANER_BACKOFF_MS, self.clean),
        )
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._repeat(option, work), name=name) for name, option, work in rounds
        ]
        delay = measure_loop_delay(self._broker.metrics.loop_delay)
        self._tasks.append(loop.create_task(delay, name="loop delay"))

    async def stop(self) -> None:
        """Let no new round begin, and wait for what runs: a job in flight is not abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, interval: Option[int], work: Callable[[], Awaitable[None]]) -> None:
        while True:
            interval_ms = self._broker.options.current.value_of(interval)
            await asyncio.sleep(max(1, interval_ms) / 1000)
            try:
                await _undisturbed(work())
            except StorageError as error:
                # The log that failed is offline and says so to whoever asks for it.
                _log.error("housekeeping_failed", error=str(error))

    # -- the rounds ------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Move the recovery points, so that a start after a crash has little to read."""
        manager = self._broker.replicas.manager
        self._round += 1
        is_everybodys = self._round % _PAGECACHE_ROUNDS == 0
        async with self._broker.replicas.checkpointing:
            jobs = manager.begin_checkpoint(lambda log: is_everybodys or log.settings.fsync)
            if not jobs:
                return

            def run() -> None:
                for _, job in jobs:
                    job.run()

            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, run)
            except OSError as error:
                for log, _ in jobs:
                    log.abandon(error)
                return
            manager.finish_checkpoint(jobs)

    async def retain(self) -> None:
        """Remove what is too old or too much."""
        manager = self._broker.replicas.manager
        await asyncio.get_running_loop().run_in_executor(self._executor, manager.remove_buried)
        for replica in self._broker.replicas:
            if replica.log.offline is None and not replica.cleaning.locked():
                manager.retain_in(replica.log, now_ms=self._broker.clock.now_ms())
            await asyncio.sleep(0)

    async def clean(self) -> None:
        """Compact the logs that are due."""
        if not self._broker.options.current.value_of(node.CLEANER_ENABLE):
            return
        for replica in self._broker.replicas:
            if replica.log.settings.compact and replica.log.offline is None:
                await self._clean_one(replica)

    async def _clean_one(self, replica: Replica) -> None:
        keys_max = self._broker.options.current.value_of(node.CLEANER_DEDUPE_BUFFER_BYTES)
        async with replica.cleaning:
            if self._broker.replicas.get(*_key(replica)) is not replica:
                return
            log = replica.log
            job = begin_cleaning(
                log, now_ms=self._broker.clock.now_ms(), keys_max=keys_max // _KEY_BYTES
            )
            if job is None:
                return
            try:
                await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
            except (OSError, StorageError) as error:
                raise log.fail("cleaning", error) from error
            finish_cleaning(log, job)
            _log.info(
                "log_cleaned",
                partition=str(replica.partition),
                removed=job.report.removed_records,
                bytes_before=job.report.bytes_before,
                bytes_after=job.report.bytes_after,
            )


def _key(replica: Replica) -> tuple[str, int]:
    return replica.partition.topic, replica.partition.partition


async def _undisturbed(work: Awaitable[None]) -> None:
    """Finish `work` even if the task is cancelled meanwhile, and be cancelled after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
