"""Spark's own Kafka connector as a client of a node: what `test_kafka_connector.py` runs.

Runs on PySpark 4.0.0 in an environment of its own, where there is nothing of ours, so it imports
nothing of ours. Writes a batch, reads it, copies it as a stream in limited batches, goes on with
the stream after an end, and reads by offsets and times. Prints what it saw, as JSON.

    python connector_program.py BOOTSTRAP JARS DIR
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

FORM = "kafka"
DEADLINE_S = 120


def started(jars: str) -> Any:
    settings = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.appName("connector").master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def write_batch(spark: Any, bootstrap: str, topic: str, count: int) -> None:
    rows = spark.range(count).selectExpr(
        "cast(id as string) as key",
        "concat('v', id) as value",
        "cast(id % 3 as int) as partition",
        "array(named_struct('key', 'h', 'value', binary(cast(id as string)))) as headers",
    )
    writer = rows.write.format(FORM).option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("includeHeaders", "true").save()


def read(spark: Any, bootstrap: str, topic: str, **options: str) -> list[Any]:
    reader = spark.read.format(FORM).option("kafka.bootstrap.servers", bootstrap)
    rows: list[Any] = reader.options(subscribe=topic, **options).load().collect()
    return rows


def copy(spark: Any, bootstrap: str, source: str, target: str, state: str) -> list[int]:
    """Copy one topic to another as a stream, to its end; return the sizes of the batches."""
    reader = spark.readStream.format(FORM).option("kafka.bootstrap.servers", bootstrap)
    rows = reader.options(
        subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="40"
    ).load()
    upper = rows.selectExpr("key", "upper(cast(value as string)) as value", "partition")
    writer = upper.writeStream.format(FORM).option("kafka.bootstrap.servers", bootstrap)
    query = (
        writer.option("topic", target)
        .option("checkpointLocation", state)
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(DEADLINE_S):
        sys.exit("the stream does not end")
    return [one["numInputRows"] for one in query.recentProgress if one["numInputRows"]]


def main(bootstrap: str, jars: str, folder: str) -> None:
    spark = started(jars)
    spark.sparkContext.setLogLevel("ERROR")
    write_batch(spark, bootstrap, "connector-in", 99)
    first = read(spark, bootstrap, "connector-in", includeHeaders="true")
    sizes = copy(spark, bootstrap, "connector-in", "connector-out", f"{folder}/state")
    write_batch(spark, bootstrap, "connector-in", 9)
    more = copy(spark, bootstrap, "connector-in", "connector-out", f"{folder}/state")
    places = json.dumps({"connector-in": {"0": 30, "1": -2, "2": 36}})
    some = read(spark, bootstrap, "connector-in", startingOffsets=places)
    none = read(
        spark,
        bootstrap,
        "connector-in",
        startingTimestamp="4102444800000",
        startingOffsetsByTimestampStrategy="latest",
    )
    told = {
        "read": sorted(
            [
                row.partition,
                row.offset,
                bytes(row.value).decode(),
                bytes(row.headers[0].value).decode(),
            ]
            for row in first
        ),
        "sizes": sizes,
        "more": more,
        "copied": sorted(
            bytes(row.value).decode() for row in read(spark, bootstrap, "connector-out")
        ),
        "some": sorted([row.partition, row.offset] for row in some),
        "none": len(none),
    }
    print(json.dumps(told), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
