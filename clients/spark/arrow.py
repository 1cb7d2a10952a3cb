"""Columns into Arrow record batches with the schema of Spark's Kafka source.

Not here: where columns come from (`columns.py`). PyArrow is needed, as by all of Spark's Python.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from ottla.clients.spark.columns import Columns
from ottla.proto.errors import CorruptionError
from ottla.proto.ids import TopicPartition

SCHEMA: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
SCHEMA_WITH_HEADERS: Final = f"{SCHEMA}, headers array<struct<key: string, value: binary>>"


def record_batch(columns: Columns, where: TopicPartition, schema: Any) -> Any:
    """Return the rows; `schema` is what Spark makes of `SCHEMA` in Arrow's words."""
    count = len(columns.offsets)
    try:
        times = pa.array(columns.times_ms, pa.timestamp("ms", tz="UTC"))
        times = times.cast(schema.field("timestamp").type)
    except (pa.ArrowInvalid, OverflowError) as error:
        raise CorruptionError(
            f"{where}: a record from offset {columns.offsets[0]} on has a time that Spark cannot "
            f"hold: {error}."
        ) from error
    arrays = [
        pa.array(columns.keys, pa.binary()),
        pa.array(columns.values, pa.binary()),
        pa.repeat(pa.scalar(where.topic, pa.string()), count),
        pa.repeat(pa.scalar(where.partition, pa.int32()), count),
        pa.array(columns.offsets, pa.int64()),
        times,
        pa.array(columns.time_kinds, pa.int32()),
    ]
    if "headers" in schema.names:
        rows = [
            [{"key": name, "value": value} for name, value in headers] or None
            for headers in columns.headers
        ]
        arrays.append(pa.array(rows, schema.field("headers").type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
