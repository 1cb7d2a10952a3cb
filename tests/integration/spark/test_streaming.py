"""Streams: read in limited batches, written to a topic, gone on with after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.proto.ids import TopicPartition
from tests.integration.spark.conftest import MakeTopic, fill

# Spark comes with `make spark-install`.
PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [pytest.mark.integration, pytest.mark.long]
DEADLINE_S = 120


def _copied(
    spark: Any, bootstrap: str, source: str, target: str, checkpoint: Path, **options: str
) -> Any:
    """Copy one topic to another until its end, in upper case; return the query that did it."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=source, startingOffsets="earliest", **options).load()
    upper = rows.selectExpr("key", "upper(cast(value as string)) as value", "partition")
    writer = upper.writeStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    query = (
        writer.option("topic", target)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(DEADLINE_S), "the query does not end"
    return query


def _values(spark: Any, bootstrap: str, topic: str) -> list[tuple[int, int, str]]:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.option("subscribe", topic).load()
    chosen = rows.selectExpr("partition", "offset", "cast(value as string) as value")
    return sorted((row.partition, row.offset, row.value) for row in chosen.collect())


def test_a_stream_copies_a_topic_in_limited_batches_and_goes_on_after_a_restart(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path
) -> None:
    source, target = make_topic(partitions=2, records=10), make_topic(partitions=2)
    options = {"maxOffsetsPerTrigger": "15", "kafka.group.id": f"job-{source}"}
    first = _copied(spark, bootstrap, source, target, tmp_path / "state", **options)
    sizes = [one["numInputRows"] for one in first.recentProgress if one["numInputRows"]]
    assert sizes == [15, 5]
    # Where the source ends beside where the batch ends: that is the lag.
    told = next(one for one in first.recentProgress if one["numInputRows"])["sources"][0]
    assert json.loads(told["latestOffset"]) == {source: {"0": 10, "1": 10}}
    fill(bootstrap, source, partitions=2, records=5, first=10)
    _copied(spark, bootstrap, source, target, tmp_path / "state", **options)
    assert _values(spark, bootstrap, target) == [
        (p, n, f"P{p}-{n}") for p in (0, 1) for n in range(15)
    ]
    # The usual lag tools see the stream: a query commits a batch when the next one begins.
    committed = admin.list_group_offsets(f"job-{source}")
    assert committed[TopicPartition(source, 0)].offset >= 10


def test_a_topic_that_is_deleted_between_two_runs_is_told(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path
) -> None:
    source, target = make_topic(records=5), make_topic()
    _copied(spark, bootstrap, source, target, tmp_path / "state")
    assert admin.delete_topics([source]) == {source: None}
    with pytest.raises(PySparkException, match=f"{source}-0: the stream was at 5, and it is gone"):
        _copied(spark, bootstrap, source, target, tmp_path / "state")


def test_rows_that_no_topic_can_take_are_refused_before_anything_is_written(
    spark: Any, bootstrap: str
) -> None:
    rows = spark.createDataFrame([(1, "x")], "value int, colour string")
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    with pytest.raises(PySparkException) as caught:
        writer.option("topic", "t").mode("append").save()
    assert "The column value must be string or binary, not int." in str(caught.value)
    assert "colour is no column of a topic" in str(caught.value)


def test_keys_headers_and_partitions_are_written_as_the_columns_say(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    rows = spark.sql(
        "select 'k' as key, 'v' as value, 2 as partition, "
        f"'{topic}' as topic, array(named_struct('key', 'h', 'value', binary('x'))) as headers"
    )
    writer = rows.write.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    writer.mode("append").save()
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    (got,) = reader.options(subscribe=topic, includeHeaders="true").load().collect()
    assert (bytes(got.key), bytes(got.value), got.partition) == (b"k", b"v", 2)
    assert [(one.key, bytes(one.value)) for one in got.headers] == [("h", b"x")]
