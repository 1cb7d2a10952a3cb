"""What the pages of a node tell, from its partitions and its metadata."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.controller.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from ottla.node.facts import BrokerFacts, QuorumFacts, VoterFacts
from ottla.node.http import JSON, Answer
from ottla.node.metrics import Metrics
from ottla.node.readiness import Condition
from ottla.node.status import (
    PARTITIONS_MAX,
    FollowerStatus,
    NodeStatus,
    PartitionStatus,
    cluster_readings,
    pages,
    partition_statuses,
    ready_answer,
    replica_readings,
    status_answer,
)
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica
from tests.builders import OneLog, append, committed
from tests.replicas import surroundings, view

ME = BrokerId(1)
OTHER = BrokerId(2)
NODE = NodeStatus(
    node_id=ME,
    cluster_id="c",
    version="1.2.3",
    roles=("broker", "controller"),
    listeners={"CLIENT": "127.0.0.1:9092"},
    uptime_ms=1_500,
    partition_count=1,
    conditions=(Condition("registered", None), Condition("unfenced", None)),
)
PARTITION = PartitionStatus(
    topic="orders",
    partition=0,
    leader=ME,
    leader_epoch=3,
    start_offset=10,
    high_watermark=20,
    end_offset=25,
    size_bytes=1_000,
    segment_count=2,
    replicas=(ME,),
    isr=(ME,),
    isr_min=1,
    offline=None,
)


class FakeNode:
    def __init__(
        self,
        *partitions: PartitionStatus,
        conditions: tuple[Condition, ...] = NODE.conditions,
        quorum: QuorumFacts | None = None,
        broker: BrokerFacts | None = None,
    ) -> None:
        self._partitions = partitions
        self._status = replace(
            NODE,
            conditions=conditions,
            partition_count=len(partitions),
            quorum=quorum,
            broker=broker,
        )

    def status(self) -> NodeStatus:
        return self._status

    def partitions(self) -> Iterable[PartitionStatus]:
        return self._partitions


def _told(answer: Answer) -> Any:
    assert answer.content_type == JSON
    return json.loads(answer.body)


def _image(*leaders: BrokerId | None, controller: BrokerId = ME) -> MetadataImage:
    partitions = tuple(
        PartitionInfo((ME, OTHER), (ME,), leader, LeaderEpoch(3), 0) for leader in leaders
    )
    topic = TopicInfo("t", UUID(int=7), partitions, {})
    return MetadataImage(
        version=1,
        cluster_id="c",
        controller_id=controller,
        brokers={
            ME: BrokerInfo(ME, "localhost", 9092),
            OTHER: BrokerInfo(OTHER, "localhost", 9093, is_fenced=True),
        },
        topics={"t": topic},
        topic_names={topic.topic_id: "t"},
    )


# ── Health and status ─────────────────────────────────────────────────────────────────────────


def test_a_node_that_serves_is_ready() -> None:
    answer = ready_answer(NODE)
    assert answer.status == 200
    assert _told(answer) == {
        "node_id": 1,
        "ready": True,
        "reason": None,
        "conditions": [
            {"name": "registered", "holds": True, "reason": None},
            {"name": "unfenced", "holds": True, "reason": None},
        ],
    }


def test_a_node_that_does_not_serve_says_why_with_the_first_reason() -> None:
    why = ("the disk is full", "it is fenced")
    conditions = (
        Condition("registered", None),
        *(Condition(name, one) for name, one in zip(("disk_works", "unfenced"), why, strict=True)),
    )
    answer = ready_answer(replace(NODE, conditions=conditions))
    assert answer.status == 503
    told = _told(answer)
    assert (told["ready"], told["reason"]) == (False, why[0])
    assert [one["reason"] for one in told["conditions"]] == [None, *why]


def test_both_pages_tell_the_same_conditions() -> None:
    conditions = (Condition("registered", None), Condition("unfenced", "it is fenced"))
    node = FakeNode(conditions=conditions)
    status, ready = _told(asyncio.run(status_answer(node))), _told(ready_answer(node.status()))
    assert {name: status[name] for name in ready} == ready


def test_status_has_the_place_of_the_node_in_its_cluster() -> None:
    quorum = QuorumFacts(standing="voter", role="leader", voters=(VoterFacts(1, 7, 0),))
    node = FakeNode(quorum=quorum, broker=BrokerFacts(broker_epoch=5, is_fenced=False))
    told = _told(asyncio.run(status_answer(node)))
    assert told["quorum"]["role"] == "leader"
    assert told["quorum"]["voters"] == [{"node_id": 1, "acknowledged": 7, "lag": 0}]
    assert (told["broker"]["broker_epoch"], told["broker"]["is_fenced"]) == (5, False)


def test_status_has_the_node_and_its_partitions() -> None:
    told = _told(asyncio.run(status_answer(FakeNode(PARTITION))))
    assert told["node_id"] == 1
    assert told["listeners"] == {"CLIENT": "127.0.0.1:9092"}
    assert told["roles"] == ["broker", "controller"]
    assert (told["ready"], told["partition_count"], told["uptime_ms"]) == (True, 1, 1_500)
    assert told["partitions"] == [
        {
            "topic": "orders",
            "partition": 0,
            "leader": 1,
            "leader_epoch": 3,
            "start_offset": 10,
            "high_watermark": 20,
            "end_offset": 25,
            "size_bytes": 1_000,
            "segment_count": 2,
            "replicas": [1],
            "isr": [1],
            "isr_min": 1,
            "offline": None,
            "elr": [],
            "followers": [],
        }
    ]
    assert "note" not in told


def test_status_shows_the_first_partitions_and_how_many_there_are() -> None:
    many = [replace(PARTITION, partition=number) for number in range(PARTITIONS_MAX + 500)]
    told = _told(asyncio.run(status_answer(FakeNode(*many))))
    assert [one["partition"] for one in told["partitions"]] == list(range(PARTITIONS_MAX))
    assert told["note"].startswith("the first 1000 of 1500 partitions")


def test_status_of_just_as_many_as_are_shown_needs_no_note() -> None:
    many = [replace(PARTITION, partition=number) for number in range(PARTITIONS_MAX)]
    assert "note" not in _told(asyncio.run(status_answer(FakeNode(*many))))


def test_status_of_one_topic_finds_it_behind_all_others() -> None:
    many = [replace(PARTITION, partition=number) for number in range(PARTITIONS_MAX + 500)]
    node = FakeNode(*many, replace(PARTITION, topic="last"))
    told = _told(asyncio.run(status_answer(node, "last")))
    assert [one["topic"] for one in told["partitions"]] == ["last"]
    told = _told(asyncio.run(status_answer(node, "orders")))
    assert told["note"].startswith("the first 1000 of 1500 partitions")


@pytest.mark.parametrize("path", ["/", "/metrics", "/health/live", "/health/ready", "/status"])
def test_every_page_is_there_and_the_index_names_it(path: str) -> None:
    routes = pages(FakeNode(PARTITION), Metrics(version="1"))
    answer = asyncio.run(_answer(routes[path]))
    assert answer.status == 200
    assert answer.body
    index = asyncio.run(_answer(routes["/"])).body.decode()
    assert path in index
    assert len(routes) == 5


async def _answer(route: Any) -> Answer:
    answer = await route({})
    assert isinstance(answer, Answer)
    return answer


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def _replica_gauges(*partitions: PartitionStatus) -> dict[str, object]:
    return {
        reading.row.name.removeprefix("kafka_server_replicamanager_"): reading.value
        for reading in replica_readings(ME, partitions)
        if not reading.labels
    }


def test_a_log_has_its_gauges() -> None:
    found = {
        reading.row.name: (reading.value, reading.labels)
        for reading in replica_readings(ME, [PARTITION])
        if reading.labels
    }
    assert found == {
        "kafka_log_log_size": (1_000, ("orders", "0")),
        "kafka_log_log_logstartoffset": (10, ("orders", "0")),
        "kafka_log_log_logendoffset": (25, ("orders", "0")),
        "kafka_log_log_numlogsegments": (2, ("orders", "0")),
    }


def test_partitions_that_need_a_look_are_counted_where_they_are_led() -> None:
    three = (ME, OTHER, BrokerId(3))
    healthy = replace(PARTITION, replicas=three, isr=three, isr_min=2)
    at_min = replace(healthy, isr=(ME, OTHER))
    under_min = replace(healthy, isr=(ME,))
    not_led = replace(under_min, leader=OTHER)
    broken = replace(not_led, offline="the disk is gone")
    assert _replica_gauges(healthy, at_min, under_min, not_led, broken) == {
        "partitioncount": 5,
        "leadercount": 3,
        "offlinereplicacount": 1,
        "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 1,
        "atminisrpartitioncount": 1,
        "ottla_replication_lag_max": 0,
        "ottla_log_size_bytes": 5_000,
    }


def test_the_slowest_follower_of_all_that_is_led_here_is_told() -> None:
    three = (
        FollowerStatus(OTHER, True, 20, 5),
        FollowerStatus(BrokerId(3), False, 11, 14),
        FollowerStatus(BrokerId(4), False, None, None),
    )
    behind = replace(PARTITION, followers=three)
    elsewhere = replace(behind, leader=OTHER)
    assert _replica_gauges(PARTITION, behind)["ottla_replication_lag_max"] == 14
    assert _replica_gauges(elsewhere)["ottla_replication_lag_max"] == 0


def test_the_active_controller_tells_of_the_cluster() -> None:
    image = _image(ME, None, OTHER)
    found = {reading.row.name: reading.value for reading in cluster_readings(ME, image)}
    assert found == {
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        "kafka_controller_kafkacontroller_fencedbrokercount": 1,
        "kafka_controller_kafkacontroller_globaltopiccount": 1,
        "kafka_controller_kafkacontroller_globalpartitioncount": 3,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 1,
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 2,
    }


def test_another_node_says_only_that_it_is_not_the_controller() -> None:
    readings = list(cluster_readings(ME, _image(ME, controller=OTHER)))
    assert [reading.value for reading in readings] == [0]


def test_a_controller_that_was_deposed_says_so_before_it_hears_who_took_office() -> None:
    readings = list(cluster_readings(ME, _image(ME), leads=False))
    assert [reading.value for reading in readings] == [0]


# ── From replicas ─────────────────────────────────────────────────────────────────────────────


def _replicas(log: Log, *partitions: TopicPartition) -> list[Replica]:
    # Nothing is synced here, so no thread is ever started.
    around = surroundings(ThreadPoolExecutor(1))
    replicas = [Replica(partition, log, around) for partition in partitions]
    for replica in replicas:
        replica.leader_epoch = LeaderEpoch(5)
    return replicas


def test_a_replica_tells_what_its_log_and_the_metadata_say() -> None:
    log = OneLog().create()
    append(log, b"one", b"two")
    committed(log)
    append(log, b"three")
    replicas = _replicas(log, *(TopicPartition("t", 0), TopicPartition("t", 9)))
    known, unknown = partition_statuses(replicas, _image(OTHER), lambda _: 2)
    assert (known.topic, known.partition, known.leader_epoch) == ("t", 0, 5)
    assert (known.leader, known.replicas, known.isr) == (OTHER, (ME, OTHER), (ME,))
    assert known.isr_min == 2
    assert (known.start_offset, known.high_watermark, known.end_offset) == (
        log.start_offset,
        log.high_watermark,
        log.end_offset,
    )
    assert (known.size_bytes, known.segment_count) == (log.size_bytes, len(log.segments))
    # A partition that is in no image any more does no harm.
    assert (unknown.leader, unknown.replicas) == (None, ())


def test_a_leader_tells_how_far_its_followers_are() -> None:
    log = OneLog().create()
    append(log, b"one", b"two")
    (replica,) = _replicas(log, TopicPartition("t", 0))

    async def led() -> None:
        replica.lead(view(1, 2, 3, epoch=LeaderEpoch(5), isr=(ME, OTHER)))

    asyncio.run(led())
    claim = FetchClaim(LeaderEpoch(5), Offset(1), Offset(1), log.epochs.latest, True)
    assert replica.fetched(OTHER, 1, claim) is None
    (status,) = partition_statuses([replica], _image(ME), lambda _: 1)
    assert status.followers == (
        FollowerStatus(OTHER, True, 1, 1),
        FollowerStatus(BrokerId(3), False, None, None),
    )
    # Also while the metadata is ahead of the replica.
    (status,) = partition_statuses([replica], _image(OTHER), lambda _: 1)
    assert len(status.followers) == 2


def test_a_replica_that_has_failed_says_why_it_serves_nothing() -> None:
    (replica,) = _replicas(OneLog().create(), TopicPartition("t", 0))
    replica.fail("it lacks records")
    (status,) = partition_statuses([replica], _image(OTHER), lambda _: 1)
    assert (status.offline, status.followers) == ("it lacks records", ())


def test_options_are_worked_out_once_for_topics_that_say_the_same() -> None:
    info = _image(ME).topics["t"]
    own = {"min.insync.replicas": "2"}
    topics = {name: replace(info, name=name) for name in ("a", "b")}
    topics |= {name: replace(info, name=name, configs=own) for name in ("c", "d")}
    image = replace(_image(ME), topics=topics)
    log = OneLog().create()
    replicas = _replicas(log, *(TopicPartition(name, 0) for name in (*topics, "gone")))
    asked: list[str] = []

    def isr_min_of(topic: str) -> int:
        asked.append(topic)
        return {"a": 1, "c": 2}[topic]

    found = [status.isr_min for status in partition_statuses(replicas, image, isr_min_of)]
    assert (found, asked) == ([1, 1, 2, 2, 1], ["a", "c"])
