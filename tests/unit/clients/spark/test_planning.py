"""Where a batch of a stream begins when a topic of that name is another one; nobody is asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.clients.spark.errors import DataLossError
from ottla.clients.spark.options import read_source_options
from ottla.clients.spark.planning import Planner
from ottla.clients.spark.ranges import OffsetRange, StreamOffsets
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import UUID

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = UUID(int=1), UUID(int=2)


@contextmanager
def _planner(fails: str) -> Iterator[Planner]:
    given = {"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", "failOnDataLoss": fails}
    planner = Planner(read_source_options(given, is_stream=True))
    try:
        yield planner
    finally:
        planner.close()


def test_a_topic_that_was_made_anew_is_told_with_where_the_stream_was() -> None:
    start = StreamOffsets({FIRST: 5, SECOND: 3}, {"t": OLD})
    told = (
        f"t: the topic was deleted and made anew \\(id {OLD}, now {NEW}\\): the stream was at 5 in "
        "partition 0, 3 in partition 1, and what it had not read of the old topic is gone"
    )
    with _planner("true") as planner, pytest.raises(DataLossError, match=told):
        planner.began(start, {"t": NEW})


def test_a_sentence_does_not_grow_with_the_partitions_of_a_topic() -> None:
    start = StreamOffsets({TopicPartition("t", n): n for n in range(1000)}, {"t": OLD})
    with _planner("true") as planner, pytest.raises(DataLossError, match="partition 4, …, and"):
        planner.began(start, {"t": NEW})


def test_a_batch_across_two_topics_of_one_name_is_told() -> None:
    start, end = StreamOffsets({FIRST: 5}, {"t": OLD}), StreamOffsets({FIRST: 9}, {"t": NEW})
    told = f"t: the batch begins in the topic with the id {OLD} and ends in the one with the id"
    with _planner("true") as planner, pytest.raises(DataLossError, match=told):
        planner.stream_ranges(start, end)


def test_who_does_not_mind_the_loss_reads_the_new_topic_from_its_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = StreamOffsets({FIRST: 5}, {"t": OLD})
    end = StreamOffsets({FIRST: 9}, {"t": NEW})
    with _planner("false") as planner, caplog.at_level(logging.WARNING, logger="ottla.spark"):
        assert planner.began(start, end.topic_ids) == {}
        assert planner.stream_ranges(start, end) == [OffsetRange(FIRST, 0, 9, NEW)]
    assert "was deleted and made anew" in caplog.text


def test_a_checkpoint_without_ids_is_gone_on_with_by_name() -> None:
    start, end = StreamOffsets({FIRST: 5}), StreamOffsets({FIRST: 9}, {"t": NEW})
    with _planner("true") as planner:
        assert planner.stream_ranges(start, end) == [OffsetRange(FIRST, 5, 9, NEW)]
