"""Where rows of a pipeline go: topics, Parquet, Delta, databases, the console.

| sink | after a restart |
| --- | --- |
| parquet, delta | each row once: the log of the table says which batches are in it |
| topic | each row once, for readers of what is committed; or, if the file says so, at least once |
| jdbc | at least once; with `batch_column` once: a batch that comes again is deleted first |
| console | at least once |

Not here: when a query starts and ends (`running.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from ottla.clients.pipeline.declaration import Part, Pipeline
from ottla.proto.errors import ConfigError

_ROWS_SHOWN: Final = 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_ALL: Final = ("all", "-1")
# Columns by which files are found again, from a time.
_BY_TIME: Final = {"day": {"day": "yyyy-MM-dd"}, "hour": {"day": "yyyy-MM-dd", "hour": "HH"}}


def check_sink(spark: Any, sink: Part) -> None:
    """Refuse what only Spark, and not the file, can say of a sink."""
    if sink.kind == "delta" and not _has_format(spark, "delta"):
        raise ConfigError(
            f"sinks {sink.name}: this Spark has no format delta; give it one with --conf "
            "spark.jars.packages=io.delta:delta-spark_2.13:VERSION and the two settings that "
            "Delta's own page names."
        )
    if sink.kind == "jdbc":
        for key in ("table", "batch_column"):
            if key in sink.values and not _NAME.fullmatch(sink.text(key)):
                raise ConfigError(f"sinks {sink.name}: {key} {sink.text(key)!r} is no plain name.")


def _has_format(spark: Any, name: str) -> bool:
    source = spark._jvm.org.apache.spark.sql.execution.datasources.DataSource
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        source.lookupDataSource(name, spark._jsparkSession.sessionState().conf())
    except (Py4JJavaError, PySparkException):
        return False
    return True


def prepared(sink: Part, rows: Any) -> Any:
    """Return the rows with the columns by which the sink sorts them into directories."""
    from pyspark.sql import functions as f

    for name, form in _BY_TIME.get(sink.text("every"), {}).items():
        if name in rows.columns:
            raise ConfigError(f"sinks {sink.name}: {sink.text('from')} has a column {name} itself.")
        rows = rows.withColumn(name, f.date_format(f.col(sink.text("time")), form))
    return rows


def topic_options(sink: Part, pipeline: Pipeline, *, takes_over: bool) -> dict[str, str]:
    """Return how the rows of a sink get into its topic."""
    options = {"kafka.bootstrap.servers": pipeline.bootstrap, "topic": sink.text("topic")}
    options |= sink.options
    prefix = pipeline.prefix_of(sink)
    if prefix is None:
        return options
    acks = options.get("kafka.acks", "all")
    if acks not in _ALL:
        raise ConfigError(
            f"sinks {sink.name}: kafka.acks={acks} promises less than exactly once; leave it out, "
            'or say guarantee = "at-least-once".'
        )
    options |= {"exactlyonce": "true", "transactionalidprefix": prefix}
    if takes_over:
        options["takeoverprefix"] = "true"
    return options


def into(
    sink: Part, writer: Any, pipeline: Pipeline, folder: Path, *, takes_over: bool = False
) -> Any:
    """Return the writer, told where to."""
    match sink.kind:
        case "topic":
            options = topic_options(sink, pipeline, takes_over=takes_over)
            return writer.format("ottla").options(**options)
        case "parquet" | "delta":
            path = str(folder / sink.text("path"))
            writer = writer.format(sink.kind).option("path", path)
            columns = [*_BY_TIME.get(sink.text("every"), {}), *sink.names("partition_by")]
            return writer.partitionBy(*columns) if columns else writer
        case "jdbc":
            return writer.foreachBatch(_jdbc(sink))
        case _:
            shown = str(sink.values.get("rows", _ROWS_SHOWN))
            return writer.format("console").option("numRows", shown)


def _jdbc(sink: Part) -> Callable[[Any, int], None]:
    """Return what writes one batch into a table of a database."""
    url, table, column = sink.text("url"), sink.text("table"), sink.text("batch_column")
    options = {key: str(value) for key, value in sink.values.get("options", {}).items()}

    def write(rows: Any, batch_id: int) -> None:
        from pyspark.sql import functions as f

        if column:
            rows = rows.withColumn(column, f.lit(batch_id).cast("bigint"))
            _forget_batch(rows.sparkSession, url, table, column, batch_id, options)
        rows.write.format("jdbc").options(url=url, dbtable=table, **options).mode("append").save()

    return write


def _forget_batch(
    spark: Any, url: str, table: str, column: str, batch_id: int, options: dict[str, str]
) -> None:
    """Delete what an earlier attempt at this batch has written, if the table is there."""
    jvm = spark._jvm
    if "driver" in options:
        # Spark's own register also finds those that came by `spark.jars`.
        registry = jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry
        registry.register(options["driver"])
    settings = jvm.java.util.Properties()
    for key in ("user", "password"):
        if key in options:
            settings.setProperty(key, options[key])
    connection = jvm.java.sql.DriverManager.getConnection(url, settings)
    try:
        if not _is_there(connection, table):
            return
        statement = connection.createStatement()
        quote = connection.getMetaData().getIdentifierQuoteString().strip()
        statement.executeUpdate(
            f"delete from {table} where {quote}{column}{quote} = {int(batch_id)}"
        )
        statement.close()
    finally:
        connection.close()


def _is_there(connection: Any, table: str) -> bool:
    name = table.rpartition(".")[2].lower()
    found = connection.getMetaData().getTables(None, None, None, None)
    while found.next():
        if found.getString("TABLE_NAME").lower() == name:
            return True
    return False
