"""What a node does by itself, all the time: checkpoints, retention, compaction, removing files,
looking at itself.

One task each. None of them holds up the event loop: what blocks for long runs on a thread, and what
cannot goes partition by partition, with a pause between them.

H1  no round ends the ones after it: trouble with one partition is told, and the others go on; a bug
    goes to the handler of the loop, which knows when the process must end

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
from ottla.replication.log.log import Log
from ottla.replication.log.sync import CheckpointJob
from ottla.replication.replica import Replica

_log = logger("node.housekeeping")

# A checkpoint syncs. Where nobody asked for syncs it comes in one round of so many: every minute by
# default, as in Kafka, since writers wait while the disk works.
_PAGECACHE_ROUNDS: Final = 12
# Files of deleted partitions go so soon: a disk that is full is emptied by deleting topics.
_REMOVAL_S: Final = 1.0
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
        self._tasks.append(loop.create_task(self._remove_often(), name="removal"))
        delay = measure_loop_delay(self._broker.metrics.loop_delay)
        self._tasks.append(loop.create_task(delay, name="loop delay"))
        for task in self._tasks:
            task.add_done_callback(_tell_if_it_died)

    async def stop(self) -> None:
        """Let no new round begin, and wait for what runs: a job in flight is not abandoned."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, interval: Option[int], work: Callable[[], Awaitable[None]]) -> None:
        while True:
            interval_ms = self._broker.options.current.value_of(interval)
            await asyncio.sleep(max(1, interval_ms) / 1000)
            await _undisturbed(_told(work()))

    async def _remove_often(self) -> None:
        while True:
            await asyncio.sleep(_REMOVAL_S)
            await _undisturbed(_told(self.remove()))

    # -- the rounds ------------------------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Move the recovery points, so that a start after a crash has little to read."""
        manager = self._broker.replicas.manager
        self._round += 1
        is_everybodys = self._round % _PAGECACHE_ROUNDS == 0
        async with self._broker.replicas.checkpointing:
            for jobs in manager.checkpoint_groups(lambda log: is_everybodys or log.settings.fsync):
                await self._checkpoint_some(jobs)
        for replica in self._broker.replicas:
            replica.catch_up()

    async def _checkpoint_some(self, jobs: list[tuple[Log, CheckpointJob]]) -> None:
        manager = self._broker.replicas.manager
        loop = asyncio.get_running_loop()
        try:
            lacking = await loop.run_in_executor(self._executor, manager.run_jobs, jobs)
        except OSError as error:
            raise manager.abandon_jobs(jobs, error) from error
        except Exception as error:
            # A bug. The jobs are given back all the same: who waits for their end waits in vain.
            manager.abandon_jobs(jobs, error)
            raise
        told = manager.finish_jobs(jobs, lacking)
        if told is not None:
            _tell(told)

    async def remove(self) -> None:
        """Remove the files of deleted partitions."""
        manager = self._broker.replicas.manager
        await asyncio.get_running_loop().run_in_executor(self._executor, manager.remove_buried)

    async def retain(self) -> None:
        """Remove what is too old or too much."""
        for replica in self._broker.replicas:
            if self._is_kept(replica) and not replica.cleaning.locked():
                self._retain_in(replica)
            await asyncio.sleep(0)

    def _retain_in(self, replica: Replica) -> None:
        log = replica.log
        try:
            now_ms = self._broker.clock.now_ms()
            dropped = self._broker.replicas.manager.retain_in(log, now_ms=now_ms)
        except StorageError as error:
            _tell(error)
            return
        if dropped:
            replica.start_moved()
            _log.info(
                "segments_removed",
                partition=str(replica.partition),
                segments=dropped,
                start_offset=log.start_offset,
            )

    async def clean(self) -> None:
        """Compact the logs that are due."""
        if not self._broker.options.current.value_of(node.CLEANER_ENABLE):
            return
        for replica in self._broker.replicas:
            if replica.log.settings.compact and self._is_kept(replica):
                try:
                    await self._clean_one(replica)
                except StorageError as error:
                    _tell(error)

    def _is_kept(self, replica: Replica) -> bool:
        """Return whether the partition is online, and was not deleted while others had a turn."""
        is_here = self._broker.replicas.get(*_key(replica)) is replica
        return is_here and replica.log.offline is None

    async def _clean_one(self, replica: Replica) -> None:
        keys_max = self._broker.options.current.value_of(node.CLEANER_DEDUPE_BUFFER_BYTES)
        async with replica.cleaning:
            if not self._is_kept(replica):
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
                raise log.fail_reading("cleaning", error) from error
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


def _tell(error: StorageError) -> None:
    # The log that failed is offline, and says so to whoever asks for it; or it tries again.
    _log.error("housekeeping_failed", error=str(error))


def _tell_if_it_died(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        context = {"message": f"the task {task.get_name()} ended", "exception": error}
        task.get_loop().call_exception_handler(context)


async def _told(work: Awaitable[None]) -> None:
    """Do a round to its end; what went wrong is told, and nothing is raised (H1)."""
    try:
        await work
    except StorageError as error:
        _tell(error)
    except Exception as error:  # noqa: BLE001  # the root of a round
        context = {"message": "a round of housekeeping failed", "exception": error}
        asyncio.get_running_loop().call_exception_handler(context)


async def _undisturbed(work: Awaitable[None]) -> None:
    """Finish `work` even if the task is cancelled meanwhile, and be cancelled after it."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
