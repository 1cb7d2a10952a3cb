"""Syncs that the kernel does by itself (K1 to K3, Y3), told by a door that the test opens."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from threading import Thread

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.log import Log
from ottla.replication.log.sync_kernel import KernelSyncs
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFile, DiskFiles
from ottla.replication.storage.failpoints import arm, disarm_all
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyFiles, Power
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import OneLog, append
from tests.unit.replication.log.kernel_door import AT_ONCE, WAIT_S, FakeDoor, many_logs, real_log
from tests.unit.replication.log.test_group_commit import FakePier, settled, waiting_for


def told_with(
    directory: Path,
    story: Callable[[Log, FakeDoor, FakePier, GroupCommit], object],
) -> Log:
    log = real_log(directory)
    tell_on(log, story)
    return log


def tell_on(log: Log, story: Callable[[Log, FakeDoor, FakePier, GroupCommit], object]) -> None:
    door, pier = FakeDoor(), FakePier()

    async def tell() -> None:
        kernel = KernelSyncs(door)
        told = story(log, door, pier, GroupCommit(log, pier, kernel=kernel))
        assert asyncio.iscoroutine(told)
        async with asyncio.timeout(WAIT_S):
            await told
        kernel.close()

    asyncio.run(tell())


def test_k1_the_kernel_syncs_and_no_thread_does(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert [fd for fd, _ in door.orders] == [log.active.writer().fileno()]
        assert not waiter.done()
        assert log.synced_offset == 1
        door.end()
        await waiter
        assert log.synced_offset == 2
        assert pier.started == 0

    assert told_with(tmp_path, story).unsynced.jobs_running == 0


def test_k1_all_that_ended_together_are_told_of(tmp_path: Path) -> None:
    logs = many_logs(tmp_path, 2 * AT_ONCE + 1)
    door, pier = FakeDoor(), FakePier()

    async def tell() -> None:
        kernel = KernelSyncs(door)
        commits = [GroupCommit(log, pier, kernel=kernel) for log in logs]
        for log in logs:
            append(log, b"a")
        waiters = [await waiting_for(commit, 2) for commit in commits]
        for _ in logs:
            door.end()
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(*waiters)
        kernel.close()

    asyncio.run(tell())


def test_k2_a_bug_in_one_of_several_that_ended_leaves_no_gate_shut(tmp_path: Path) -> None:
    logs = many_logs(tmp_path, AT_ONCE)
    door, pier = FakeDoor(), FakePier()

    async def tell() -> None:
        kernel = KernelSyncs(door)
        commits = [GroupCommit(log, pier, kernel=kernel) for log in logs]
        bugs = list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, what: bugs.append(what))
        for log in logs:
            append(log, b"a")
        # Of the first one nobody can be told what is durable.
        file = logs[0].active.writer()
        assert isinstance(file, DiskFile)
        logs[0].active._writer = _Lost(file.fileno())
        waiters = [await waiting_for(commit, 2) for commit in commits]
        for _ in logs:
            door.end()
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(StorageError, match="a sync was lost"):
                await waiters[0]
            await waiters[1]
        assert len(bugs) == 1
        assert logs[0].offline is not None
        assert logs[1].synced_offset == 2
        kernel.close()
        file.close()

    asyncio.run(tell())


class _Lost(DiskFile):
    """A file that cannot write down what is durable, and owns no descriptor."""

    def ended(self, error: OSError | None) -> None:
        raise RuntimeError("nobody knows")

    def close(self) -> None: ...


def test_after_the_end_threads_do_it(tmp_path: Path) -> None:
    log, door, pier = real_log(tmp_path), FakeDoor(), FakePier()

    async def tell() -> None:
        kernel = KernelSyncs(door)
        kernel.close()
        append(log, b"a")
        waiter = await waiting_for(GroupCommit(log, pier, kernel=kernel), 2)
        await pier.let_go()
        await waiter

    asyncio.run(tell())


def test_c1_who_comes_meanwhile_takes_the_next_one(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        first = await waiting_for(commit, 2)
        append(log, b"b")
        second = await waiting_for(commit, 3)
        assert len(door.orders) == 1
        door.end()
        await first
        await settled()
        assert not second.done()
        assert len(door.orders) == 1
        door.end()
        await second
        assert pier.started == 0

    told_with(tmp_path, story)


def test_y3_an_error_of_the_kernel_takes_the_log_offline_for_good(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        job = log.unsynced.job(Offset(2), lambda: None)
        door.end(errno.EIO)
        with pytest.raises(StorageError, match="Input/output error"):
            await waiter
        assert log.offline is not None
        assert log.synced_offset == 1
        # Whoever had a job of this log before that hears no "done" either.
        with pytest.raises(OSError, match="an earlier sync failed"):
            job.run()
        assert not job.gate.enter(lambda: None)

    told_with(tmp_path, story)


def test_y3_too_many_files_in_the_middle_of_a_sync_is_final_too(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        door.end(errno.ENFILE)
        with pytest.raises(StorageError):
            await waiter
        assert log.offline is not None

    told_with(tmp_path, story)


def test_k3_who_must_sync_on_the_loop_itself_waits_for_the_kernel_and_not_for_ever(
    tmp_path: Path,
) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        append(log, b"b")
        log.sync()
        assert log.synced_offset == 3
        await waiter
        await settled()
        assert log.unsynced.jobs_running == 0
        assert pier.started == 0

    told_with(tmp_path, story)


def test_k3_y3_and_hears_if_that_one_failed(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        door.waited_code = errno.EIO
        with pytest.raises(StorageError):
            log.sync()
        with pytest.raises(StorageError):
            await waiter
        assert log.synced_offset == 1

    told_with(tmp_path, story)


def test_k1_a_job_that_a_thread_reaped_is_told_of_on_the_loop(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        checkpoint = log.begin_checkpoint()
        assert checkpoint is not None
        # The thread reaps it, and the loop looks before that and finds nothing.
        thread = Thread(target=checkpoint.run)
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        await waiter
        log.store.commit(log.checkpoint_changes(checkpoint))
        log.finish_checkpoint(checkpoint)
        assert log.unsynced.jobs_running == 0

    told_with(tmp_path, story)


def test_what_the_kernel_does_not_take_a_thread_does(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        door.is_open = False
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert pier.started == 1
        await pier.let_go()
        await waiter
        # And the gate is free again.
        door.is_open = True
        append(log, b"b")
        waiter = await waiting_for(commit, 3)
        door.end()
        await waiter

    told_with(tmp_path, story)


def test_a_job_beside_another_one_goes_to_the_threads(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        beside = log.unsynced.job(Offset(2), lambda: None)
        with beside.gate.passing():
            waiter = await waiting_for(commit, 2)
            assert pier.started == 1
        await pier.let_go()
        await waiter
        assert door.orders == []

    told_with(tmp_path, story)


@pytest.fixture
def _armed() -> Iterator[None]:
    arm("log.sync.after", "sleep(0)")
    yield
    disarm_all()


@pytest.mark.usefixtures("_armed")
def test_with_a_failpoint_armed_threads_reach_the_named_places(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert door.orders == []
        await pier.let_go()
        await waiter

    told_with(tmp_path, story)


def test_a_new_segment_has_a_name_to_sync_and_goes_to_the_threads(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        log.roll()
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert (door.orders, pier.started) == ([], 1)
        await pier.let_go()
        await waiter

    told_with(tmp_path, story)


def test_files_in_memory_are_never_handed_over() -> None:
    log = OneLog().create()
    append(log, b"a")
    log.sync()
    append(log, b"b")
    job = log.begin_sync()
    assert job is not None
    assert job.begin_in_kernel() is None


class FaultyDisk:
    """A log on a real disk that can be told to fail, or to lose its power."""

    def __init__(self, directory: Path) -> None:
        self.plan, self.power = FaultPlan(), Power()
        self.files = FaultyFiles(DiskFiles(), self.power, self.plan)
        self.store = MemoryStateStore()
        self.one = OneLog(LogSettings(), self.files, self.store, root=str(directory))

    def with_log(self, story: Callable[[Log, FakeDoor, FakePier, GroupCommit], object]) -> None:
        log = self.one.create()
        append(log, b"first")
        log.sync()
        tell_on(log, story)

    def left_after(self, story: Callable[[Log, FakeDoor, FakePier, GroupCommit], object]) -> Offset:
        """Tell a story, cut the power, and return where the log ends then."""
        self.with_log(story)
        self.power.cut(Random(1), Style.DROP)
        return self.one.open()[0].end_offset


def test_d1_what_the_kernel_has_synced_survives_a_power_cut_and_what_it_has_not_does_not(
    tmp_path: Path,
) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        # Too late for the sync that is on its way.
        append(log, b"b")
        assert len(door.orders) == 1
        door.end()
        await waiter
        assert pier.started == 0

    assert FaultyDisk(tmp_path).left_after(story) == 2


def test_d1_a_sync_on_its_way_is_worth_nothing_in_a_power_cut(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert len(door.orders) == 1
        waiter.cancel()

    assert FaultyDisk(tmp_path).left_after(story) == 1


def test_d4_a_sync_of_the_kernel_that_failed_has_written_nothing(tmp_path: Path) -> None:
    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        door.end(errno.EIO)
        with pytest.raises(StorageError):
            await waiter

    assert FaultyDisk(tmp_path).left_after(story) == 1


def test_a_disk_that_is_to_fail_does_so_on_a_thread(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)

    async def story(log: Log, door: FakeDoor, pier: FakePier, commit: GroupCommit) -> None:
        disk.plan.rules.append(FaultRule("sync", "*.log"))
        append(log, b"a")
        waiter = await waiting_for(commit, 2)
        assert (door.orders, pier.started) == ([], 1)
        await pier.let_go()
        with pytest.raises(StorageError):
            await waiter

    disk.with_log(story)
