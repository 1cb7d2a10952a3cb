"""What the sink tells the driver, without Spark around it."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark import sink as module
from ottla.clients.spark.options import read_sink_options
from ottla.clients.spark.sink import BatchWriter, StreamWriter, Written

SCHEMA = StructType([StructField("value", BinaryType())])
STREAM = "id-of-the-stream"


class FakeTask:
    """A task that runs inside `foreachBatch`, or for a stream: both see the stream's id."""

    def partitionId(self) -> int:
        return 0

    def taskAttemptId(self) -> int:
        return 7

    def getLocalProperty(self, name: str) -> str | None:
        return STREAM if name == "sql.streaming.queryId" else None


class FakeTaskContext:
    """Where a task finds itself."""

    @staticmethod
    def get() -> FakeTask:
        return FakeTask()


class FakeProducer:
    """Prepares without a cluster."""

    def __init__(self, config: dict[str, str]) -> None:
        self._name = config["transactional.id"]

    def __enter__(self) -> FakeProducer:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def init_transactions(self) -> None:
        pass

    begin = flush = init_transactions

    def prepare(self) -> PreparedTransaction:
        return PreparedTransaction(self._name, 1, 0)


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TaskContext", FakeTaskContext)
    monkeypatch.setattr(module, "Producer", FakeProducer)


def _writer(kind: Any) -> Any:
    options = {
        "kafka.bootstrap.servers": "nowhere:1",
        "topic": "t",
        "exactlyOnce": "true",
        "transactionalIdPrefix": "sink",
    }
    return kind(read_sink_options(options), SCHEMA, overwrite=False)


def _query(writer: Any) -> str:
    written = writer.write(iter(()))
    assert isinstance(written, Written)
    return written.query


def test_writes_inside_foreach_batch_are_not_taken_for_one_that_is_repeated() -> None:
    first, second = _writer(BatchWriter), _writer(BatchWriter)
    assert _query(first) == _query(first)
    assert len({_query(first), _query(second), STREAM}) == 3


def test_batches_of_a_stream_are_known_by_its_id() -> None:
    assert _query(_writer(StreamWriter)) == _query(_writer(StreamWriter)) == STREAM
