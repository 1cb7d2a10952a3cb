"""The sink of Spark writes every row once, though tasks fail, and batches are done again.

On a node of ours, and on Apache Kafka where there is a Java for it.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.clients.admin.answers import CreatedTopic
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import Claim
from ottla.clients.spark.options import read_sink_options
from ottla.proto.ids import TopicPartition
from tests.integration.nodes import wait_until
from tests.integration.spark.conftest import fill, lasting
from tests.interop.broker import start_broker
from tests.interop.kafka import class_path, missing_tools

# Spark comes with `make spark-install`.
PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [pytest.mark.integration, pytest.mark.long]
DEADLINE_S = 180
PARTITIONS = 2


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.interop)])
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "ottla":
        yield request.getfixturevalue("bootstrap")
        return
    missing = missing_tools()
    if missing is not None:
        pytest.skip(missing)
    class_path()
    settings = {
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }
    with start_broker(tmp_path_factory.mktemp("kafka"), settings) as broker:
        yield broker.address


@pytest.fixture
def topics(address: str) -> tuple[str, str]:
    """Make a topic with ten records in each partition, and an empty one."""
    names = [f"spark-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    with Admin({"bootstrap.servers": address}) as admin:
        for made in admin.create_topics([lasting(one, PARTITIONS) for one in names]).values():
            assert isinstance(made, CreatedTopic), made
    fill(address, names[0], PARTITIONS, 10)
    return names[0], names[1]


def _start(
    spark: Any,
    address: str,
    topics: tuple[str, str],
    checkpoint: Path,
    value: str = "value",
    **options_of_sink: str,
) -> Any:
    """Copy one topic to the other until its end, in batches of ten."""
    source, target = topics
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", address)
    options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "10"}
    rows = reader.options(**options).load().selectExpr("key", f"{value} as value", "partition")
    sink = {**_sink(address, target), **options_of_sink}
    writer = rows.writeStream.format("ottla").options(**sink)
    checkpointed = writer.option("checkpointLocation", str(checkpoint))
    return checkpointed.trigger(availableNow=True).start()


def _sink(address: str, target: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": address,
        "topic": target,
        "exactlyOnce": "true",
        "transactionalIdPrefix": f"to-{target}",
    }


def _committed(address: str, topic: str) -> list[str]:
    config = {"bootstrap.servers": address, "isolation.level": "read_committed"}
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = list[str]()
    with Consumer(config) as consumer:
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(one) < ends[one] for one in places):
            found += [record.value.decode() for record in consumer.consume(100, 0.1)]
    return sorted(found)


def _require_once(address: str, target: str, records: int = 10) -> None:
    """Require that every row is there once, and that nothing is left open."""
    wanted = sorted(f"p{one}-{number}" for one in range(PARTITIONS) for number in range(records))
    wait_until(lambda: len(_committed(address, target)) >= len(wanted), DEADLINE_S, "all is there")
    assert _committed(address, target) == wanted
    with Decider(read_sink_options(_sink(address, target))) as decider:
        decider.begin(Claim("", is_stream=True))
    with Admin({"bootstrap.servers": address}) as admin:
        listed = admin.list_transactions(states=["Ongoing"])
    assert [one for one in listed if one.transactional_id.startswith(f"to-{target}")] == []


def test_a_batch_that_is_done_again_is_there_once(
    spark: Any, address: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    query = _start(spark, address, topics, tmp_path)
    assert query.awaitTermination(DEADLINE_S)
    batches = sorted(
        int(one.name) for one in (tmp_path / "commits").iterdir() if one.name.isdigit()
    )
    assert len(batches) >= 2
    # As if the driver had died after the sink's commit, and before Spark's own.
    for left in (tmp_path / "commits").glob(f"*{batches[-1]}*"):
        left.unlink()
    fill(address, topics[0], PARTITIONS, 5, first=10)
    again = _start(spark, address, topics, tmp_path)
    assert again.awaitTermination(DEADLINE_S)
    _require_once(address, topics[1], records=15)


def test_a_task_that_fails_leaves_nothing_of_its_batch(
    spark: Any, address: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    fails = "if(cast(value as string) = 'p1-7', cast(raise_error('poison') as binary), value)"
    query = _start(spark, address, topics, tmp_path, fails)
    with pytest.raises(PySparkException, match="poison"):
        query.awaitTermination(DEADLINE_S)
    assert "p1-7" not in _committed(address, topics[1])
    mended = _start(spark, address, topics, tmp_path)
    assert mended.awaitTermination(DEADLINE_S)
    _require_once(address, topics[1])


def test_a_batch_query_writes_all_or_nothing(
    spark: Any, address: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", address)
    rows = reader.option("subscribe", source).load()
    fails = "if(cast(value as string) = 'p1-7', cast(raise_error('poison') as binary), value)"
    sink = _sink(address, target)
    bad = rows.selectExpr(f"{fails} as value", "partition").write.format("ottla").options(**sink)
    with pytest.raises(PySparkException, match="poison"):
        bad.mode("append").save()
    assert _committed(address, target) == []
    good = rows.selectExpr("value", "partition").write.format("ottla").options(**sink)
    good.mode("append").save()
    _require_once(address, target)


def test_another_query_under_the_prefix_is_refused_until_it_takes_over(
    spark: Any, address: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    owner = _start(spark, address, topics, tmp_path / "first")
    assert owner.awaitTermination(DEADLINE_S)
    taken = rf"transactionalIdPrefix=to-{topics[1]} belongs to the stream {owner.id}, which has "
    with pytest.raises(PySparkException, match=taken + "written up to batch"):
        _start(spark, address, topics, tmp_path / "second").awaitTermination(DEADLINE_S)
    rows = spark.read.format("ottla").option("kafka.bootstrap.servers", address)
    copied = rows.option("subscribe", topics[0]).load().selectExpr("value", "partition")
    with pytest.raises(PySparkException, match="and this is a batch query"):
        copied.write.format("ottla").options(**_sink(address, topics[1])).mode("append").save()
    fill(address, topics[0], PARTITIONS, 5, first=10)
    # Nothing of theirs counts, and the owner was not disturbed.
    assert _start(spark, address, topics, tmp_path / "first").awaitTermination(DEADLINE_S)
    _require_once(address, topics[1], records=15)
    heir = _start(spark, address, topics, tmp_path / "second", takeOverPrefix="true")
    assert heir.awaitTermination(DEADLINE_S)
    assert Counter(Counter(_committed(address, topics[1])).values()) == {2: 15 * PARTITIONS}
    fill(address, topics[0], PARTITIONS, 1, first=15)
    with pytest.raises(PySparkException, match=f"belongs to the stream {heir.id}"):
        _start(spark, address, topics, tmp_path / "first").awaitTermination(DEADLINE_S)
