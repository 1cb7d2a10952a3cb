"""What is here becomes visible though nobody waits for it, and after a sync that did not begin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.manager import LogManager
from ottla.replication.replicas import Replicas
from ottla.replication.settings import LogSettings
from ottla.replication.storage.failpoints import arm, disarm_all
from ottla.replication.storage.memory import MemoryStateStore
from tests.builders import NOW_MS, OneLog, append
from tests.replicas import all_synced, surroundings, view
from tests.unit.replication.log.scarce import ScarceFiles
from tests.unit.replication.log.test_group_commit import FakePier
from tests.unit.replication.test_replica import Scene, Someone, play, settled

HERE = TopicPartition("t", 0)


def test_v1_what_a_checkpoint_has_synced_becomes_visible() -> None:
    async def story(scene: Scene) -> None:
        scene.write(b"a")
        everyone = scene.committed(1)
        # Before the ferry has left: it will find nothing to carry.
        scene.replica.log.checkpoint()
        await settled()
        assert scene.pier.count == 0
        assert scene.replica.log.high_watermark == 1
        assert everyone.calls == ["reached"]

    play(story)


def test_who_listens_hears_of_each_offset_once() -> None:
    heard: list[Offset] = []

    async def story() -> None:
        log, pier = OneLog().create(), FakePier()
        commit = GroupCommit(log, pier, heard.append)
        append(log, b"a")
        log.sync()
        for _ in range(2):
            commit.request()
            await settled()
        append(log, b"b")
        commit.request()
        await settled()
        await pier.let_go()

    asyncio.run(story())
    assert heard == [1, 2]


def short_of_descriptors(story: Callable[[Scene, ScarceFiles], Awaitable[None]]) -> None:
    files = ScarceFiles()
    files.make_dir("/data")
    play(lambda scene: story(scene, files), files=files)


def test_y4_who_waits_for_a_sync_without_a_descriptor_is_told_and_the_next_one_succeeds() -> None:
    async def story(scene: Scene, files: ScarceFiles) -> None:
        scene.replica.log.roll()
        end = scene.write(b"a")
        everyone = scene.committed(end)
        files.take_all()
        await settled()
        await scene.pier.let_go()
        (call,) = everyone.calls
        assert "too many open files" in call
        assert scene.replica.log.offline is None
        assert scene.replica.log.high_watermark == 0
        files.give_all()
        scene.replica.catch_up()
        await settled()
        await scene.pier.let_go()
        assert scene.replica.log.high_watermark == end

    short_of_descriptors(story)


def test_a_sync_that_cannot_even_be_prepared_is_told_and_is_no_bug() -> None:
    async def story(scene: Scene, files: ScarceFiles) -> None:
        bugs: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: bugs.append(context))
        end = scene.write(b"a")
        scene.replica.log.active.release()
        files.take_all()
        someone = Someone()
        assert not scene.replica.when_held(Offset(end), someone)
        await settled()
        (call,) = someone.calls
        assert "too many open files" in call
        with pytest.raises(StorageError, match="too many open files"):
            await all_synced(scene.replica)
        assert bugs == []
        files.give_all()
        scene.replica.catch_up()
        await settled()
        await scene.pier.let_go()
        assert scene.replica.log.high_watermark == end

    short_of_descriptors(story)


def test_v1_what_a_start_could_not_sync_is_synced_and_visible_once_it_is_led() -> None:
    files, store = ScarceFiles(), MemoryStateStore()
    files.make_dir("/data")

    def start() -> LogManager:
        manager = LogManager(files, store, "/data", lambda topic: LogSettings())
        manager.open(now_ms=NOW_MS)
        return manager

    first = start()
    log = first.create(HERE)
    log.assign_epoch(LeaderEpoch(0))
    append(log, b"a")
    log.sync()
    log.close()
    arm("log.snapshot.before", "error(EMFILE)")
    arm("log.sync.before", "error(EMFILE)")
    try:
        second = start()
    finally:
        disarm_all()
    found = second.logs[HERE]
    assert (found.offline, found.end_offset, found.held_offset) == (None, 1, 0)

    async def story() -> None:
        with ThreadPoolExecutor(1) as executor:
            replicas = Replicas(second, executor, surroundings(executor))
            replicas.lead(HERE, view())
            await replicas.close()
        assert found.high_watermark == 1

    asyncio.run(story())
