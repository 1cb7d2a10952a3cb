"""One fdatasync for everybody who waits (C1, C2, rule 47)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import truncate
from ottla.replication.storage.faults import FaultRule
from tests.builders import OneLog, append, faulty_files


class FakePier(Executor):
    """An executor whose work waits until the test lets it go."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Callable[[], Any]]] = []
        self.started = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        self.started += 1
        return future

    async def let_go(self) -> None:
        """Do the oldest piece of work, and let everybody who waited for it run."""
        future, work = self.waiting.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        await settled()


async def settled() -> None:
    """Give every task that can go on the chance to do so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def waiting_for(commit: GroupCommit, offset: int) -> asyncio.Task[None]:
    task = asyncio.get_running_loop().create_task(commit.synced(Offset(offset)))
    await settled()
    return task


def run(story: Callable[[Log, FakePier, GroupCommit], Awaitable[None]]) -> Log:
    """Tell a story on an event loop, with a fresh log."""
    log, pier = OneLog().create(), FakePier()

    async def tell() -> None:
        await story(log, pier, GroupCommit(log, pier))

    asyncio.run(tell())
    return log


def test_who_waits_is_released_when_the_sync_has_covered_the_offset() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        waiter = await waiting_for(commit, 1)
        assert not waiter.done()
        await pier.let_go()
        assert waiter.done()
        assert log.synced_offset == 1

    run(story)


def test_who_asks_for_what_is_synced_does_not_wait() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        log.sync()
        await commit.synced(Offset(1))
        assert pier.started == 0

    run(story)


def test_c1_later_waiters_share_the_next_sync() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        first = await waiting_for(commit, 1)
        later = []
        for end in (2, 3, 4):
            append(log, b"b")
            later.append(await waiting_for(commit, end))
        assert len(pier.waiting) == 1
        await pier.let_go()
        assert first.done()
        assert not any(waiter.done() for waiter in later)
        assert len(pier.waiting) == 1
        await pier.let_go()
        assert all(waiter.done() for waiter in later)
        assert pier.started == 2

    run(story)


def test_c2_a_sync_that_began_too_early_releases_nobody() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        commit.request()
        await settled()
        append(log, b"b")
        waiter = await waiting_for(commit, 2)
        await pier.let_go()
        assert not waiter.done()
        await pier.let_go()
        await waiter

    run(story)


def test_the_owner_hears_how_far_it_is_synced() -> None:
    heard: list[Offset] = []

    async def story() -> None:
        log = OneLog().create()
        with ThreadPoolExecutor(1) as executor:
            commit = GroupCommit(log, executor, heard.append)
            for end in (1, 2):
                append(log, b"a")
                await commit.synced(Offset(end))

    asyncio.run(story())
    assert heard == [1, 2]


def test_c2_rule_48_a_failed_sync_releases_everybody_with_the_error() -> None:
    async def story() -> None:
        files, plan, _ = faulty_files()
        log, pier = OneLog(files=files).create(), FakePier()
        commit = GroupCommit(log, pier)
        append(log, b"a")
        first = await waiting_for(commit, 1)
        append(log, b"b")
        second = await waiting_for(commit, 2)
        plan.rules.append(FaultRule("sync", "*.log"))
        await pier.let_go()
        for waiter in (first, second):
            with pytest.raises(StorageError):
                await waiter
        with pytest.raises(StorageError):
            await commit.synced(Offset(1))
        assert pier.waiting == []
        assert log.synced_offset == 0

    asyncio.run(story())


def test_c2_a_log_that_goes_offline_meanwhile_releases_everybody_with_the_error() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        first = await waiting_for(commit, 1)
        append(log, b"b")
        second = await waiting_for(commit, 2)
        log.fail("append", OSError("no"))
        await pier.let_go()
        # The sync itself was good, but an offline log acknowledges nothing (L5).
        for waiting in (first, second):
            with pytest.raises(StorageError):
                await waiting

    run(story)


def test_c2_a_listener_that_fails_leaves_nobody_waiting() -> None:
    def refuse(offset: Offset) -> None:
        raise ValueError(offset)

    async def story() -> None:
        log, pier = OneLog().create(), FakePier()
        # The bug itself goes to the loop, which tells it; here it is expected.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        commit = GroupCommit(log, pier, refuse)
        append(log, b"a")
        waiter = await waiting_for(commit, 1)
        await pier.let_go()
        assert waiter.done()
        with pytest.raises(StorageError, match="ValueError"):
            await waiter

    asyncio.run(story())


def test_a_waiter_that_gives_up_harms_nobody() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        patient = await waiting_for(commit, 1)
        hasty = await waiting_for(commit, 1)
        hasty.cancel()
        await settled()
        await pier.let_go()
        await patient
        assert hasty.cancelled()
        append(log, b"b")
        again = await waiting_for(commit, 2)
        await pier.let_go()
        await again

    run(story)


def test_close_waits_for_the_sync_in_flight_and_then_the_log_may_be_cut() -> None:
    async def story(log: Log, pier: FakePier, commit: GroupCommit) -> None:
        append(log, b"a")
        commit.request()
        await settled()
        closing = asyncio.get_running_loop().create_task(commit.close())
        await settled()
        assert not closing.done()
        await pier.let_go()
        await closing
        truncate(log, Offset(0))

    run(story)


def test_many_producers_on_a_real_thread_are_all_released() -> None:
    async def story() -> None:
        log = OneLog().create()
        with ThreadPoolExecutor(2) as executor:
            commit = GroupCommit(log, executor)

            async def producer() -> None:
                for _ in range(10):
                    await commit.synced(Offset(append(log, b"x") + 1))

            await asyncio.gather(*(producer() for _ in range(20)))
            await commit.close()
        assert log.synced_offset == log.end_offset == 200

    asyncio.run(story())
