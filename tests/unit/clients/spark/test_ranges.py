"""Ranges are cut and limited without losing a record or reading one twice."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.clients.spark.filters import Bounds
from ottla.clients.spark.ranges import (
    OffsetRange,
    StreamOffsets,
    limited,
    made_anew,
    read_stored,
    split,
)
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import UUID

_ranges = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=6).map(
    lambda found: [
        OffsetRange(TopicPartition("t", number), start, start + size)
        for number, (start, size) in enumerate(found)
    ]
)


@given(_ranges, st.integers(1, 40), st.none() | st.integers(1, 100))
def test_the_pieces_of_a_split_are_the_ranges_again(
    ranges: list[OffsetRange], wanted: int, longest: int | None
) -> None:
    pieces = split(ranges, min_partitions=wanted, max_records=longest)
    for one in ranges:
        own = [piece for piece in pieces if piece.partition == one.partition]
        read = [offset for piece in own for offset in range(piece.start, piece.end)]
        assert read == list(range(one.start, one.end))
    assert all(piece.size for piece in pieces)
    assert len(pieces) >= min(wanted, sum(one.size for one in ranges))
    assert longest is None or all(piece.size <= longest for piece in pieces)


def test_without_a_wish_there_is_one_piece_for_each_partition() -> None:
    ranges = [OffsetRange(TopicPartition("t", n), 0, 10 * n) for n in range(3)]
    assert split(ranges) == ranges[1:]


@given(_ranges, st.integers(1, 500))
def test_a_limited_batch_takes_the_limit_or_all_there_is(
    ranges: list[OffsetRange], rows: int
) -> None:
    start = {one.partition: one.start for one in ranges}
    end = {one.partition: one.end for one in ranges}
    there = sum(one.size for one in ranges)
    got = limited(start, end, rows)
    assert sum(got[one] - start[one] for one in got) == min(rows, there)
    assert all(start[one] <= got[one] <= end[one] for one in end)
    waiting = [one for one in ranges if one.size]
    if rows >= len(waiting):
        assert all(got[one.partition] > one.start for one in waiting)


def test_a_partition_that_the_stream_does_not_know_yet_begins_at_zero() -> None:
    old, new = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limited({old: 10}, {old: 10, new: 8}, 5) == {old: 10, new: 5}


OLD, NEW = UUID(int=1), UUID(int=2)


def test_offsets_come_back_from_a_checkpoint_as_they_went() -> None:
    offsets = {TopicPartition("b", 10): 3, TopicPartition("a", 0): 2**40}
    went = StreamOffsets(offsets, {"a": OLD})
    stored = went.stored()
    assert read_stored(json.loads(json.dumps(stored))) == went
    assert stored == {"a": {"0": 2**40}, "b": {"10": 3}, "@topic-ids": {"a": str(OLD)}}
    assert list(stored) == ["a", "b", "@topic-ids"]


def test_offsets_of_earlier_releases_have_no_ids_and_are_read() -> None:
    found = read_stored({"a": {"0": 7}})
    assert found == StreamOffsets({TopicPartition("a", 0): 7})
    assert found.stored() == {"a": {"0": 7}}
    # By name, as there is nothing else to know it by.
    assert found.of_same_topics({"a": NEW}) == found.offsets


def test_offsets_of_a_topic_that_was_made_anew_mean_nothing_in_the_new_one() -> None:
    same, other = TopicPartition("a", 0), TopicPartition("b", 0)
    was = StreamOffsets({same: 7, other: 5}, {"a": OLD, "b": OLD})
    assert made_anew(was.topic_ids, {"a": OLD, "b": NEW}) == ["b"]
    assert was.of_same_topics({"a": OLD, "b": NEW}) == {same: 7}
    # One that is gone, or whose id is not told, is no other one.
    assert was.of_same_topics({"a": OLD}) == was.offsets


def test_pieces_know_the_topic_that_was_planned() -> None:
    whole = OffsetRange(TopicPartition("a", 0), 0, 10, NEW)
    assert {one.topic_id for one in split([whole], min_partitions=3)} == {NEW}
    narrowed = Bounds(offset_low=2).narrowed(whole)
    assert narrowed is not None
    assert narrowed.topic_id == NEW
