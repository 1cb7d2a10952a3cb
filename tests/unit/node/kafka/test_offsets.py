"""ListOffsets and OffsetForLeaderEpoch, row by row.

Where a comment says so, the answer is that of Apache Kafka 4.3.1 to the same request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from ottla.node.kafka.offsets import end_of_epoch
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT32_MAX, INT64_MAX, BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.proto.kafka.apis import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from ottla.replication.epochs import EpochEnd
from ottla.replication.log import lookup
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import delete_records, purge
from tests.builders import NOW_MS, produced
from tests.replicas import all_synced, catch_up, view
from tests.unit.node.kafka.asking_for_offsets import NOTHING, listed, write_five
from tests.unit.node.kafka.desk import Desk, open_desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A broker with a topic of five records at 1000, 2000, … 5000."""
    with open_desk() as opened:
        opened.create("t", 2)
        write_five(opened, "t")
        yield opened


# ── ListOffsets ───────────────────────────────────────────────────────────────────────────────


# The same as Kafka's.
@pytest.mark.parametrize(
    ("timestamp", "answer"),
    [
        (-1, (0, -1, 5, 0)),
        (-2, (0, -1, 0, 0)),
        (-3, (0, 5000, 4, 0)),
        (-4, (0, -1, 0, 0)),
        (-5, NOTHING),
        (-6, NOTHING),
        (-7, (35, -1, -1, -1)),
        (-INT64_MAX - 1, (35, -1, -1, -1)),
        (0, (0, 1000, 0, 0)),
        (1500, (0, 2000, 1, 0)),
        (5000, (0, 5000, 4, 0)),
        (5001, NOTHING),
        (INT64_MAX, NOTHING),
    ],
)
def test_a_time_or_a_word_for_one_finds_its_offset(
    desk: Desk, timestamp: int, answer: tuple[int, int, int, int]
) -> None:
    assert listed(desk, timestamp) == answer


@pytest.mark.parametrize(("timestamp", "since"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11)])
def test_a_version_does_not_know_the_words_of_later_ones(
    desk: Desk, timestamp: int, since: int
) -> None:
    for version in range(LIST_OFFSETS.low, LIST_OFFSETS.high + 1):
        error, *_ = listed(desk, timestamp, version=version)
        assert error == (0 if version >= since else ErrorCode.UNSUPPORTED_VERSION)


@pytest.mark.parametrize("version", range(LIST_OFFSETS.low, LIST_OFFSETS.high + 1))
def test_every_version_finds_both_ends_and_a_time(desk: Desk, version: int) -> None:
    epoch = 0 if version >= 4 else -1
    assert listed(desk, -2, version=version) == (0, -1, 0, epoch)
    assert listed(desk, -1, version=version) == (0, -1, 5, epoch)
    assert listed(desk, 3000, version=version) == (0, 3000, 2, epoch)


# The same as Kafka's.
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (INT32_MAX, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (-5, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_a_client_with_another_leader_epoch_is_told(desk: Desk, epoch: int, code: int) -> None:
    for timestamp in (-1, -2, 3000):
        assert listed(desk, timestamp, epoch=epoch)[0] == code


def test_a_client_that_knows_an_earlier_leader_is_fenced(desk: Desk) -> None:
    desk.replica("t").leader_epoch = LeaderEpoch(7)
    assert listed(desk, -1, epoch=6)[0] == ErrorCode.FENCED_LEADER_EPOCH
    assert listed(desk, -1, epoch=7) == (0, -1, 5, 7)


# The same as Kafka's.
@pytest.mark.parametrize(
    ("topic", "index"),
    [("t", 2), ("t", -1), ("t", INT32_MAX), ("nope", 0), ("", 0), ("a/b", 0), ("../t", 0)],
)
def test_a_partition_that_is_not_there_is_unknown(desk: Desk, topic: str, index: int) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(desk, -1, topic=topic, index=index) == (code, -1, -1, -1)


def test_an_empty_log_begins_and_ends_at_0_and_knows_no_time(desk: Desk) -> None:
    assert listed(desk, -1, index=1) == (0, -1, 0, 0)
    assert listed(desk, -2, index=1) == (0, -1, 0, 0)
    assert listed(desk, -3, index=1) == NOTHING
    assert listed(desk, 0, index=1) == NOTHING


@pytest.mark.parametrize("replica_id", [0, 1, 5, INT32_MAX])
def test_nobody_poses_as_a_replica(desk: Desk, replica_id: int) -> None:
    for timestamp in (-1, -2, 0):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert listed(desk, timestamp, replica_id=replica_id) == (code, -1, -1, -1)


@pytest.mark.parametrize("replica_id", [-2, -3])
def test_a_client_that_calls_itself_a_debugger_sees_what_a_consumer_sees(
    desk: Desk, replica_id: int
) -> None:
    desk.write_only("t", produced(b"not committed"))
    assert listed(desk, -1, replica_id=replica_id) == (0, -1, 5, 0)


def test_without_transactions_both_isolation_levels_end_at_the_high_watermark(desk: Desk) -> None:
    assert listed(desk, -1, isolation=0) == listed(desk, -1, isolation=1) == (0, -1, 5, 0)


@pytest.mark.parametrize("isolation", [2, -1, 127])
def test_there_are_two_isolation_levels(desk: Desk, isolation: int) -> None:
    assert listed(desk, -1, isolation=isolation)[0] == ErrorCode.INVALID_REQUEST


def test_nothing_above_the_high_watermark_is_told(desk: Desk) -> None:
    log = desk.write_only("t", produced(b"new", timestamps=[9000])).log
    assert log.end_offset == 6
    assert listed(desk, -1) == (0, -1, 5, 0)
    assert listed(desk, 9000) == NOTHING
    # As in Kafka: the record is there, but it is not committed.
    assert listed(desk, -3) == NOTHING


@pytest.mark.parametrize(
    ("version", "code"),
    [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)],
)
def test_a_leader_that_does_not_know_its_high_watermark_does_not_guess(
    desk: Desk, version: int, code: int
) -> None:
    replica = desk.write_only("t", produced(b"seen by some already", timestamps=[6000]))

    async def elected() -> None:
        replica.lead(view(1, 2, epoch=LeaderEpoch(7)))

    desk.run(elected())
    assert (replica.log.high_watermark, replica.log.end_offset) == (5, 6)
    assert listed(desk, -1, version=version) == (code, -1, -1, -1)
    assert listed(desk, 6000, version=version)[0] == code
    # What is certainly committed can be told.
    assert listed(desk, 2000, version=version)[:3] == (0, 2000, 1)
    assert listed(desk, -2, version=version)[:3] == (0, -1, 0)
    # The follower has it, so it is.
    desk.run(all_synced(replica))
    catch_up(replica, BrokerId(2), broker_epoch=1)
    assert listed(desk, -1, version=version)[:3] == (0, -1, 6)


def test_rule_23_a_new_leader_does_not_guess_where_its_own_epoch_ends(desk: Desk) -> None:
    # Not even the largest time is told, though it is that of a committed record here: the last
    # leader may have committed, and shown, a larger one.
    replica = desk.write_only("t", produced(b"seen by some already", timestamps=[10]))

    async def elected() -> None:
        replica.lead(view(1, 2, epoch=LeaderEpoch(7)))

    desk.run(elected())
    code = ErrorCode.OFFSET_NOT_AVAILABLE
    assert listed(desk, -3)[0] == code
    assert epoch_end(desk, 7) == (code, -1, -1)
    # Where older epochs end does not change any more.
    assert epoch_end(desk, 0) == (0, 0, 6)
    desk.run(all_synced(replica))
    catch_up(replica, BrokerId(2), broker_epoch=1)
    assert epoch_end(desk, 7) == (0, 7, 6)


def ask_for(desk: Desk, *partitions: tuple[str, int, int]) -> list[tuple[str, int, int, int]]:
    answer = desk.ask(
        LIST_OFFSETS,
        11,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": index, "current_leader_epoch": -1, "timestamp": timestamp}
                ],
            }
            for topic, index, timestamp in partitions
        ],
        timeout=0,
    )
    return [
        (topic["name"], one["partition_index"], one["error_code"], one["offset"])
        for topic in answer["topics"]
        for one in topic["partitions"]
    ]


# The same as Kafka's.
def test_a_partition_that_stands_twice_is_answered_once_with_an_error(desk: Desk) -> None:
    desk.create("u")
    refused = ErrorCode.INVALID_REQUEST
    assert ask_for(desk, ("t", 0, -1), ("t", 0, -2)) == [("t", 0, refused, -1)]
    assert ask_for(desk, ("t", 0, -1), ("u", 0, -1), ("t", 0, -1)) == [
        ("t", 0, refused, -1),
        ("u", 0, 0, 0),
    ]
    assert ask_for(desk, ("t", 0, -1), ("t", 1, -1)) == [("t", 0, 0, 5), ("t", 1, 0, 0)]
    assert ask_for(desk) == []


def test_a_log_that_is_offline_says_so_and_disturbs_no_other(desk: Desk) -> None:
    desk.replica("t").log.offline = "the disk is gone"
    assert listed(desk, -1)[0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert listed(desk, -1, index=1)[0] == ErrorCode.NONE


def test_many_look_ups_by_time_let_others_work_in_between(desk: Desk) -> None:
    desk.create("many", 50)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        counting = asyncio.create_task(count())
        partitions = [
            {"partition_index": index, "current_leader_epoch": -1, "timestamp": 3000}
            for index in range(50)
        ]
        await desk.asked(
            LIST_OFFSETS,
            11,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "many", "partitions": partitions}],
            timeout=0,
        )
        counting.cancel()

    desk.run(both())
    assert turns >= 50


@pytest.fixture
def long_search(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Log:
    """The log of `t`, in several segments, in which a look-up of 9000 takes many steps.

    The only record so late was deleted, so every header that is left has to be looked at.
    """
    monkeypatch.setattr(lookup, "HEADERS_AT_ONCE", 1)
    log = desk.replica("t").log
    log.adopt_settings(replace(log.settings, segment_bytes=800))
    desk.write("t", produced(b"late", timestamps=[9000]))
    for _ in range(30):
        desk.write("t", produced(b"x", timestamps=[1000]))
    delete_records(log, Offset(6), now_ms=NOW_MS)
    assert len(log.segments) > 3
    return log


def meanwhile(desk: Desk, steps: int, act: Callable[[], Awaitable[object]]) -> tuple[int, int]:
    """Look for the largest time, and act after some steps; return error and offset."""

    async def both() -> tuple[int, int]:
        partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -3}
        asked = asyncio.create_task(
            desk.asked(
                LIST_OFFSETS,
                11,
                replica_id=-1,
                isolation_level=0,
                topics=[{"name": "t", "partitions": [partition]}],
                timeout=0,
            )
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        assert not asked.done()
        await act()
        (one,) = (await asked)["topics"][0]["partitions"]
        return one["error_code"], one["offset"]

    return desk.run(both())


@pytest.mark.usefixtures("long_search")
def test_a_long_search_finds_nothing_where_nothing_is(desk: Desk) -> None:
    assert listed(desk, 9000) == NOTHING
    assert listed(desk, -3) == (0, 1000, 6, 0)


@pytest.mark.parametrize("steps", range(1, 26, 4))
def test_a_search_begins_anew_when_segments_go(desk: Desk, long_search: Log, steps: int) -> None:
    async def delete() -> None:
        delete_records(long_search, Offset(30), now_ms=NOW_MS)
        purge(long_search, now_ms=NOW_MS + 10**9)

    assert meanwhile(desk, steps, delete) == (0, 30)
    assert long_search.offline is None


@pytest.mark.parametrize("steps", range(1, 26, 4))
def test_a_search_in_a_topic_that_is_deleted_ends(desk: Desk, long_search: Log, steps: int) -> None:
    manager = desk.broker.replicas.manager

    async def delete() -> None:
        await desk.broker.replicas.remove(desk.broker.replicas.take_out([TopicPartition("t", 0)]))
        manager.remove_buried()

    refused = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    lost = (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert meanwhile(desk, steps, delete) in (refused, lost)
    assert (long_search.offline, manager.offline) == ("it was deleted", None)


# ── OffsetForLeaderEpoch ──────────────────────────────────────────────────────────────────────


def epoch_end(
    desk: Desk,
    epoch: int,
    *,
    version: int = 4,
    topic: str = "t",
    index: int = 0,
    current: int = -1,
    replica_id: int = -1,
) -> tuple[int, int, int]:
    """Ask where an epoch ends; return error, epoch, end offset."""
    wanted = {"partition": index, "current_leader_epoch": current, "leader_epoch": epoch}
    answer = desk.ask(
        OFFSET_FOR_LEADER_EPOCH,
        version,
        replica_id=replica_id,
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    (told,) = answer["topics"]
    (one,) = told["partitions"]
    assert (told["topic"], one["partition"]) == (topic, index)
    return one["error_code"], one["leader_epoch"], one["end_offset"]


# The same as Kafka's, but for −2, of which it says (−2, 0).
@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (0, (0, 0, 5)),
        (-1, (0, -1, -1)),
        (-2, (0, -1, -1)),
        (1, (0, -1, -1)),
        (INT32_MAX, (0, -1, -1)),
    ],
)
def test_an_epoch_ends_somewhere_or_is_not_known(
    desk: Desk, epoch: int, end: tuple[int, int, int]
) -> None:
    for version in range(OFFSET_FOR_LEADER_EPOCH.low, OFFSET_FOR_LEADER_EPOCH.high + 1):
        assert epoch_end(desk, epoch, version=version) == end


# The same as Kafka's.
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (0, ErrorCode.NONE),
        (1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (INT32_MAX, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_who_asks_for_an_epoch_must_know_the_leader(desk: Desk, current: int, code: int) -> None:
    assert epoch_end(desk, 0, current=current)[0] == code


def test_an_epoch_of_an_unknown_partition_is_unknown(desk: Desk) -> None:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert epoch_end(desk, 0, topic="nope") == (code, -1, -1)
    assert epoch_end(desk, 0, index=9) == (code, -1, -1)


def test_nobody_asks_for_epochs_as_a_replica(desk: Desk) -> None:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert epoch_end(desk, 0, replica_id=1) == (code, -1, -1)
    assert epoch_end(desk, 0, replica_id=-2) == (0, 0, 5)


# The same as Kafka's.
def test_a_leader_that_wrote_nothing_ends_where_it_began(desk: Desk) -> None:
    assert epoch_end(desk, 0, index=1) == (0, 0, 0)


def test_epochs_without_records_end_where_the_last_record_ends(desk: Desk) -> None:
    replica = desk.replica("t")
    replica.leader_epoch = LeaderEpoch(7)
    assert epoch_end(desk, 7) == (0, 7, 5)
    assert epoch_end(desk, 4) == (0, 0, 5)
    assert epoch_end(desk, 0) == (0, 0, 5)
    write_five(desk, "t")
    assert epoch_end(desk, 7) == (0, 7, 10)
    assert epoch_end(desk, 4) == (0, 0, 5)
    empty = desk.replica("t", 1)
    empty.leader_epoch = LeaderEpoch(7)
    assert epoch_end(desk, 4, index=1) == (0, 4, 0)


def test_the_history_tells_the_same_before_and_after_a_leader_writes(desk: Desk) -> None:
    replica = desk.replica("t")
    replica.leader_epoch = LeaderEpoch(7)
    before = [end_of_epoch(replica, epoch) for epoch in range(-1, 9)]
    replica.log.assign_epoch(LeaderEpoch(7))
    assert [end_of_epoch(replica, epoch) for epoch in range(-1, 9)] == before
    assert before[8] == EpochEnd(LeaderEpoch(7), Offset(5))
