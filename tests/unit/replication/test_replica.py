"""One partition on this broker: V1 to V3, and what acks mean in each durability."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any

import pytest

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset, TopicPartition
from ottla.replication.replica import Replica
from ottla.replication.storage.faults import FaultRule
from ottla.replication.storage.ports import Files
from tests.builders import NOW_MS, OneLog, faulty_files, produced, small_settings
from tests.replicas import surroundings, view

HERE = TopicPartition("t", 0)
GONE = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t-0 was deleted.")


class Pier(Executor):
    """An executor whose syncs wait until the test lets them go."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    @property
    def count(self) -> int:
        return len(self._waiting)

    async def let_go(self) -> None:
        future, work = self._waiting.pop(0)
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        await settled()


class Someone:
    """Waits for an offset, and writes down every time that somebody calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def reached(self) -> None:
        self.calls.append("reached")

    def failed(self, error: StorageError | RequestError) -> None:
        self.calls.append(f"failed: {error}")


class Reader:
    def __init__(self) -> None:
        self.times = 0

    def woken(self) -> None:
        self.times += 1


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Scene:
    """A replica, its disk's pier, and short ways to use it."""

    def __init__(self, *, fsync: bool = True, files: Files | None = None) -> None:
        self.pier = Pier()
        log = OneLog(small_settings(fsync=fsync), files=files).create()
        self.replica = Replica(HERE, log, surroundings(self.pier))
        self.replica.lead(view(is_fsync=fsync))

    def write(self, *values: bytes) -> int:
        """Append one batch and return the offset behind it."""
        (answer,) = self.replica.append([produced(*values)], now_ms=NOW_MS)
        assert not isinstance(answer, RequestError)
        return answer.last_offset + 1

    def held(self, offset: int) -> Someone:
        someone = Someone()
        assert not self.replica.when_held(Offset(offset), someone)
        return someone

    def committed(self, offset: int) -> Someone:
        someone = Someone()
        assert self.replica.when_committed(Offset(offset), someone) is None
        return someone


def play(story: Callable[[Scene], Awaitable[None]], **how: Any) -> None:
    async def tell() -> None:
        await story(Scene(**how))

    asyncio.run(tell())


def test_with_fsync_nothing_is_held_or_visible_before_it_is_synced() -> None:
    async def story(scene: Scene) -> None:
        end = scene.write(b"a", b"b")
        one, everyone = scene.held(end), scene.committed(end)
        await settled()
        assert (scene.replica.log.held_offset, scene.replica.log.high_watermark) == (0, 0)
        assert one.calls == everyone.calls == []
        await scene.pier.let_go()
        assert (scene.replica.log.held_offset, scene.replica.log.high_watermark) == (2, 2)
        assert one.calls == everyone.calls == ["reached"]

    play(story)


def test_with_pagecache_what_is_appended_is_held_and_nobody_waits_for_the_disk() -> None:
    async def story(scene: Scene) -> None:
        end = scene.write(b"a", b"b")
        log = scene.replica.log
        assert (log.held_offset, log.high_watermark) == (2, 2)
        assert scene.replica.when_held(Offset(end), Someone())
        assert scene.replica.when_committed(Offset(end), Someone()) is ErrorCode.NONE
        await settled()
        assert scene.pier.count == 0

    play(story, fsync=False)


def test_who_asks_for_what_is_held_does_not_wait() -> None:
    async def story(scene: Scene) -> None:
        end = scene.write(b"a")
        await settled()
        await scene.pier.let_go()
        someone = Someone()
        assert scene.replica.when_held(Offset(end), someone)
        assert scene.replica.when_committed(Offset(end), someone) is ErrorCode.NONE
        assert someone.calls == []
        assert scene.replica.waiting_count == 0

    play(story)


def test_v3_many_are_released_by_one_sync_each_exactly_once() -> None:
    async def story(scene: Scene) -> None:
        waiting = []
        for number in range(5):
            end = scene.write(b"%d" % number)
            waiting += [scene.held(end), scene.committed(end)]
        await settled()
        assert scene.pier.count == 1
        assert scene.replica.waiting_count == 10
        await scene.pier.let_go()
        # Nothing was written meanwhile, so nothing is synced again.
        assert scene.pier.count == 0
        assert [someone.calls for someone in waiting] == [["reached"]] * 10
        assert scene.replica.waiting_count == 0

    play(story)


def test_v3_who_came_while_a_sync_was_under_way_waits_for_the_next() -> None:
    async def story(scene: Scene) -> None:
        early = scene.held(scene.write(b"a"))
        await settled()
        late = scene.held(scene.write(b"b"))
        await scene.pier.let_go()
        assert (early.calls, late.calls) == (["reached"], [])
        await scene.pier.let_go()
        assert (early.calls, late.calls) == (["reached"], ["reached"])

    play(story)


def test_readers_are_woken_when_the_high_watermark_moves_and_not_before() -> None:
    async def story(scene: Scene) -> None:
        reader = Reader()
        scene.replica.readers.add(reader)
        scene.write(b"a")
        await settled()
        assert reader.times == 0
        await scene.pier.let_go()
        assert reader.times == 1
        scene.replica.readers.discard(reader)
        scene.write(b"b")
        await settled()
        await scene.pier.let_go()
        assert reader.times == 1

    play(story)


def test_a_batch_that_is_refused_wakes_nobody_and_syncs_nothing() -> None:
    async def story(scene: Scene) -> None:
        reader = Reader()
        scene.replica.readers.add(reader)
        (answer,) = scene.replica.append([b"no batch"], now_ms=NOW_MS)
        assert isinstance(answer, RequestError)
        # It holds nothing that was looked at on the way.
        assert answer.__traceback__ is None
        await settled()
        assert scene.pier.count == 0
        assert reader.times == 0

    play(story)


def test_a_failed_sync_tells_everybody_once_and_the_replica_is_offline() -> None:
    files, plan, _ = faulty_files()

    async def story(scene: Scene) -> None:
        reader = Reader()
        scene.replica.readers.add(reader)
        end = scene.write(b"a")
        one, everyone = scene.held(end), scene.committed(end)
        await settled()
        plan.rules.append(FaultRule("sync", "*.log"))
        await scene.pier.let_go()
        (told,) = one.calls
        assert told.startswith("failed: ")
        assert everyone.calls == [told]
        # Who reads is told as well, and nothing became visible.
        assert reader.times == 1
        assert scene.replica.log.high_watermark == 0
        with pytest.raises(StorageError):
            scene.write(b"b")
        assert scene.replica.waiting_count == 0

    play(story, files=files)


def test_deleted_while_somebody_waits() -> None:
    async def story(scene: Scene) -> None:
        reader = Reader()
        scene.replica.readers.add(reader)
        first = scene.held(scene.write(b"a"))
        await settled()
        scene.replica.retire(GONE)
        assert first.calls == [f"failed: {GONE}"]
        assert reader.times >= 1
        closing = asyncio.ensure_future(scene.replica.close())
        await settled()
        # The sync under way is waited for: it may not write into files that are gone.
        assert not closing.done()
        await scene.pier.let_go()
        await closing
        assert len(first.calls) == 1

    play(story)


def test_deleted_with_a_sync_that_does_not_come_any_more() -> None:
    files, plan, _ = faulty_files()

    async def story(scene: Scene) -> None:
        someone = scene.held(scene.write(b"a"))
        await settled()
        plan.rules.append(FaultRule("sync", "*.log"))
        scene.replica.retire(GONE)
        closing = asyncio.ensure_future(scene.replica.close())
        await scene.pier.let_go()
        await closing
        assert len(someone.calls) == 1
        assert someone.calls[0].startswith("failed: ")

    play(story, files=files)


def test_who_waits_for_an_offset_that_never_comes_is_told_the_reason() -> None:
    async def story(scene: Scene) -> None:
        someone = scene.committed(100)
        await settled()
        while scene.pier.count:
            await scene.pier.let_go()
        scene.replica.retire(GONE)
        assert someone.calls == [f"failed: {GONE}"]
        assert scene.replica.waiting_count == 0

    play(story)


def test_closing_without_a_reason_leaves_nobody_believing_anything() -> None:
    async def story(scene: Scene) -> None:
        someone = scene.held(scene.write(b"a"))
        await settled()
        closing = asyncio.ensure_future(scene.replica.close())
        await scene.pier.let_go()
        await closing
        assert someone.calls == ["reached"]

    play(story)


def test_a_waiter_may_wait_again_when_it_is_called() -> None:
    """Who is released may write again at once: the queues are changed while they are emptied."""

    async def story(scene: Scene) -> None:
        second = Someone()

        class Eager(Someone):
            def reached(self) -> None:
                super().reached()
                scene.replica.when_held(Offset(scene.write(b"more")), second)

        first = Eager()
        assert not scene.replica.when_held(Offset(scene.write(b"a")), first)
        await settled()
        await scene.pier.let_go()
        assert (first.calls, second.calls) == (["reached"], [])
        while scene.pier.count:
            await scene.pier.let_go()
        assert (first.calls, second.calls) == (["reached"], ["reached"])

    play(story)
