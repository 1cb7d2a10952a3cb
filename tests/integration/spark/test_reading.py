"""`spark.read.format("ottla")`: what is read, how it is cut, and what is told when it cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients.admin.blocking import Admin
from ottla.proto.ids import TopicPartition
from tests.integration.spark.conftest import MakeTopic

# Spark comes with `make spark-install`.
PySparkException = pytest.importorskip("pyspark.errors").PySparkException

pytestmark = [pytest.mark.integration]
KAFKA_COLUMNS = [
    ("key", "binary"),
    ("value", "binary"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "bigint"),
    ("timestamp", "timestamp"),
    ("timestampType", "int"),
]


def _read(spark: Any, bootstrap: str, **options: str) -> Any:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", bootstrap)
    return reader.options(**options).load()


def test_rows_have_the_columns_of_the_kafka_source_and_what_was_written(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2, records=3)
    rows = _read(spark, bootstrap, subscribe=topic, includeHeaders="true")
    assert rows.dtypes == [*KAFKA_COLUMNS, ("headers", "array<struct<key:string,value:binary>>")]
    got = {(row.partition, row.offset): row for row in rows.collect()}
    assert sorted(got) == [(p, n) for p in (0, 1) for n in (0, 1, 2)]
    one = got[1, 1]
    assert (one.topic, bytes(one.key), bytes(one.value)) == (topic, b"k1", b"p1-1")
    assert one.timestamp.timestamp() == 1_700_000_001
    assert one.timestampType == 0
    assert [(header.key, bytes(header.value)) for header in one.headers] == [("n", b"1")]
    assert got[0, 0].headers is None


def test_one_partition_is_read_by_several_tasks_and_every_record_once(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=1, records=100)
    rows = _read(spark, bootstrap, subscribe=topic, minPartitions="4")
    assert rows.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in rows.select("offset").collect()) == list(range(100))


def test_places_filters_and_pieces_leave_only_what_is_asked_for(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=2, records=10)
    start = f'{{"{topic}":{{"0":4,"1":-2}}}}'
    end = f'{{"{topic}":{{"0":-1,"1":2}}}}'
    rows = _read(spark, bootstrap, subscribe=topic, startingOffsets=start, endingOffsets=end)
    got = sorted((row.partition, row.offset) for row in rows.collect())
    assert got == [*((0, n) for n in range(4, 10)), (1, 0), (1, 1)]
    chosen = _read(spark, bootstrap, subscribe=topic, pushDownFilters="true").where(
        "partition = 1 and offset >= 3 and offset < 8 and timestamp >= '2023-11-14 22:13:25Z'"
    )
    # Offset 5 has the time 22:13:25; one task is enough, because the rest is not even read.
    assert sorted(row.offset for row in chosen.collect()) == [5, 6, 7]
    assert chosen.rdd.getNumPartitions() == 1


def test_a_table_that_was_filtered_once_is_whole_again_for_the_next_query(
    spark: Any, bootstrap: str, make_topic: MakeTopic
) -> None:
    table = _read(spark, bootstrap, subscribe=make_topic(partitions=2, records=10))
    assert table.where("partition = 1 and offset < 3").count() == 3
    assert table.count() == 20


def test_records_that_are_gone_fail_the_query_or_are_passed_over_as_asked(
    spark: Any, bootstrap: str, make_topic: MakeTopic, admin: Admin
) -> None:
    topic = make_topic(partitions=1, records=10)
    admin.delete_records({TopicPartition(topic, 0): 6})
    options = {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":2}}}}'}
    told = f"{topic}-0: records from 2 to 10 were to be read, and the log has those from 6 to 10"
    with pytest.raises(PySparkException, match=told):
        _read(spark, bootstrap, **options).count()
    left = _read(spark, bootstrap, failOnDataLoss="false", **options)
    assert sorted(row.offset for row in left.collect()) == [6, 7, 8, 9]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "there-is-none"}, "topic there-is-none is not there"),
        ({"subscrbe": "x"}, "subscrbe is no option of format ottla; is subscribe meant"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_with_a_sentence(
    spark: Any, bootstrap: str, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(PySparkException, match=sentence):
        _read(spark, bootstrap, **options).count()


def test_pythons_of_tasks_have_the_installed_package_and_not_an_archive_without_compiled_modules(
    spark: Any,
) -> None:
    def place(_: int) -> str:
        import pyspark

        return str(pyspark.__file__)

    (found,) = spark.sparkContext.parallelize([0], 1).map(place).collect()
    assert ".zip" not in found
