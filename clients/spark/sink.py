"""Writes rows to topics: at least once, or exactly once.

At least once, a task sends its rows with an idempotent producer and has done its work when all are
acknowledged. A task that Spark runs again, or a batch that a restarted stream does again, sends its
rows again: the topic then has them twice.

Exactly once (`exactlyOnce=true`), a task sends them in a transaction, prepares it and reports its
name; the driver decides which of them count (`decisions.py`).

W1  a task succeeds only if every row of it was acknowledged as `acks` asks for
W2  the rows of one task are sent in their order; with the same key they stay so
W3  a column that cannot be written is refused when the query is planned
W4  a writer begins a round when it is sent to tasks. Spark makes another one to commit with, which
    takes the number of the round from what the tasks report
W5  a batch of a stream is known by the stream's id and its number, a write of a batch query by an
    id of its own. Inside `foreachBatch` tasks of a batch query see the stream's id: it is not
    theirs, or every write after the first would look like one that is repeated
W6  who begins a round says who it is, if that can be told by then: a stream's id is in its
    checkpoint, which the driver can read where it is a directory of its machine. Elsewhere the
    tasks tell it, and it is the commit that is refused

Not here: options (`options.py`).
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.client import Producer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark.decider import Decider
from ottla.clients.spark.decisions import Claim, task_id
from ottla.clients.spark.errors import WriteFailedError
from ottla.clients.spark.options import SinkOptions
from ottla.proto.errors import ConfigError, ensure

LOG: Final = logging.getLogger("ottla.spark")
# What Spark calls the id of a stream among the properties of its tasks.
_QUERY_ID: Final = "sql.streaming.queryId"
# Which types a column may have, and whether it must be there.
COLUMNS: Final = {
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote: how many records, and up to which offset of each partition."""

    count: int = 0
    # "topic-partition" → offset of the last record.
    last_offsets: dict[str, int] = field(default_factory=dict)
    # Exactly once: the transaction, if there was anything to write, the round and the query.
    prepared: str | None = None
    round_number: int = 0
    query: str = ""


class _TopicWriter:
    """What both writers do: check columns on the driver, send rows in tasks."""

    def __init__(self, options: SinkOptions, schema: Any, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("A topic cannot be overwritten: use mode append.")
        self._options: Final = options
        self._wants_acks: Final = options.client.get("acks") != "0"
        # Of this write. A stream has an id that survives its restarts (W5).
        self._query: Final = uuid.uuid4().hex
        # 0 until it has begun (W4).
        self._round = 0
        _require_columns(schema, options.topic)

    def __getstate__(self) -> dict[str, Any]:
        # Spark sends the writer twice, as part of what tasks run, and by itself.
        if self._options.prefix is not None and not self._round:
            with Decider(self._options) as decider:
                self._round = decider.begin(self._claim(self._known_query()))
        return self.__dict__

    def _claim(self, query: str) -> Claim:
        options = self._options
        is_stream = isinstance(self, StreamWriter)
        return Claim(query, is_stream, options.takes_over, options.accepts)

    def _known_query(self) -> str:
        """Return the id of the query, as far as the driver knows it (W6)."""
        return self._query

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        if self._options.prefix is None:
            with Producer(dict(self._options.client)) as producer:
                return self._send(producer, iterator)
        return self._write_once(iterator, self._options.prefix)

    def _write_once(self, iterator: Iterator[Any], prefix: str) -> Written:
        """Write in a transaction, and prepare it; one that fails is aborted by closing it."""
        task = TaskContext.get()
        ensure(task is not None, "rows are written in a task of Spark")
        attempt = f"{task.partitionId()}-{task.taskAttemptId()}"
        config = {
            **self._options.client,
            "transactional.id": task_id(prefix, self._round, attempt),
            "transaction.two.phase.commit.enable": "true",
        }
        with Producer(config) as producer:
            producer.init_transactions()
            producer.begin()
            written = self._send(producer, iterator)
            prepared = producer.prepare()
        written.prepared = None if prepared is None else str(prepared)
        written.round_number = self._round
        written.query = self._query_of(task)
        return written

    def _query_of(self, task: TaskContext) -> str:
        """Return under which id the rows are decided."""
        return self._query

    def _send(self, producer: Producer, iterator: Iterator[Any]) -> Written:
        written = Written()
        problems = list[Report]()

        def delivered(report: Report) -> None:
            # With acks=0 nobody tells, and nothing was promised.
            if report.state is not State.OK and self._wants_acks:
                problems.append(report)
                return
            written.count += 1
            if report.offset is not None:
                place = f"{report.topic}-{report.partition}"
                last = written.last_offsets.get(place, -1)
                written.last_offsets[place] = max(report.offset, last)

        for batch in iterator:
            for topic, value, key, partition, headers in _rows(batch, self._options.topic):
                producer.send(
                    topic,
                    value,
                    key=key,
                    partition=partition,
                    headers=headers,
                    on_delivery=delivered,
                )
            if problems:
                break
        producer.flush()
        if problems:
            raise WriteFailedError(
                f"{len(problems)} records were not acknowledged, the first of them for "
                f"{problems[0].topic}: {problems[0].error}"
            )
        return written

    def _decide(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        """See to it that these rows are committed, or those that were decided before them."""
        written = [one for one in messages if isinstance(one, Written)]
        if self._options.prefix is None or not written:
            return
        with Decider(self._options) as decider:
            first = written[0]
            claim = self._claim(first.query)
            if not decider.commit(first.round_number, claim, batch, _prepared(written)):
                LOG.warning("batch %d was written before; these rows of it are aborted.", batch)

    def _undo(self, messages: Sequence[WriterCommitMessage | None]) -> bool:
        """Abort these rows, unless it is decided that they count; return whether that is done."""
        written = [one for one in messages if isinstance(one, Written)]
        if self._options.prefix is None:
            return False
        # No task reported anything: some may still be at work.
        number = written[0].round_number if written else self._round
        if number:
            with Decider(self._options) as decider:
                decider.abort(number, _prepared(written))
        return True


def _prepared(written: Sequence[Written]) -> list[PreparedTransaction]:
    return [PreparedTransaction.parse(one.prepared) for one in written if one.prepared]


_Row = tuple[str, bytes | None, bytes | None, int | None, list[tuple[str, bytes | None]]]


def _rows(batch: Any, topic: str | None) -> Iterator[_Row]:
    """Yield topic, value, key, partition and headers of each row."""
    names = batch.schema.names
    count = batch.num_rows

    def column(name: str) -> list[Any]:
        return batch.column(name).to_pylist() if name in names else [None] * count

    topics = column("topic") if topic is None else [topic] * count
    rows = zip(
        topics, column("value"), column("key"), column("partition"), column("headers"), strict=True
    )
    for where, value, key, partition, headers in rows:
        if where is None:
            raise ConfigError("The column topic is null in a row, and the option topic is not set.")
        pairs = [(one["key"], one["value"]) for one in headers or ()]
        yield where, _bytes(value), _bytes(key), partition, pairs


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _require_columns(schema: Any, topic: str | None) -> None:
    types = {one.name: one.dataType.simpleString() for one in schema.fields}
    problems = list[str]()
    for name, kind in types.items():
        allowed = COLUMNS.get(name)
        if allowed is None:
            problems.append(f"{name} is no column of a topic: {', '.join(COLUMNS)} are.")
        elif kind not in allowed:
            problems.append(f"The column {name} must be {' or '.join(allowed)}, not {kind}.")
    if "value" not in types:
        problems.append("A column named value is needed.")
    if "topic" not in types and topic is None:
        problems.append("Where to? Set the option topic, or make a column of this name.")
    if problems:
        raise ConfigError(*problems)


class BatchWriter(_TopicWriter, DataSourceArrowWriter):
    """`df.write.format("ottla").mode("append")`."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        self._decide(messages, 0)
        LOG.info("%d records were written.", _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._undo(messages):
            LOG.warning("the write failed; %d records of it are in the topic.", _total(messages))


class StreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """`df.writeStream.format("ottla")`."""

    def _query_of(self, task: TaskContext) -> str:
        return task.getLocalProperty(_QUERY_ID) or self._query

    def _known_query(self) -> str:
        return stream_id(self._options.checkpoint)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._decide(messages, batchId)
        LOG.info("batch %d: %d records were written.", batchId, _total(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if not self._undo(messages):
            LOG.warning(
                "batch %d failed; %d records of it are in the topic.", batchId, _total(messages)
            )


def stream_id(checkpoint: str | None) -> str:
    """Return the id that Spark keeps in a checkpoint; "" if that cannot be read from here."""
    place = (checkpoint or "").removeprefix("file://").removeprefix("file:")
    if not place:
        return ""
    try:
        told = json.loads((Path(place) / "metadata").read_bytes())
    except (OSError, ValueError):
        return ""
    found = told.get("id") if isinstance(told, dict) else None
    return found if isinstance(found, str) else ""


def _total(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(one.count for one in messages if isinstance(one, Written))
