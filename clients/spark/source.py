"""The data source `ottla`: `spark.read.format("ottla")`, `spark.readStream`, and writing both ways.

Spark makes these objects on the driver, sends copies to tasks, and calls them by the names of its
Python Data Source API. They hold options and nothing that cannot be sent; a stream's reader opens
its clients when it is first asked something, and stays on the driver.

S1  offsets in a checkpoint are those of the next records, `{"topic": {"0": 23}}`, and beside them
    stand the ids of the topics: a topic that is deleted and made anew is not read on in the middle
S2  what a batch of a stream reads depends on its start and end only, so that it can be read again
S3  offsets are committed for `kafka.group.id` after Spark has stored that a batch is done: for
    people and lag tools to see. The checkpoint, not the group, says where a stream goes on

Not here: planning (`planning.py`), reading (`range_reader.py`), writing (`sink.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ottla.clients.spark.arrow import SCHEMA, SCHEMA_WITH_HEADERS, record_batch
from ottla.clients.spark.filters import Bounds, bounds_of
from ottla.clients.spark.options import (
    SourceOptions,
    read_sink_options,
    read_source_options,
)
from ottla.clients.spark.planning import STARTING, Planner
from ottla.clients.spark.range_reader import RangeReader
from ottla.clients.spark.ranges import (
    OffsetRange,
    Offsets,
    StreamOffsets,
    limited,
    read_stored,
)
from ottla.clients.spark.sink import BatchWriter, StreamWriter
from ottla.proto.errors import OttlaError

LOG: Final = logging.getLogger("ottla.spark")


class OttlaDataSource(DataSource):
    """What Spark knows under the name `ottla`."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> str:
        wants_headers = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return SCHEMA_WITH_HEADERS if wants_headers else SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        options = read_source_options(dict(self.options), is_stream=False)
        kind = FilteringBatchReader if options.push_down_filters else BatchReader
        return kind(options, schema)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(read_source_options(dict(self.options), is_stream=True), schema)

    def writer(self, schema: Any, overwrite: bool) -> BatchWriter:
        return BatchWriter(read_sink_options(dict(self.options)), schema, overwrite=overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:  # noqa: N802
        # A stream in complete mode "overwrites"; its rows are appended, as in Spark's Kafka sink.
        return StreamWriter(read_sink_options(dict(self.options)), schema, overwrite=False)


class _Piece(InputPartition):
    """One range, on its way to a task."""

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(None)
        self.wanted: Final = wanted


def _rows(options: SourceOptions, schema: Any, piece: InputPartition) -> Iterator[Any]:
    if not isinstance(piece, _Piece):
        # Spark asks for one empty partition where a query has none.
        return
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for columns in RangeReader(options, piece.wanted).columns():
        yield record_batch(columns, piece.wanted.partition, arrow_schema)


class BatchReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options: Final = options
        self._schema: Final = schema
        self._bounds = Bounds()

    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        try:
            return [_Piece(one) for one in planner.batch_ranges(self._bounds)]
        finally:
            planner.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _rows(self._options, self._schema, partition)


class FilteringBatchReader(BatchReader):
    """Reads only where the records that a query wants can be; for who asks for it.

    Not by default, because of Spark (4.3.0): it keeps what was planned for one query of a table and
    uses it for the next.
      1. `orders = spark.read…load()`; `orders.where("offset < 9").count()` plans nine records
      2. `orders.count()` has no filter, so nobody is asked again, and counts nine
    So a table that was read this way may be used for one query only.
    """

    def pushFilters(self, filters: list[Any]) -> Iterable[Any]:  # noqa: N802
        """Take bounds out of the conditions; all of them stay Spark's to check."""
        self._bounds = bounds_of(filters)
        return filters


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans one batch after another, on the driver; in a task it only reads."""

    def __init__(self, options: SourceOptions, schema: Any) -> None:
        self._options: Final = options
        self._schema: Final = schema
        self._planner: Planner | None = None
        # Where the logs ended when they were last looked at.
        self._ends: Offsets | None = None
        # Where the logs ended when a query that stops at the end began.
        self._target: Offsets | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        planner = self._asking()
        planner.require_topics()
        found = planner.look()
        offsets = planner.at(self._options.start, found, STARTING)
        return StreamOffsets(offsets, found.topic_ids).stored()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if rows is None else ReadMaxRows(rows)

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        now = self._now()
        began = self._asking().began(read_stored(start), now.topic_ids)
        ends = dict(now.offsets)
        if self._target is not None:
            ends = {one: min(ends[one], self._target.get(one, began.get(one, 0))) for one in ends}
        for where in sorted(set(began) - set(ends)):
            self._asking().lost(f"{where}: the stream was at {began[where]}, and it is gone.")
        for where in ends:
            if ends[where] < began.get(where, 0):
                self._asking().lost(
                    f"{where}: the stream was at {began[where]}, and the log ends at {ends[where]}."
                )
        if isinstance(limit, ReadMaxRows):
            ends = limited(began, ends, limit.max_rows)
        return StreamOffsets(ends, now.topic_ids).stored()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = dict(self._now().offsets)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return where the logs end: less `endOffset`, that is the lag of the query."""
        return None if self._ends is None else StreamOffsets(self._ends).stored()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        pieces = self._asking().stream_ranges(read_stored(start), read_stored(end))
        return [_Piece(one) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _rows(self._options, self._schema, partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Let lag tools see how far the stream is (S3); a failure costs nothing but their view."""
        if not self._options.group_id:
            return
        try:
            self._asking().commit(read_stored(end).offsets)
        except OttlaError as error:
            LOG.warning("offsets of group %s: %s", self._options.group_id, error)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
            self._planner = None

    def _now(self) -> StreamOffsets:
        planner = self._asking()
        # First which topics there are: were one made anew in between, its end would stand beside
        # the old id, and nobody can read by that one.
        found = planner.look()
        self._ends = planner.ends(found.partitions)
        return StreamOffsets(self._ends, found.topic_ids)

    def _asking(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner
