"""DeleteRecords, row by row.

Where a comment says so, the answer is that of Apache Kafka 4.3.1 to the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT64_MAX, BrokerId
from ottla.proto.kafka.apis import DELETE_RECORDS
from tests.builders import produced, values_of
from tests.replicas import HeardFeed
from tests.unit.node.kafka.asking_for_offsets import NOTHING, listed, write_five
from tests.unit.node.kafka.desk import Desk, Place, open_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A broker with a topic of five records at 1000, 2000, … 5000."""
    with open_desk() as opened:
        opened.create("t", 2)
        write_five(opened, "t")
        yield opened


def deleted(
    desk: Desk, *wishes: tuple[str, int, int], version: int = 2, timeout: int = 1000
) -> list[tuple[str, int, int, int]]:
    """Delete below offsets; return topic, partition, error, low watermark."""
    answer = desk.ask(
        DELETE_RECORDS,
        version,
        topics=[
            {"name": topic, "partitions": [{"partition_index": index, "offset": offset}]}
            for topic, index, offset in wishes
        ],
        timeout=timeout,
    )
    return [
        (topic["name"], one["partition_index"], one["error_code"], one["low_watermark"])
        for topic in answer["topics"]
        for one in topic["partitions"]
    ]


# The same as Kafka's.
def test_a_log_begins_where_it_is_told_to_and_never_earlier_again(desk: Desk) -> None:
    for offset, start in ((2, 2), (1, 2), (0, 2), (-1, 5), (-1, 5), (3, 5)):
        assert deleted(desk, ("t", 0, offset)) == [("t", 0, 0, start)]
        assert listed(desk, -2)[2] == start
    assert listed(desk, -1) == (0, -1, 5, 0)
    assert listed(desk, 0) == NOTHING


def test_followers_are_told_that_the_log_begins_later(desk: Desk) -> None:
    feed = desk.replica("t").feeds[BrokerId(2)] = HeardFeed()
    assert deleted(desk, ("t", 0, 2)) == [("t", 0, 0, 2)]
    assert feed.committed_count == 1
    assert deleted(desk, ("t", 0, INT64_MAX)) == [("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert feed.committed_count == 1


@pytest.mark.parametrize("version", range(DELETE_RECORDS.low, DELETE_RECORDS.high + 1))
def test_every_version_deletes(desk: Desk, version: int) -> None:
    assert deleted(desk, ("t", 0, 3), version=version) == [("t", 0, 0, 3)]
    assert listed(desk, 0) == (0, 4000, 3, 0)


# The same as Kafka's.
@pytest.mark.parametrize("offset", [6, INT64_MAX, -2, -INT64_MAX - 1])
def test_an_offset_beyond_the_high_watermark_is_out_of_range(desk: Desk, offset: int) -> None:
    assert deleted(desk, ("t", 0, offset)) == [("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert listed(desk, -2)[2] == 0


def test_what_is_not_committed_is_not_deleted(desk: Desk) -> None:
    log = desk.write_only("t", produced(b"not committed")).log
    assert log.end_offset == 6
    assert deleted(desk, ("t", 0, 6)) == [("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert deleted(desk, ("t", 0, -1)) == [("t", 0, 0, 5)]


# The same as Kafka's.
def test_a_log_that_keeps_the_last_of_each_key_keeps_it(desk: Desk) -> None:
    desk.create("compacted", cleanup_policy="compact")
    desk.create("both", cleanup_policy="compact,delete")
    desk.create("kept", cleanup_policy="")
    assert deleted(desk, ("compacted", 0, 0), ("both", 0, 0), ("kept", 0, 0)) == [
        ("compacted", 0, ErrorCode.POLICY_VIOLATION, -1),
        ("both", 0, 0, 0),
        ("kept", 0, ErrorCode.POLICY_VIOLATION, -1),
    ]


# The same as Kafka's.
def test_one_wish_that_fails_does_not_spoil_another(desk: Desk) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted(desk, ("nope", 0, 0), ("t", 0, 1), ("t", 9, 0), ("t", -1, 0)) == [
        ("nope", 0, unknown, -1),
        ("t", 0, 0, 1),
        ("t", 9, unknown, -1),
        ("t", -1, unknown, -1),
    ]
    assert deleted(desk) == []


# The same as Kafka's.
def test_of_two_wishes_for_one_partition_the_last_counts(desk: Desk) -> None:
    assert deleted(desk, ("t", 0, 4), ("t", 0, 2)) == [("t", 0, 0, 2)]


def test_the_records_of_an_internal_topic_stay(desk: Desk) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted(desk, ("__consumer_offsets", 0, 0))[0][2] == unknown
    desk.create("__consumer_offsets")
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert deleted(desk, ("__consumer_offsets", 0, 0))[0][2] == refused


def test_a_deletion_outlives_a_restart() -> None:
    place = Place()
    with open_desk(place) as desk:
        desk.create("t")
        write_five(desk, "t")
        assert deleted(desk, ("t", 0, 4)) == [("t", 0, 0, 4)]
    with open_desk(place) as desk:
        assert listed(desk, -2)[2] == 4
        assert listed(desk, -1)[2] == 5


def test_a_deletion_during_a_sync_and_a_checkpoint_leaves_both_sound() -> None:
    place = Place()
    with open_desk(place) as desk:
        desk.create("t")
        log = desk.replica("t").log
        log.adopt_settings(replace(log.settings, segment_bytes=600))
        for _ in range(8):
            desk.write("t", produced(b"x" * 100))
        desk.write_only("t", produced(b"y" * 100))
        checkpoint, sync = log.begin_checkpoint(), log.begin_sync()
        assert checkpoint is not None
        assert sync is not None
        for _ in range(8):
            desk.write("t", produced(b"z" * 100))
        segments = len(log.segments)
        assert deleted(desk, ("t", 0, 16)) == [("t", 0, 0, 16)]
        # Also the segments that both jobs were made for are gone.
        assert (segments > 2, len(log.segments)) == (True, 1)
        checkpoint.run()
        log.store.commit(log.checkpoint_changes(checkpoint))
        log.finish_checkpoint(checkpoint)
        sync.run()
        log.finish_sync(sync)
        assert log.unsynced.jobs_running == 0
    with open_desk(place) as desk:
        assert desk.replica("t").log.offline is None
        assert (listed(desk, -2)[2], listed(desk, -1)[2]) == (16, 17)
        assert values_of(desk.replica("t").log) == [b"z" * 100]


def test_a_deletion_waits_for_the_cleaner_as_long_as_the_client_would(desk: Desk) -> None:
    desk.create("both", cleanup_policy="compact,delete")
    replica = desk.replica("both")

    async def while_cleaning() -> tuple[int, int]:
        wish = [{"name": "both", "partitions": [{"partition_index": 0, "offset": 0}]}]
        async with replica.cleaning:
            hasty = await desk.asked(DELETE_RECORDS, 2, topics=wish, timeout=0)
            patient = asyncio.create_task(
                desk.asked(DELETE_RECORDS, 2, topics=wish, timeout=30_000)
            )
            await asyncio.sleep(0)
            assert not patient.done()
        codes = [
            answer["topics"][0]["partitions"][0]["error_code"] for answer in (hasty, await patient)
        ]
        return codes[0], codes[1]

    assert desk.run(while_cleaning()) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert not replica.cleaning.locked()


def test_a_topic_that_is_deleted_meanwhile_is_not_touched(desk: Desk) -> None:
    replica = desk.replica("t")

    async def deleted_meanwhile() -> int:
        wish = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
        async with replica.cleaning:
            asked = asyncio.create_task(desk.asked(DELETE_RECORDS, 2, topics=wish, timeout=30_000))
            gone = asyncio.create_task(desk.broker.controller.delete_topics(["t"]))
            await asyncio.sleep(0)
        answer = await asked
        await gone
        code: int = answer["topics"][0]["partitions"][0]["error_code"]
        return code

    assert desk.run(deleted_meanwhile()) in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert desk.broker.replicas.get("t", 0) is None


def test_a_disk_that_fails_says_so(desk: Desk) -> None:
    desk.replica("t").log.offline = "the disk is gone"
    assert deleted(desk, ("t", 0, 1)) == [("t", 0, ErrorCode.KAFKA_STORAGE_ERROR, -1)]
