"""The steps that read values of records: JSON, CSV and Avro; what cannot be read is a dead letter.

P1  a row that cannot be parsed, or that fails its check, is in no table after the step: it is a
    dead letter, with the reason and where it came from, if the step names a topic for these; if
    not, it is dropped, and counted in the progress of each query that read it
P2  a field that is too much is left out, one that is not there is null; what must be there is said
    by `check`

JSON and CSV are read by Spark. Avro is read by `avro.py`, in Python: Spark's own is a jar apart.

Not here: other steps (`tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.clients.pipeline.avro import AvroError, AvroSchema, compile_schema
from ottla.clients.pipeline.declaration import DEAD_LETTERS, Part
from ottla.clients.reprocessing.plan import ERROR, ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TOPIC
from ottla.proto.errors import ConfigError

SCHEMA_BYTES_MAX: Final = 1 << 20
_CORRUPT: Final = "_ottla_corrupt"
_PARSED: Final = "_ottla_parsed"
_REASON: Final = "_ottla_reason"
_KEY: Final = "_ottla_key"
_VALUE: Final = "_ottla_value"
# Before the name of a step, in the metrics of a query; and the column there.
_DROPPED: Final = "ottla.dropped."
_ROWS: Final = "rows"
# What a row of a topic keeps beside what was parsed out of it.
_PLACE: Final = ("topic", "partition", "offset", "timestamp")


def parse(part: Part, rows: Any, folder: Path) -> tuple[Any, tuple[Part, Any] | None]:
    """Return the good rows, and a sink for the others if the step wants one."""
    from pyspark.sql import functions as f

    if not {"key", "value", *_PLACE} <= set(rows.columns):
        raise ConfigError(f"steps {part.name}: from must be a source of kind topic.")
    parsed, reason = _parsed(part, rows, folder)
    own = parsed.select(f"{_PARSED}.*").columns
    clashing = sorted(set(own) & set(_PLACE))
    if clashing:
        raise ConfigError(
            f"steps {part.name}: the schema has {clashing[0]}, and so has each row by itself: "
            "where it came from. Take a step of kind sql instead."
        )
    if "check" in part.values:
        passes = f.coalesce(f.expr(part.text("check")), f.lit(False))
        told = f"it fails the check: {part.text('check')}"
        reason = reason.when(~passes, f.lit(told))
    # A schema may well have a key or a value of its own.
    raw = [f.col("key").alias(_KEY), f.col("value").alias(_VALUE), _PARSED]
    judged = parsed.select(*_PLACE, *raw, f"{_PARSED}.*").withColumn(_REASON, reason)
    is_bad = f.col(_REASON).isNotNull()
    letters = None
    if "dead_letters" in part.values:
        letters = _dead_letters(part, judged.where(is_bad))
    else:
        judged = judged.observe(f"{_DROPPED}{part.name}", f.count_if(is_bad).alias(_ROWS))
    good = judged.where(~is_bad).drop(_CORRUPT, _PARSED, _REASON, _KEY, _VALUE)
    return good, letters


def rows_dropped(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Return how many rows each step has dropped in one batch, where it has dropped some (P1)."""
    found = {
        name.removeprefix(_DROPPED): int(one[_ROWS] or 0)
        for name, one in metrics.items()
        if name.startswith(_DROPPED)
    }
    return {step: rows for step, rows in found.items() if rows}


def _parsed(part: Part, rows: Any, folder: Path) -> tuple[Any, Any]:
    """Return the rows with what was read of their values, and the reason where that went wrong."""
    from pyspark.sql import functions as f

    inner = f.col(_PARSED)
    if part.kind == "parse_avro":
        schema = _avro_schema(part, folder)
        framed = part.text("framing", "plain") == "registry"
        udf = _avro_reader(schema, framed=framed)
        parsed = rows.withColumn(_PARSED, udf(f.col("value")))
        wrong = f.concat(f.lit("it is no Avro of the schema: "), inner[_CORRUPT])
        return parsed, f.when(inner[_CORRUPT].isNotNull(), wrong)
    ddl = part.text("schema")
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = f.col("value").cast("string")
    if part.kind == "parse_csv":
        how["sep"] = part.text("separator", ",")
        column, form = f.from_csv(text, f"{ddl}, {_CORRUPT} string", how), "CSV"
    else:
        column, form = f.from_json(text, f"{ddl}, {_CORRUPT} string", how), "JSON"
    is_bad = inner.isNull() | inner[_CORRUPT].isNotNull()
    parsed = rows.withColumn(_PARSED, column)
    return parsed, f.when(is_bad, f.lit(f"it is no {form} of the schema: {ddl}"))


def _avro_schema(part: Part, folder: Path) -> AvroSchema:
    path = folder / part.text("schema_file")
    try:
        with path.open("rb") as file:
            data = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"steps {part.name}: {path} cannot be read: {error.strerror}.") from None
    if len(data) > SCHEMA_BYTES_MAX:
        raise ConfigError(f"steps {part.name}: {path} has more than {SCHEMA_BYTES_MAX} bytes.")
    try:
        return compile_schema(data.decode(errors="replace"))
    except ConfigError as error:
        raise ConfigError(f"steps {part.name}: {path}: {error}") from None


def _avro_reader(schema: AvroSchema, *, framed: bool) -> Any:
    from pyspark.sql import functions as f

    nothing = dict.fromkeys(schema.names)

    def read(value: Any) -> dict[str, Any]:
        try:
            found = schema.read(None if value is None else bytes(value), framed=framed)
        except AvroError as error:
            return {**nothing, _CORRUPT: str(error)}
        return {**found, _CORRUPT: None}

    # Spark looks there for a type that says how to call it, and warns of one that it does not know.
    read.__annotations__.clear()
    return f.udf(read, f"struct<{schema.ddl}, {_CORRUPT} string>")


def _dead_letters(part: Part, bad: Any) -> tuple[Part, Any]:
    from pyspark.sql import functions as f

    def header(name: str, content: Any) -> Any:
        named = f.lit(name).alias("key")
        return f.struct(named, content.cast("string").cast("binary").alias("value"))

    headers = f.array(
        header(ERROR, f.col(_REASON)),
        header(ORIGIN_TOPIC, f.col("topic")),
        header(ORIGIN_PARTITION, f.col("partition")),
        header(ORIGIN_OFFSET, f.col("offset")),
    )
    raw = (f.col(_KEY).alias("key"), f.col(_VALUE).alias("value"))
    rows = bad.select(*raw, headers.alias("headers"))
    values = {"from": part.name, "topic": part.text("dead_letters")}
    return Part(f"{part.name}-{DEAD_LETTERS}", "topic", values), rows
