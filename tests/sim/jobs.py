"""Syncs and checkpoints that overlap with appends and with each other, as threads would have it.

The simulator has one thread; the order in which jobs run and are finished comes from its dice.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from ottla.proto.errors import StorageError
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.sync import SyncJob


def run_both(dice: Random, log: Log, manager: LogManager, sync: SyncJob | None) -> None:
    """Begin a checkpoint; run and finish it and a sync that was begun earlier, in any order."""
    checkpoint = manager.begin_checkpoint()

    def run_sync(job: SyncJob) -> None:
        try:
            job.run()
        except OSError as error:
            raise log.abandon(error) from error
        log.finish_sync(job)

    def run_checkpoint() -> None:
        try:
            for _, job in checkpoint:
                job.run()
        except OSError as error:
            failures = [each.abandon(error) for each, _ in checkpoint]
            raise failures[0] from error
        manager.finish_checkpoint(checkpoint)

    steps: list[Callable[[], None]] = []
    if sync is not None:
        steps.append(lambda: run_sync(sync))
    if checkpoint:
        steps.append(run_checkpoint)
    dice.shuffle(steps)
    _do_all(steps)


def _do_all(steps: list[Callable[[], None]]) -> None:
    """Do every step, also after one failed, as another thread would; raise the first failure."""
    failure: StorageError | None = None
    for step in steps:
        try:
            step()
        except StorageError as error:
            failure = failure or error
    if failure is not None:
        raise failure
