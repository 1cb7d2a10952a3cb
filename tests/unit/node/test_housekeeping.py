"""Rounds go on: whatever happens in one, the next one comes, and no job is left behind (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.node import housekeeping
from ottla.node.clock import Clock
from ottla.node.config import load_node_options
from ottla.node.housekeeping import Housekeeping
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.proto.errors import InvariantError, StorageError
from ottla.proto.ids import TopicPartition
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import NO_TOPIC_ID
from ottla.replication.replica import Replica
from ottla.replication.replicas import Replicas
from ottla.replication.storage.failpoints import arm, disarm_all
from ottla.replication.storage.memory import MemoryStateStore
from tests.builders import NOW_MS, produced, small_settings
from tests.replicas import all_synced, surroundings, view
from tests.unit.node.doors import until
from tests.unit.replication.log.scarce import ScarceFiles

if TYPE_CHECKING:
    from ottla.node.broker import Broker

EVERY_MILLISECOND = {
    "log.flush.offset.checkpoint.interval.ms": "1",
    "log.retention.check.interval.ms": "1",
    "log.cleaner.backoff.ms": "1",
}
DEADLINE_S = 20


@dataclass
class HouseBroker:
    """Those parts of a `Broker` that housekeeping looks at."""

    replicas: Replicas
    options: NodeOptions
    clock: Clock
    metrics: Metrics


class House:
    """Three partitions in memory, each with one record."""

    def __init__(self, executor: Executor, keeper: type[Housekeeping] = Housekeeping) -> None:
        self.files = ScarceFiles()
        self.files.make_dir("/data")
        settings = small_settings(
            retention_ms=1, segment_ms=1, compact=True, min_cleanable_dirty_ratio=0.0
        )
        self.manager = LogManager(self.files, MemoryStateStore(), "/data", lambda topic: settings)
        self.manager.open(now_ms=NOW_MS)
        self.replicas = Replicas(self.manager, executor, surroundings(executor))
        here = {TopicPartition("t", index): NO_TOPIC_ID for index in range(3)}
        self.manager.adopt(self.manager.make(here))
        for partition in here:
            self.replicas.lead(partition, view())
        options = NodeOptions(load_node_options(path=None, environment={}, flags=EVERY_MILLISECOND))
        broker = HouseBroker(self.replicas, options, Clock(), Metrics(version="test"))
        self.keeping = keeper(cast("Broker", broker), executor)

    async def write(self, count: int = 1) -> list[Replica]:
        for replica in self.replicas:
            for _ in range(count):
                replica.append([produced((b"k", b"a" * 100))], now_ms=NOW_MS)
            await all_synced(replica)
        return list(self.replicas)


def live(story: Callable[[House], Awaitable[None]], keeper: Any = Housekeeping) -> None:
    async def tell() -> None:
        with ThreadPoolExecutor(1) as executor:
            await asyncio.wait_for(story(House(executor, keeper)), DEADLINE_S)

    asyncio.run(tell())


@pytest.fixture(autouse=True)
def _nothing_stays_armed() -> Iterator[None]:
    yield
    disarm_all()


@pytest.mark.parametrize("name", ["log.checkpoint.before", "log.checkpoint.after"])
def test_a_checkpoint_that_fails_is_told_and_leaves_no_job_behind(name: str) -> None:
    async def story(house: House) -> None:
        replicas = await house.write()
        arm(name, "error(EIO)")
        with pytest.raises(StorageError):
            await house.keeping.checkpoint()
        assert {replica.log.unsynced.jobs_running for replica in replicas} == {0}
        assert house.manager.offline is not None

    live(story)


def test_a_sync_that_fails_in_a_checkpoint_is_told() -> None:
    async def story(house: House) -> None:
        replicas = await house.write()
        arm("log.sync.before", "error(EIO)")
        with pytest.raises(StorageError, match="sync failed"):
            await house.keeping.checkpoint()
        assert {replica.log.unsynced.jobs_running for replica in replicas} == {0}

    live(story)


def test_a_checkpoint_without_descriptors_takes_nothing_offline_and_the_next_one_succeeds() -> None:
    async def story(house: House) -> None:
        replicas = await house.write()
        house.files.limit = 0
        with pytest.raises(StorageError, match="too many open files"):
            await house.keeping.checkpoint()
        assert {replica.log.offline for replica in replicas} == {None}
        house.files.give_all()
        await house.keeping.checkpoint()
        assert {replica.log.state.recovery_point for replica in replicas} == {1}
        await house.replicas.remove(
            house.replicas.take_out([replica.partition for replica in replicas])
        )

    live(story)


def test_retention_without_descriptors_in_one_partition_goes_on_to_the_next() -> None:
    async def story(house: House) -> None:
        first, *others = await house.write()
        await house.keeping.checkpoint()
        arm("log.roll.before", "error(EMFILE)@1")
        await house.keeping.retain()
        assert house.manager.offline is None
        assert first.log.offline is None
        assert [other.log.start_offset for other in others] == [1, 1]

    live(story)


def test_cleaning_without_descriptors_takes_nothing_offline_and_succeeds_later() -> None:
    async def story(house: House) -> None:
        replicas = await house.write(10)
        await house.keeping.checkpoint()
        before = replicas[0].log.size_bytes
        arm("log.clean.write", "error(EMFILE)@1")
        await house.keeping.clean()
        assert house.manager.offline is None
        first, *others = replicas
        assert first.log.offline is None
        assert first.log.size_bytes == before
        assert all(other.log.size_bytes < before for other in others)
        await house.keeping.clean()
        assert first.log.size_bytes < before

    live(story)


class Buggy(Housekeeping):
    """Has a bug in one of its rounds."""

    async def retain(self) -> None:
        raise InvariantError("a bug")


def test_a_bug_in_a_round_reaches_the_handler_of_the_loop_each_time() -> None:
    async def story(house: House) -> None:
        heard: asyncio.Queue[object] = asyncio.Queue()
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: heard.put_nowait(context["exception"])
        )
        house.keeping.start()
        bugs = [await heard.get() for _ in range(3)]
        assert [type(bug) for bug in bugs] == [InvariantError] * 3
        await house.keeping.stop()

    live(story, Buggy)


class Troubled(Housekeeping):
    """Is told to stop in the middle of a round that then fails."""

    began: asyncio.Event
    gate: asyncio.Event

    async def retain(self) -> None:
        self.began.set()
        await self.gate.wait()
        raise StorageError("no")


def test_a_round_that_fails_while_the_node_stops_does_not_hold_up_the_stop() -> None:
    async def story(house: House) -> None:
        keeping = cast("Troubled", house.keeping)
        keeping.began, keeping.gate = asyncio.Event(), asyncio.Event()
        keeping.start()
        await keeping.began.wait()
        stopping = asyncio.get_running_loop().create_task(keeping.stop())
        await asyncio.sleep(0)
        keeping.gate.set()
        await stopping

    live(story, Troubled)


def test_the_files_of_deleted_partitions_go_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the next round of retention, which is minutes away."""
    monkeypatch.setattr(housekeeping, "_REMOVAL_S", 0.001)

    def names(house: House) -> list[str]:
        return [name for name in house.files.list_dir("/data") if name.endswith("-delete")]

    async def story(house: House) -> None:
        replicas = await house.write()
        gone = house.replicas.take_out([replica.partition for replica in replicas])
        await house.replicas.remove(gone)
        assert len(names(house)) == len(replicas)
        async with asyncio.timeout(DEADLINE_S):
            house.keeping.start()
            await until(lambda: not names(house))
            await house.keeping.stop()

    live(story)


def test_a_partition_that_is_deleted_between_two_turns_is_left_alone() -> None:
    async def story(house: House) -> None:
        replicas = await house.write()
        round_ = asyncio.get_running_loop().create_task(house.keeping.retain())
        await house.replicas.remove(
            house.replicas.take_out([replica.partition for replica in replicas])
        )
        await round_
        assert house.manager.offline is None

    live(story)
