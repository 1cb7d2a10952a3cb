"""Several jobs of one log at once, and one of them fails or comes first (Y3, C2, rule 48)."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import TopicPartition
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.manager import LogManager
from ottla.replication.log.scan import CheckedWalk
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultRule
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import EPOCH, NOW_MS, OneLog, append, faulty_files
from tests.unit.replication.log.test_group_commit import FakePier, settled, waiting_for

PARTITION = TopicPartition("t", 0)
# More than a page, so that a power cut takes whole batches.
LARGE = b"v" * 5000


class Node:
    """A data directory on a disk that fails and loses power when told to."""

    def __init__(self) -> None:
        self.files, self.plan, self.power = faulty_files()
        self.store = MemoryStateStore()

    def start(self) -> LogManager:
        manager = LogManager(self.files, self.store, "/data", lambda topic: LogSettings())
        manager.open(now_ms=NOW_MS)
        return manager

    def fail_next_sync(self) -> None:
        self.plan.rules.append(FaultRule("sync", "*.log"))

    def start_after_cut(self) -> LogManager:
        self.plan.rules.clear()
        self.power.cut(Random(1), Style.DROP)
        return self.start()


@pytest.mark.parametrize("is_noted_first", [True, False])
def test_y3_a_checkpoint_after_a_failed_sync_fails_too_and_commits_nothing(
    is_noted_first: bool,
) -> None:
    node = Node()
    manager = node.start()
    log = manager.create(PARTITION)
    log.assign_epoch(EPOCH)
    for _ in range(5):
        append(log, LARGE)
    sync = log.begin_sync()
    ((_, checkpoint),) = manager.begin_checkpoint()
    assert sync is not None
    node.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error") as failed:
        sync.run()
    if is_noted_first:
        log.abandon(failed.value)
    # The kernel would say "done" this time (F2).
    with pytest.raises(OSError, match="an earlier sync failed"):
        checkpoint.run()
    if not is_noted_first:
        log.abandon(failed.value)
    log.abandon(failed.value)
    assert log.synced_offset == log.state.recovery_point == 0
    assert manager.offline is not None

    again = node.start_after_cut().logs[PARTITION]
    assert again.offline is None
    first = again.segments[0]
    checked = CheckedWalk(first.reader(), 0, first.size)
    assert len(list(checked)) == again.end_offset == 0
    assert checked.problem is None


def test_y3_a_sync_after_a_failed_checkpoint_fails_too() -> None:
    node = Node()
    log = OneLog(LogSettings(), node.files, node.store).create()
    append(log, LARGE)
    sync, checkpoint = log.begin_sync(), log.begin_checkpoint()
    assert sync is not None
    assert checkpoint is not None
    node.fail_next_sync()
    with pytest.raises(OSError, match="Input/output error"):
        checkpoint.run()
    for _ in range(2):
        with pytest.raises(OSError, match="an earlier sync failed"):
            sync.run()


def test_l5_a_checkpoint_that_ran_counts_for_nothing_once_the_log_is_offline() -> None:
    node = Node()
    manager = node.start()
    log = manager.create(PARTITION)
    log.assign_epoch(EPOCH)
    append(log, LARGE)
    jobs = manager.begin_checkpoint()
    for _, job in jobs:
        job.run()
    log.fail("append", OSError("no"))
    before = dict(node.store.scan(b""))
    manager.finish_checkpoint(jobs)
    assert dict(node.store.scan(b"")) == before
    assert log.synced_offset == log.state.recovery_point == 0
    assert log.unsynced.jobs_running == 0


def test_c2_y3_nobody_is_acknowledged_by_a_sync_after_a_failed_checkpoint() -> None:
    async def story() -> None:
        node = Node()
        one = OneLog(LogSettings(), node.files, node.store)
        log, pier = one.create(), FakePier()
        for _ in range(5):
            append(log, LARGE)
        checkpoint = log.begin_checkpoint()
        assert checkpoint is not None
        waiter = await waiting_for(GroupCommit(log, pier), log.end_offset)
        node.fail_next_sync()
        with pytest.raises(OSError, match="Input/output error") as failed:
            checkpoint.run()
        log.abandon(failed.value)
        await pier.let_go()
        assert waiter.done()
        with pytest.raises(StorageError):
            await waiter
        assert log.synced_offset == 0
        assert log.unsynced.jobs_running == 0

    asyncio.run(story())


def test_c2_who_waits_for_what_a_checkpoint_has_synced_is_released() -> None:
    async def story() -> None:
        log, pier = OneLog().create(), FakePier()
        append(log, b"a")
        checkpoint = log.begin_checkpoint()
        assert checkpoint is not None
        checkpoint.run()
        log.store.commit(log.checkpoint_changes(checkpoint))
        loop = asyncio.get_running_loop()
        waiter = loop.create_task(GroupCommit(log, pier).synced(log.end_offset))
        # In the queue of the loop: who waits, then this, and only then the ferry.
        loop.call_soon(log.finish_checkpoint, checkpoint)
        await settled()
        assert waiter.done()
        await waiter
        assert pier.started == 0

    asyncio.run(story())


def test_c2_who_missed_the_ferry_is_released_if_a_checkpoint_came_meanwhile() -> None:
    async def story() -> None:
        log, pier = OneLog().create(), FakePier()
        commit = GroupCommit(log, pier)
        append(log, b"a")
        first = await waiting_for(commit, 1)
        append(log, b"b")
        second = await waiting_for(commit, 2)
        log.checkpoint()
        await pier.let_go()
        assert first.done()
        assert second.done()
        await asyncio.gather(first, second)
        assert pier.started == 1

    asyncio.run(story())
