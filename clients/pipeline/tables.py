"""From a declared pipeline to Spark's tables: each source and each step is one, by its name.

T1  nothing runs here: Spark only looks whether what is written makes sense
T2  on the way of a row there is one watermark: the first step that waits sets it, later ones go by
    it

Not here: reading values (`parsing.py`), sinks (`sinks.py`), starting queries (`running.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ottla.clients.pipeline.declaration import Part, Pipeline
from ottla.clients.pipeline.functions import load_function
from ottla.clients.pipeline.parsing import parse
from ottla.clients.pipeline.sentences import first_sentence
from ottla.clients.pipeline.state import with_state
from ottla.proto.errors import ConfigError


class Tables:
    """The tables of one pipeline in one Spark session."""

    def __init__(self, spark: Any, pipeline: Pipeline, folder: Path) -> None:
        self._spark: Final = spark
        self._pipeline: Final = pipeline
        # Paths of the file are relative to it.
        self._folder: Final = folder
        self.by_name: Final = dict[str, Any]()
        # Sinks that the file does not name: what steps refused.
        self.dead_letters: Final = list[tuple[Part, Any]]()
        for part in pipeline.sources:
            self._keep(part, self._source(part))
        for part in pipeline.steps:
            self._keep(part, self.analysed("steps", part, self._step, part))

    def sink_rows(self, sink: Part) -> Any:
        """Return what a sink writes; for a topic with its columns key and value."""
        rows = self.by_name[sink.text("from")]
        if not rows.isStreaming:
            raise ConfigError(
                f"sinks {sink.name}: {sink.text('from')} is a table and no stream: nothing comes."
            )
        if sink.kind != "topic":
            return rows
        value = sink.text("value", "to_json(struct(*))")
        columns = [f"cast({value} as binary) as value"]
        if "key" in sink.values:
            columns.insert(0, f"cast({sink.text('key')} as binary) as key")
        return self.analysed("sinks", sink, rows.selectExpr, *columns)

    def _keep(self, part: Part, table: Any) -> None:
        table.createOrReplaceTempView(part.name)
        self.by_name[part.name] = table

    def _source(self, part: Part) -> Any:
        given: Mapping[str, Any] = part.values.get("options", {})
        options = {key: str(value) for key, value in given.items()}
        if part.kind == "topic":
            options = {
                "kafka.bootstrap.servers": self._pipeline.bootstrap,
                "subscribe": part.text("topic"),
                "startingOffsets": part.text("starting", "earliest"),
                "kafka.group.id": f"pipeline-{self._pipeline.name}",
                # What another pipeline writes exactly once is read so.
                "kafka.isolation.level": "read_committed",
                **options,
            }
            if "max_per_batch" in part.values:
                options["maxOffsetsPerTrigger"] = part.text("max_per_batch")
            return self._spark.readStream.format("ottla").options(**options).load()
        path = str(self._folder / part.text("path"))
        is_table = part.kind == "table"
        reader = self._spark.read if is_table else self._spark.readStream
        form = part.text("format") if is_table else part.kind

        def load() -> Any:
            return reader.format(form).schema(part.text("schema")).options(**options).load(path)

        return self.analysed("sources", part, load)

    def _step(self, part: Part) -> Any:
        match part.kind:
            case "parse_json" | "parse_csv" | "parse_avro":
                good, bad = parse(part, self._from(part), self._folder)
                if bad is not None:
                    self.dead_letters.append(bad)
                return good
            case "filter":
                return self._from(part).where(part.text("where"))
            case "sql":
                return self._spark.sql(part.text("sql"))
            case "python":
                return self._python(part)
            case "join":
                return self._join(part)
            case _:
                return self._over_time(part)

    def _over_time(self, part: Part) -> Any:
        match part.kind:
            case "window":
                return self._window(part)
            case "session":
                return self._session(part)
            case "state":
                function = load_function(part, self._folder)
                return with_state(self._waiting(part), part, function)
            case "deduplicate":
                late = self._waiting(part)
                return late.dropDuplicatesWithinWatermark(list(part.names("keys")))
            case _:
                raise ConfigError(f"steps {part.name}: {part.kind} is no kind of step.")

    def _from(self, part: Part) -> Any:
        return self.by_name[part.text("from")]

    def _waiting(self, part: Part) -> Any:
        """Return the rows a step works on, with a watermark: its own, or that of a step before."""
        rows = self._from(part)
        plan = rows._jdf.queryExecution().analyzed().toString()
        has_one = "EventTimeWatermark" in plan
        if has_one and "watermark" in part.values:
            raise ConfigError(
                f"steps {part.name}: a step before it has a watermark; there can be one only."
            )
        if not has_one and "watermark" not in part.values:
            raise ConfigError(f"steps {part.name}: watermark is missing: how long is waited?")
        if has_one:
            return rows
        return rows.withWatermark(part.text("time"), part.text("watermark"))

    def _python(self, part: Part) -> Any:
        from pyspark.sql import DataFrame

        function = load_function(part, self._folder)
        table = function(self._from(part))
        if not isinstance(table, DataFrame):
            raise ConfigError(
                f"steps {part.name}: {part.text('function')} returned a "
                f"{type(table).__name__}, and not a table."
            )
        return table

    def _join(self, part: Part) -> Any:
        other = self.by_name[part.text("with")]
        if other.isStreaming:
            raise ConfigError(
                f"steps {part.name}: with must be a source of kind table; two streams are joined "
                "by a step of kind sql."
            )
        rows, columns = self._from(part), list(part.names("on"))
        for column in columns:
            for name, table in ((part.text("from"), rows), (part.text("with"), other)):
                if column not in table.columns:
                    raise ConfigError(f"steps {part.name}: {name} has no column {column}.")
        return rows.join(other, columns, part.text("how", "inner"))

    def _window(self, part: Part) -> Any:
        from pyspark.sql import functions as f

        size = part.text("size")
        window = f.window(part.text("time"), size, part.text("slide", size)).alias("window")
        return self._grouped(part, window, "window")

    def _session(self, part: Part) -> Any:
        from pyspark.sql import functions as f

        session = f.session_window(part.text("time"), part.text("gap")).alias("session")
        return self._grouped(part, session, "session")

    def _grouped(self, part: Part, window: Any, name: str) -> Any:
        from pyspark.sql import functions as f

        grouped = self._waiting(part).groupBy(window, *part.names("by"))
        table = grouped.agg(*(f.expr(one) for one in part.names("select")))
        own = [column for column in table.columns if column != name]
        return table.select(f"{name}.start", f"{name}.end", *own)

    def analysed(self, where: str, part: Part, build: Any, *arguments: Any) -> Any:
        """Return what `build` makes; what Spark says against it becomes one sentence."""
        from pyspark.errors import PySparkException

        try:
            return build(*arguments)
        except PySparkException as error:
            raise ConfigError(f"{where} {part.name}: {first_sentence(str(error))}") from error
