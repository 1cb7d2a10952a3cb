"""Input that is not as it should be: a clear outcome each time, and nothing lost silently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.clients.producer.client import Producer
from ottla.proto.ids import TopicPartition
from tests.integration.nodes import wait_until
from tests.integration.spark.conftest import MakeTopic, fill, lasting
from tests.integration.spark.running import headers_of, rows_of, run_to_end, send

# Spark comes with `make spark-install`.
PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [pytest.mark.integration, pytest.mark.long]
DEADLINE_S = 120


def _stream(spark: Any, bootstrap: str, topic: str, folder: Path, **options: str) -> Any:
    """Start a stream that writes what it reads to files, and goes on until somebody stops it."""
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(subscribe=topic, startingOffsets="earliest", **options).load()
    writer = rows.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "state"))


def _read(spark: Any, bootstrap: str, **options: str) -> Any:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


@pytest.mark.parametrize("key", ["startingOffsets", "endingOffsets"])
def test_offsets_beyond_the_end_fail_the_query_or_are_passed_over_as_asked(
    spark: Any, bootstrap: str, make_topic: MakeTopic, key: str
) -> None:
    topic = make_topic(records=5)
    places = {"startingOffsets": 0, "endingOffsets": 30, key: 20 if key[0] == "s" else 30}
    options = {
        "subscribe": topic,
        "kafkaConsumer.pollTimeoutMs": "2000",
        **{name: json.dumps({topic: {"0": at}}) for name, at in places.items()},
    }
    with pytest.raises(PySparkException, match=f"{topic}-0: .* failOnDataLoss=false"):
        _read(spark, bootstrap, **options).count()
    left = _read(spark, bootstrap, failOnDataLoss="false", **options)
    assert left.count() == (0 if key == "startingOffsets" else 5)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_stream_whose_records_were_deleted_before_it_came_tells_or_goes_on(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path, fails: str
) -> None:
    topic = make_topic(records=5)
    writer = _stream(spark, bootstrap, topic, tmp_path, failOnDataLoss=fails)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    fill(bootstrap, topic, 1, 10, first=5)
    admin.delete_records({TopicPartition(topic, 0): 8})
    query = writer.trigger(availableNow=True).start()
    if fails == "true":
        told = "records from 5 to 15 were to be read, and the log has those from 8 to 15"
        with pytest.raises(PySparkException, match=told):
            query.awaitTermination(DEADLINE_S)
        return
    assert query.awaitTermination(DEADLINE_S)
    kept = spark.read.parquet(str(tmp_path / "out")).select("offset").collect()
    assert sorted(row.offset for row in kept) == [*range(5), *range(8, 15)]


def test_a_topic_that_is_deleted_while_a_stream_runs_fails_it_with_a_sentence(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path
) -> None:
    topic = make_topic(records=5)
    writer = _stream(spark, bootstrap, topic, tmp_path)
    query = writer.trigger(processingTime="200 milliseconds").start()
    try:
        wait_until(
            lambda: any(one["numInputRows"] for one in query.recentProgress), DEADLINE_S, "a batch"
        )
        assert admin.delete_topics([topic]) == {topic: None}
        with pytest.raises(PySparkException, match=f"{topic}-0: the stream was at 5"):
            query.awaitTermination(DEADLINE_S)
    finally:
        query.stop()


def test_a_topic_that_is_made_anew_while_a_stream_rests_is_told_as_a_loss(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path
) -> None:
    topic = make_topic(records=5)
    writer = _stream(spark, bootstrap, topic, tmp_path)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    _make_anew(bootstrap, admin, topic, 2)
    told = f"{topic}: the topic was deleted and made anew .*: the stream was at 5 in partition 0"
    with pytest.raises(PySparkException, match=told):
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


def _make_anew(bootstrap: str, admin: Admin, topic: str, records: int) -> None:
    assert admin.delete_topics([topic]) == {topic: None}
    wait_until(lambda: topic not in admin.list_topics(), DEADLINE_S, "it is gone")
    admin.create_topics([lasting(topic, 1)])
    fill(bootstrap, topic, 1, records, first=100)


def _values(spark: Any, folder: Path) -> list[str]:
    rows = spark.read.parquet(str(folder / "out")).selectExpr("cast(value as string) as value")
    return sorted(row.value for row in rows.collect())


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_made_anew_with_more_records_is_not_read_on_in_the_middle(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path, fails: str
) -> None:
    topic = make_topic(records=5)
    writer = _stream(spark, bootstrap, topic, tmp_path, failOnDataLoss=fails)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    _make_anew(bootstrap, admin, topic, 8)
    query = writer.trigger(availableNow=True).start()
    if fails == "true":
        told = f"{topic}: the topic was deleted and made anew .*: the stream was at 5 in partition"
        with pytest.raises(PySparkException, match=told):
            query.awaitTermination(DEADLINE_S)
        return
    assert query.awaitTermination(DEADLINE_S)
    assert _values(spark, tmp_path) == sorted(
        [*(f"p0-{n}" for n in range(5)), *(f"p0-{n}" for n in range(100, 108))]
    )


def test_a_batch_that_comes_again_is_not_read_from_another_topic_of_that_name(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin, tmp_path: Path
) -> None:
    topic = make_topic(records=5)
    # Files would tell Spark that they have this batch already, and it would not be read at all.
    writer = _stream(spark, bootstrap, topic, tmp_path).format("noop")
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    fill(bootstrap, topic, 1, 3, first=5)
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    # As after a driver that died before it noted that the batch is done: it is planned again.
    (tmp_path / "state/commits/1").unlink()
    (tmp_path / "state/commits/.1.crc").unlink(missing_ok=True)
    _make_anew(bootstrap, admin, topic, 20)
    told = f"{topic}-0: the topic was deleted and made anew while offset 5 was to be read"
    with pytest.raises(PySparkException, match=told):
        writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


def test_a_record_with_a_time_that_spark_cannot_hold_fails_the_query_and_says_where(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic()
    # Nobody is told to write such times, and a leader takes them only where it was told to.
    admin.alter_configs("topic", topic, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        written = producer.send(topic, b"x", timestamp_ms=1 << 61)
    assert written.result().offset == 0
    with pytest.raises(PySparkException, match=f"{topic}-0: .* a time that Spark cannot hold"):
        _read(spark, bootstrap, subscribe=topic).collect()


def test_empty_keys_values_and_headers_are_told_from_those_that_are_null(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    with Producer({"bootstrap.servers": bootstrap}) as producer:
        producer.send(topic, None, key=b"", headers=[("h", None)], partition=0)
        producer.send(topic, b"", headers=[("h", b"")], partition=0)
    rows = _read(spark, bootstrap, subscribe=topic, includeHeaders="true").orderBy("offset")
    got = [(one.key, one.value, one.headers[0].value) for one in rows.collect()]
    assert got == [(b"", None, None), (None, b"", b"")]


SCHEMA_CHANGES = """
[pipeline]
name = "changes"
checkpoint = "state"
bootstrap = "{bootstrap}"

[[sources]]
name = "raw"
kind = "topic"
topic = "{source}"

[[steps]]
name = "events"
kind = "parse_json"
from = "raw"
schema = "{schema}"
check = "id is not null"
dead_letters = "{dead}"

[[steps]]
name = "shown"
kind = "sql"
sql = "select {columns} from events"

[[sinks]]
name = "files"
kind = "parquet"
from = "shown"
path = "lake"
"""


def test_values_of_another_schema_are_read_or_dead_letters_and_the_schema_may_grow(
    spark: Any, bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    source, dead = make_topic(), make_topic()
    places = {"bootstrap": bootstrap, "source": source, "dead": dead}
    old = SCHEMA_CHANGES.format(schema="id int, name string", columns="id, name", **places)
    send(bootstrap, source, [b'{"id": 1, "name": "a"}', b'{"id": 2, "name": "b", "colour": "red"}'])
    run_to_end(spark, old, tmp_path)
    # One producer has another type now, one leaves a field out; then the pipeline knows more.
    send(bootstrap, source, [b'{"id": "three"}', b'{"id": 4}', b'{"id": 5, "colour": "blue"}'])
    new = SCHEMA_CHANGES.format(
        schema="id int, name string, colour string", columns="id, name, colour", **places
    )
    run_to_end(spark, new, tmp_path)
    kept = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "lake")).collect()
    found = {row.id: (row.name, row["colour"]) for row in kept}
    assert found == {1: ("a", None), 2: ("b", None), 4: (None, None), 5: (None, "blue")}
    (letter,) = rows_of(spark, bootstrap, dead)
    assert bytes(letter.value) == b'{"id": "three"}'
    assert headers_of(letter)["ottla-error"].startswith("it is no JSON of the schema")
