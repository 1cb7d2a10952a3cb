"""What the sink tells the driver, without Spark around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.spark import sink as module
from ottla.clients.spark.decisions import BatchName, Claim
from ottla.clients.spark.options import read_sink_options
from ottla.clients.spark.sink import BatchWriter, StreamWriter, Written, stream_id

SCHEMA = StructType([StructField("value", BinaryType())])
STREAM = "id-of-the-stream"


class FakeTask:
    """A task that runs inside `foreachBatch`, or for a stream: both see the stream's id."""

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return 0

    def taskAttemptId(self) -> int:  # noqa: N802 - Spark's name
        return 7

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802 - Spark's name
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


def _writer(kind: Any, **more: str) -> Any:
    options = {
        "kafka.bootstrap.servers": "nowhere:1",
        "topic": "t",
        "exactlyOnce": "true",
        "transactionalIdPrefix": "sink",
        **more,
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


def test_the_id_of_a_stream_is_read_from_its_checkpoint_where_that_is_a_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "metadata").write_text('{"id":"6ccd0ff6-f1ec"}')
    for place in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert stream_id(place) == "6ccd0ff6-f1ec"
    for content in ('{"id": 7}', "[]", "", "\0"):
        (tmp_path / "metadata").write_text(content)
        assert stream_id(str(tmp_path)) == ""
    for unknown in (None, "", "s3a://bucket/checkpoint", str(tmp_path / "nothing")):
        assert stream_id(unknown) == ""


class FakeDecider:
    """Remembers who began, and what it was told to abort."""

    aborted: ClassVar = list[tuple[int, int]]()
    claims: ClassVar = list[Claim]()

    def __init__(self, options: object) -> None:
        pass

    def __enter__(self) -> FakeDecider:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, claim: Claim) -> int:
        self.claims.append(claim)
        return 4

    def abort(self, number: int, prepared: list[PreparedTransaction]) -> None:
        self.aborted.append((number, len(prepared)))


def test_who_begins_a_round_says_which_loss_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Decider", FakeDecider)
    FakeDecider.claims.clear()
    _writer(StreamWriter, acceptLostBatch="q:7").__getstate__()
    _writer(StreamWriter).__getstate__()
    assert [one.accepts for one in FakeDecider.claims] == [BatchName("q", 7), None]


def test_a_round_is_cleaned_up_though_no_task_of_it_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "Decider", FakeDecider)
    FakeDecider.aborted.clear()
    writer = _writer(BatchWriter)
    writer.abort([])
    assert FakeDecider.aborted == [], "it has not begun"
    writer.__getstate__()
    writer.abort([None])
    assert FakeDecider.aborted == [(4, 0)]
    _writer(StreamWriter).abort([Written(1, {}, "1:0:sink/7/0-1", 7, "q")], 3)
    assert FakeDecider.aborted == [(4, 0), (7, 1)]
