"""Which topics are read, and from where to where: the ways of Spark's Kafka connector to say it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.spark.options import read_source_options
from ottla.clients.spark.planning import Planner
from ottla.proto.ids import TopicPartition
from tests.integration.nodes import wait_until
from tests.integration.spark.conftest import MakeTopic

pytestmark = [pytest.mark.integration]
# The first record of each partition has this time, and each further one is a second later.
BEGAN_MS = 1_700_000_000_000
DEADLINE_S = 60


def _read(spark: Any, bootstrap: str, **options: str) -> list[tuple[str, int, int]]:
    """Return topic, partition and offset of what a batch reads, sorted."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(**options).load().select("topic", "partition", "offset").collect()
    return sorted(tuple(row) for row in rows)


def test_a_pattern_reads_the_topics_whose_whole_name_it_matches(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    stem = make_topic()
    for name in ("orders", "orders-old", "bills"):
        make_topic(records=1, name=f"{stem}-{name}")
    got = _read(spark, bootstrap, subscribePattern=f"{stem}-(orders|b.*)")
    assert got == [(f"{stem}-bills", 0, 0), (f"{stem}-orders", 0, 0)]


def test_assigned_partitions_are_read_and_no_others(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3, records=2)
    got = _read(spark, bootstrap, assign=json.dumps({topic: [0, 2]}))
    assert got == [(topic, partition, offset) for partition in (0, 2) for offset in (0, 1)]


def test_times_of_partitions_say_where_reading_begins_and_ends(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3, records=10)
    # Between two records, at one, and later than all.
    starts = {"0": BEGAN_MS + 2_500, "1": BEGAN_MS + 8_000, "2": BEGAN_MS + 60_000}
    ends = {"0": BEGAN_MS + 6_000, "1": BEGAN_MS + 60_000, "2": BEGAN_MS + 70_000}
    got = _read(
        spark,
        bootstrap,
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: starts}),
        endingOffsetsByTimestamp=json.dumps({topic: ends}),
    )
    assert got == [(topic, 0, 3), (topic, 0, 4), (topic, 0, 5), (topic, 1, 8), (topic, 1, 9)]


def test_reading_begins_where_the_group_has_committed_and_else_at_the_beginning(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic(partitions=2, records=3)
    group = f"group-{topic}"
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 2})
    options = {"startingOffsets": "committed", "kafka.group.id": group}
    got = _read(spark, bootstrap, subscribe=topic, **options)
    assert got == [(topic, 0, 2), (topic, 1, 0), (topic, 1, 1), (topic, 1, 2)]


def test_offsets_with_the_id_of_another_topic_of_that_name_are_no_place_in_this_one(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(records=3)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    planner = Planner(read_source_options(given, is_stream=False))
    try:
        own_id = str(planner.look().topic_ids[topic])
    finally:
        planner.close()
    places = {topic: {"0": 2}, "@topic-ids": {topic: own_id}}
    got = _read(spark, bootstrap, subscribe=topic, startingOffsets=json.dumps(places))
    assert got == [(topic, 0, 2)]
    places["@topic-ids"] = {topic: "00000000-0000-0000-0000-000000000007"}
    options = {"startingOffsets": json.dumps(places), "failOnDataLoss": "false"}
    assert len(_read(spark, bootstrap, subscribe=topic, **options)) == 3


def test_assigned_partitions_are_gone_with_their_topic(
    bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic(partitions=2)
    given = {"kafka.bootstrap.servers": bootstrap, "assign": json.dumps({topic: [1]})}
    planner = Planner(read_source_options(given, is_stream=True))
    try:
        assert planner.look().partitions == [TopicPartition(topic, 1)]
        admin.delete_topics([topic])
        wait_until(lambda: not planner.look().partitions, DEADLINE_S, "it is noticed")
    finally:
        planner.close()
