"""Starts the queries of a pipeline, tells how far they are, and ends them.

Each sink is a query of its own with a checkpoint of its own: what one has written and what another
has not is known for each. After a restart each goes on where its checkpoint says; Parquet then has
every row once, and so has a topic, unless the file asks for less (`sinks.py`).

Q1  nothing is started unless all of the pipeline makes sense
Q2  a query that fails ends the others, and its first sentence is told
Q3  a query whose Python did not start within the ten seconds that Spark allows (and nobody can
    change), or was killed while it planned a batch, is started again, a few times until its next
    batch: on a busy machine that happens, and nothing is lost by it
Q4  rows that a step drops, because it names no topic for dead letters, are told with their batch,
    and summed up

Not here: what the tables are (`tables.py`), where rows go (`sinks.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ottla.clients.pipeline.declaration import AVAILABLE_NOW, Part, Pipeline
from ottla.clients.pipeline.parsing import rows_dropped
from ottla.clients.pipeline.sentences import cause_of, first_sentence
from ottla.clients.pipeline.sinks import check_sink, into, prepared
from ottla.clients.pipeline.tables import Tables
from ottla.proto.errors import ConfigError, OttlaError

_LOOK_EVERY_S: Final = 0.5
_STARTS_AGAIN_MAX: Final = 10
# What Spark says of a Python that was too slow to start, and of one that died. One that works for a
# task is replaced by Spark itself, one that plans is not.
_PYTHON_GONE: Final = ("Python worker failed to connect back", "Python worker exited unexpectedly")


class PipelineFailedError(OttlaError):
    """A query of the pipeline ended with an error; what it had written stays written."""


class Run:
    """One run of a pipeline, from `start` until every query has ended."""

    def __init__(
        self,
        spark: Any,
        pipeline: Pipeline,
        folder: Path,
        into: Path | None = None,
        *,
        takes_over: bool = False,
    ) -> None:
        """Look whether all of it makes sense, or raise `ConfigError` (Q1).

        What the file names is looked for in `folder`; what is written goes below `into`. Who
        `takes_over` says that earlier queries of this name, with other checkpoints, are gone.
        """
        self._takes_over: Final = takes_over
        self._spark: Final = spark
        self._pipeline: Final = pipeline
        self._into: Final = folder if into is None else into
        tables = Tables(spark, pipeline, folder)
        sinks = list[tuple[Part, Any]]()
        for sink in pipeline.sinks:
            check_sink(spark, sink)
            rows = tables.sink_rows(sink)
            sinks.append((sink, tables.analysed("sinks", sink, prepared, sink, rows)))
        self._sinks: Final = [*sinks, *tables.dead_letters]
        self._queries: Final = dict[str, Any]()
        # By query, until its next batch.
        self._starts_left: Final = dict[str, int]()
        # The last batch that was told, by query.
        self._told: Final = dict[str, int]()
        # Rows that each query has read so far.
        self.rows_read: Final = dict[str, int]()
        # Of these, the rows that steps have dropped, by query and step (Q4).
        self.rows_dropped: Final = dict[str, Counter[str]]()

    def start(self) -> None:
        for sink, rows in self._sinks:
            self._queries[sink.name] = self._started(sink, rows)
            self.rows_read[sink.name] = 0
            self.rows_dropped[sink.name] = Counter()

    async def wait(self, tell: Callable[[str], None]) -> None:
        """Return when every query has ended well; `tell` gets a line for each batch."""
        while True:
            is_over = not any(query.isActive for query in self._queries.values())
            self._tell_progress(tell)
            was_started_again = self._mend_or_raise(tell)
            if is_over and not was_started_again:
                return
            await asyncio.sleep(_LOOK_EVERY_S)

    def summary(self) -> list[str]:
        """Return a line for each query: what it has read, and what steps have dropped (Q4)."""
        return [
            f"{name}: done, {rows} rows read{_told_dropped(self.rows_dropped[name])}."
            for name, rows in self.rows_read.items()
        ]

    def stop(self) -> None:
        for query in self._queries.values():
            query.stop()

    def _started(self, sink: Part, rows: Any) -> Any:
        from pyspark.errors import AnalysisException

        checkpoint = self._into / self._pipeline.checkpoint / sink.name
        writer = (
            rows.writeStream.queryName(f"{self._pipeline.name}.{sink.name}")
            .outputMode(sink.text("mode", "append"))
            .option("checkpointLocation", str(checkpoint))
        )
        if self._pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=self._pipeline.trigger)
        try:
            told = into(sink, writer, self._pipeline, self._into, takes_over=self._takes_over)
            return told.start()
        except AnalysisException as error:
            self.stop()
            raise ConfigError(f"sinks {sink.name}: {first_sentence(str(error))}") from error

    def _tell_progress(self, tell: Callable[[str], None]) -> None:
        for name, query in self._queries.items():
            for one in query.recentProgress:
                if one["batchId"] <= self._told.get(name, -1):
                    continue
                self._told[name] = one["batchId"]
                self._starts_left.pop(name, None)
                self.rows_read[name] += one["numInputRows"]
                dropped = rows_dropped(one["observedMetrics"])
                self.rows_dropped[name].update(dropped)
                rows = f"{one['numInputRows']} rows{_told_dropped(dropped)}"
                took_s = one["batchDuration"] / 1000
                tell(f"{name}: batch {one['batchId']}, {rows}, {took_s:.1f} s")

    def _mend_or_raise(self, tell: Callable[[str], None]) -> bool:
        """Return whether a query was started again (Q3)."""
        was_started_again = False
        for sink, rows in self._sinks:
            name = sink.name
            error = self._queries[name].exception()
            if error is None:
                continue
            cause = cause_of(str(error))
            if "PrefixTakenError" in str(error):
                cause += " `ottla pipeline run --take-over` does so."
            starts_left = self._starts_left.get(name, _STARTS_AGAIN_MAX)
            if starts_left > 0 and any(one in str(error) for one in _PYTHON_GONE):
                self._starts_left[name] = starts_left - 1
                tell(f"{name}: {cause} It is started again.")
                self._queries[name] = self._started(sink, rows)
                was_started_again = True
                continue
            self.stop()
            raise PipelineFailedError(f"{name}: {cause}") from error
        return was_started_again


def _told_dropped(dropped: Mapping[str, int]) -> str:
    return "".join(f", {rows} dropped by {step}" for step, rows in sorted(dropped.items()))
