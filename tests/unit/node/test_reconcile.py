"""The partitions of a broker follow the metadata, also when the disk does not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from ottla.node.config import load_node_options
from ottla.node.metrics import Metrics
from ottla.node.options import NodeOptions
from ottla.node.reconcile import Reconcile
from ottla.proto.errors import ErrorCode, StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.replica import Replica
from ottla.replication.replicas import Replicas
from ottla.replication.settings import LogSettings
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.builders import NOW_MS, produced
from tests.replicas import surroundings
from tests.unit.node.nobody_fetches import NobodyFetches
from tests.unit.replication.test_replica import Pier, Someone

ME = BrokerId(1)
EMPTY = MetadataImage(0, "c", ME, {ME: BrokerInfo(ME, "localhost", 9092)})
ORDERS = TopicPartition("orders", 0)


def topic(name: str, number: int, *, count: int = 1, epoch: int = 0) -> TopicInfo:
    one = PartitionInfo((ME,), (ME,), ME, LeaderEpoch(epoch), 0)
    return TopicInfo(name, UUID(int=number), (one,) * count, {})


def image(*topics: TopicInfo) -> MetadataImage:
    return replace(
        EMPTY,
        topics={one.name: one for one in topics},
        topic_names={one.topic_id: one.name for one in topics},
    )


class Disk:
    """What survives a restart."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.files.make_dir("/data")
        self.records: dict[bytes, bytes] = {}

    def names(self) -> list[str]:
        return self.files.list_dir("/data")


class Place:
    """A broker's partitions, from a start to the next."""

    def __init__(
        self,
        disk: Disk,
        executor: ThreadPoolExecutor,
        fetchers: NobodyFetches | None = None,
        *,
        pier: Executor | None = None,
    ) -> None:
        self.manager = LogManager(
            disk.files, MemoryStateStore(disk.records), "/data", lambda name: LogSettings()
        )
        self.report: StartReport = self.manager.open(now_ms=NOW_MS)
        self.replicas = Replicas(self.manager, executor, surroundings(pier or executor))
        options = NodeOptions(load_node_options(path=None, environment={}, flags={}))
        self.reconcile = Reconcile(
            ME, self.replicas, options, Metrics(version="test"), fetchers or NobodyFetches()
        )

    async def begin(self, first: MetadataImage) -> None:
        await self.reconcile.begin(first, self.report.damaged)

    def write(self, value: bytes, name: str = "orders") -> None:
        replica = self.replicas.get(name, 0)
        assert replica is not None
        replica.append([produced(value)], now_ms=NOW_MS)
        replica.log.sync()

    def ends(self) -> Mapping[str, int]:
        return {str(one.partition): one.log.end_offset for one in self.replicas}


def run(story: object) -> None:
    with ThreadPoolExecutor(2) as executor:
        asyncio.run(story(executor))  # type: ignore[operator]  # an async function of the executor


def test_logs_come_and_go_with_their_topics() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(EMPTY)
        await place.reconcile.obey(image(topic("orders", 1, count=3), topic("other", 2)))
        assert disk.names() == ["orders-0", "orders-1", "orders-2", "other-0"]
        await place.reconcile.obey(image(topic("other", 2)))
        place.manager.remove_buried()
        assert disk.names() == ["other-0"]

    run(story)


def test_rule_5_a_topic_that_is_made_again_begins_empty() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1)))
        place.write(b"old")
        await place.reconcile.obey(image(topic("orders", 2)))
        assert place.ends() == {"orders-0": 0}

    run(story)


def test_s1_a_log_of_another_topic_of_this_name_is_set_aside_at_a_start() -> None:
    # A deletion was committed and its logs were not removed: the disk had failed.
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1, epoch=7)))
        place.write(b"old")
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 2)))
        assert place.ends() == {"orders-0": 0}
        assert disk.names() == ["orders-0", "orders-0.0-stray"]
        place.write(b"new")
        assert place.ends() == {"orders-0": 1}

    run(story)


def test_y3_a_disk_that_is_offline_is_told_and_no_old_log_is_taken_for_a_new_topic() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1)))
        place.write(b"old")
        place.manager.offline = "EIO"
        with pytest.raises(StorageError, match="EIO"):
            await place.reconcile.obey(EMPTY)
        with pytest.raises(StorageError, match="EIO"):
            await place.reconcile.obey(image(topic("orders", 2)))
        assert place.replicas.get("orders", 0) is None
        assert place.replicas.refusal("orders", 0).code is ErrorCode.KAFKA_STORAGE_ERROR

    run(story)


def test_y3_a_log_that_could_not_be_made_is_made_with_the_next_image() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(EMPTY)
        place.manager.offline = "for a moment"
        with pytest.raises(StorageError):
            await place.reconcile.obey(image(topic("orders", 1)))
        assert place.replicas.refusal("orders", 0).code is ErrorCode.KAFKA_STORAGE_ERROR
        place.manager.offline = None
        await place.reconcile.obey(image(topic("orders", 1), topic("other", 2)))
        assert place.ends() == {"orders-0": 0, "other-0": 0}

    run(story)


def _remove_directory(disk: Disk, name: str) -> None:
    for file in disk.files.list_dir(f"/data/{name}"):
        disk.files.remove(f"/data/{name}/{file}")
    disk.files.remove_dir(f"/data/{name}")


def test_y1_a_lost_partition_is_not_begun_anew_until_its_topic_is_deleted() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1)))
        place.write(b"old")
        _remove_directory(disk, "orders-0")
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1)))
        assert place.replicas.refusal("orders", 0).code is ErrorCode.KAFKA_STORAGE_ERROR
        await place.reconcile.obey(EMPTY)
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 2)))
        assert place.ends() == {"orders-0": 0}

    run(story)


def test_the_record_of_a_deleted_topic_whose_files_are_gone_is_nobodys_heritage() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1)))
        place.write(b"old")
        _remove_directory(disk, "orders-0")
        place = Place(disk, executor)
        await place.begin(EMPTY)
        assert not place.replicas.is_lost(ORDERS)
        assert disk.records == {}

    run(story)


def test_a_log_from_a_later_epoch_than_the_metadata_is_not_written_to() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1, epoch=7)))
        place.write(b"old")
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1, epoch=3)))
        assert place.replicas.get("orders", 0) is None
        assert "epoch 7" in place.replicas.refusal("orders", 0).sentence
        assert disk.names() == ["orders-0"]

    run(story)


def test_a_topic_that_is_deleted_while_its_log_is_compacted_holds_up_nobody() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        disk = Disk()
        place = Place(disk, executor)
        await place.begin(image(topic("orders", 1), topic("other", 2)))
        place.write(b"old")
        old = place.replicas.get("orders", 0)
        assert old is not None
        await old.cleaning.acquire()
        async with asyncio.timeout(10):
            await place.reconcile.obey(image(topic("other", 2, epoch=1)))
        # Rule 5: nobody is served from it under its name.
        assert place.replicas.get("orders", 0) is None
        again = asyncio.create_task(place.reconcile.obey(image(topic("orders", 3))))
        await asyncio.sleep(0)
        assert place.replicas.get("orders", 0) is None
        old.cleaning.release()
        await again
        assert place.ends() == {"orders-0": 0}

    run(story)


def test_leaders_are_placed_before_anything_is_made_or_removed() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        place = Place(Disk(), executor)
        await place.begin(image(topic("orders", 1), topic("gone", 2)))
        obeying = asyncio.create_task(
            place.reconcile.obey(image(topic("orders", 1, epoch=1), topic("new", 3, count=200)))
        )
        # One turn of the loop: nothing was waited for yet.
        await asyncio.sleep(0)
        replica = place.replicas.get("orders", 0)
        assert replica is not None
        assert replica.leader_epoch == 1
        assert not obeying.done()
        await obeying

    run(story)


class Placed(NobodyFetches):
    """Takes note of who was told to lead, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions = list[int]()

    def leave(self, replica: Replica) -> None:
        self.partitions.append(replica.partition.partition)


def test_y4_where_somebody_writes_is_led_first_and_others_have_their_turn_meanwhile() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        placed = Placed()
        place = Place(Disk(), executor, placed)
        count = 500
        await place.begin(image(topic("orders", 1, count=count)))
        replica = place.replicas.get("orders", count - 1)
        assert replica is not None
        replica.append([produced(b"busy")], now_ms=NOW_MS)
        placed.partitions.clear()
        seen = list[int]()
        obeying = asyncio.ensure_future(
            place.reconcile.obey(image(topic("orders", 1, count=count, epoch=1)))
        )
        while not obeying.done():
            await asyncio.sleep(0)
            seen.append(len(placed.partitions))
        await obeying
        assert placed.partitions == [count - 1, *range(count - 1)]
        assert any(0 < number < count for number in seen), "nobody else had a turn"

    run(story)


def test_y4_whom_somebody_asks_for_has_its_turn_at_once_and_once() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        placed = Placed()
        place = Place(Disk(), executor, placed)
        count = 500
        await place.begin(image(topic("orders", 1, count=count)))
        placed.partitions.clear()
        obeying = asyncio.ensure_future(
            place.reconcile.obey(image(topic("orders", 1, count=count, epoch=1)))
        )
        await asyncio.sleep(0)
        place.reconcile.hurry(TopicPartition("orders", count - 1))
        assert placed.partitions[-1] == count - 1
        assert len(placed.partitions) < count
        place.reconcile.hurry(TopicPartition("orders", count - 1))
        await obeying
        assert sorted(placed.partitions) == list(range(count))
        place.reconcile.hurry(ORDERS)
        assert len(placed.partitions) == count

    run(story)


@pytest.mark.parametrize("has_writer", [True, False])
def test_y4_those_where_nobody_writes_give_way_only_where_somebody_does(has_writer: bool) -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        place = Place(Disk(), executor)
        count = 500
        await place.begin(image(topic("orders", 1, count=count)))
        if has_writer:
            place.write(b"busy")
        obeying = asyncio.ensure_future(
            place.reconcile.obey(image(topic("orders", 1, count=count, epoch=1)))
        )
        turns = 0
        while not obeying.done():
            await asyncio.sleep(0)
            turns += 1
        await obeying
        # Eight parts. One turn after each is what others have anyway; a rest is many of them.
        assert (turns > 30) == has_writer, turns

    run(story)


def test_new_partitions_of_a_topic_go_by_the_options_that_the_others_know_already() -> None:
    async def story(executor: ThreadPoolExecutor) -> None:
        place = Place(Disk(), executor)
        few = replace(topic("orders", 1), configs={"segment.bytes": "1048576"})
        await place.begin(image(few))
        more = replace(topic("orders", 1, count=2), configs=few.configs)
        await place.reconcile.obey(image(more))
        sizes = [one.log.settings.segment_bytes for one in place.replicas]
        assert sizes == [1 << 20, 1 << 20]
        await place.reconcile.obey(image(replace(more, configs={"segment.bytes": "2097152"})))
        sizes = [one.log.settings.segment_bytes for one in place.replicas]
        assert sizes == [2 << 20, 2 << 20]

    run(story)


def test_rule_38_one_image_with_a_higher_minimum_and_pagecache_is_obeyed_as_one() -> None:
    """With fsync one was enough; in the page cache there must be two, and there is one."""

    async def story(executor: ThreadPoolExecutor) -> None:
        place = Place(Disk(), executor, pier=Pier())
        two = PartitionInfo((ME, BrokerId(2)), (ME,), ME, LeaderEpoch(0), 0)
        one_is_enough = {"min.insync.replicas": "1"}
        durable = replace(topic("orders", 1), partitions=(two,), configs=one_is_enough)
        await place.begin(image(durable))
        replica, someone = place.replicas.get("orders", 0), Someone()
        assert replica is not None
        replica.append([produced(b"not synced")], now_ms=NOW_MS)
        assert replica.when_committed(Offset(1), someone) is None
        changed = replace(
            durable,
            partitions=(replace(two, is_durable=False, partition_epoch=2),),
            configs={"min.insync.replicas": "2", "ottla.durability": "pagecache"},
        )
        await place.reconcile.obey(image(changed))
        assert (someone.calls, replica.log.high_watermark) == ([], 0)

    run(story)
