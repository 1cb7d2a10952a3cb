"""What is counted of elections, errors in answers and the gauges over all partitions."""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.node import metric_table as table
from ottla.node.kafka.dispatch import errors_in
from ottla.node.metrics import ControllerMetrics, Reading
from ottla.node.quorum_counts import ElectionCounts
from ottla.node.status import (
    PARTITION_ROWS_MAX,
    FollowerStatus,
    PartitionStatus,
    replica_readings,
    tells_each,
)
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)


def partition(leader: int | None, epoch: int, unclean_epoch: int = -1) -> PartitionInfo:
    return PartitionInfo(
        replicas=(ONE, TWO, THREE),
        isr=() if leader is None else (BrokerId(leader),),
        leader=None if leader is None else BrokerId(leader),
        leader_epoch=LeaderEpoch(epoch),
        partition_epoch=epoch,
        last_unclean_epoch=LeaderEpoch(unclean_epoch),
    )


def image(*partitions: PartitionInfo, topic_id: int = 1) -> MetadataImage:
    topic = TopicInfo("orders", UUID(int=topic_id), partitions, {})
    return MetadataImage(1, "c", ONE, {}, {"orders": topic})


def counted(*images: MetadataImage, leads: bool = True) -> tuple[int, int]:
    counts = ControllerMetrics()
    elections = ElectionCounts(counts, lambda: leads)
    for one in images:
        elections.obey(one)
    return counts.elections, counts.unclean_elections


# ── Elections ─────────────────────────────────────────────────────────────────────────────────


def test_every_partition_that_has_another_leader_is_counted() -> None:
    before = image(partition(1, 0), partition(2, 0), partition(3, 0))
    after = image(partition(2, 1), partition(2, 0), partition(1, 1))
    assert counted(before, after) == (2, 0)


def test_a_partition_that_lost_its_leader_counts_when_it_has_one_again() -> None:
    stages = [image(partition(1, 0)), image(partition(None, 1)), image(partition(2, 2))]
    assert counted(*stages[:2]) == (0, 0)
    assert counted(*stages) == (1, 0)


def test_a_leader_that_may_lack_records_is_counted_apart() -> None:
    stages = [image(partition(None, 1)), image(partition(2, 2, unclean_epoch=2))]
    assert counted(*stages) == (1, 1)
    # And once: its successor was elected cleanly.
    assert counted(*stages, image(partition(3, 3, unclean_epoch=2))) == (2, 1)


def test_only_the_leader_of_the_quorum_counts() -> None:
    stages = [image(partition(1, 0)), image(partition(2, 1))]
    assert counted(*stages, leads=False) == (0, 0)


def test_a_topic_that_was_made_again_under_its_name_elects_nobody_anew() -> None:
    again = image(partition(2, 5), topic_id=2)
    assert counted(image(partition(1, 0)), again) == (0, 0)


def test_the_first_image_is_no_election() -> None:
    assert counted(image(partition(2, 7))) == (0, 0)


def test_what_is_the_same_object_is_not_looked_at() -> None:
    first = image(partition(1, 0))
    assert counted(first, replace(first, version=2)) == (0, 0)


# ── Errors in answers ─────────────────────────────────────────────────────────────────────────


def test_error_codes_are_found_wherever_they_stand() -> None:
    answer = {
        "error_code": 0,
        "throttle_time": 0,
        "topics": [
            {"error_code": 3, "partitions": []},
            {"error_code": 0, "partitions": [{"error_code": 5}, {"error_code": 0}]},
        ],
        "ids": [1, 2, 3],
        "more": {"error_code": 41},
    }
    assert sorted(errors_in(answer)) == [3, 5, 41]


def test_an_answer_without_errors_has_none() -> None:
    assert list(errors_in({"error_code": 0, "names": ("a", "b")})) == []


# ── Over all partitions ───────────────────────────────────────────────────────────────────────


def status(
    number: int, *, leader: int = 1, lags: dict[int, int | None] | None = None
) -> PartitionStatus:
    return PartitionStatus(
        topic="orders",
        partition=number,
        leader=BrokerId(leader),
        leader_epoch=0,
        start_offset=0,
        high_watermark=10,
        end_offset=10,
        size_bytes=100,
        segment_count=1,
        replicas=(ONE, TWO, THREE),
        isr=(ONE, TWO, THREE),
        isr_min=2,
        offline=None,
        followers=tuple(
            FollowerStatus(BrokerId(broker), True, None if lag is None else 10 - lag, lag)
            for broker, lag in (lags or {}).items()
        ),
    )


def told(readings: list[Reading]) -> dict[tuple[str, tuple[str, ...]], object]:
    return {(one.row.name, one.labels): one.value for one in readings}


def test_of_a_follower_the_partition_counts_of_which_it_lacks_most() -> None:
    partitions = [
        status(0, lags={2: 0, 3: 7}),
        status(1, lags={2: 4, 3: None}),
        status(2, leader=2),
    ]
    found = told(list(replica_readings(ONE, partitions)))
    lag = table.FOLLOWER_LAG.name
    assert (found[lag, ("2",)], found[lag, ("3",)]) == (4, 7)
    assert found[table.LOGS_SIZE.name, ()] == 300


def test_partitions_have_series_of_their_own_all_or_none_of_them() -> None:
    assert tells_each(PARTITION_ROWS_MAX)
    assert not tells_each(PARTITION_ROWS_MAX + 1)
    partitions = [status(0), status(1)]
    each = told(list(replica_readings(ONE, partitions)))
    none = told(list(replica_readings(ONE, partitions, tells_each=False)))
    assert {name for name, labels in each if labels} == {
        "kafka_log_log_size",
        "kafka_log_log_logstartoffset",
        "kafka_log_log_logendoffset",
        "kafka_log_log_numlogsegments",
    }
    assert none == {key: value for key, value in each.items() if not key[1]}
