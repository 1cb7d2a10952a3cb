from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.encoding import decode_topic, encode_topic
from ottla.controller.image import PartitionInfo, TopicInfo
from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import INT32_MAX, BrokerId, LeaderEpoch
from tests.unit.controller.metadata import topic_id

_brokers = st.integers(0, INT32_MAX).map(BrokerId)
_lists = st.lists(_brokers, max_size=5).map(tuple)
_texts = st.text(st.characters(exclude_categories=["Cs"]))
_partitions = st.builds(
    PartitionInfo,
    st.lists(_brokers, min_size=1, max_size=5).map(tuple),
    _lists,
    st.none() | _brokers,
    st.integers(0, INT32_MAX).map(LeaderEpoch),
    st.integers(0, INT32_MAX),
    _lists,
    st.booleans(),
    st.booleans(),
    st.integers(-1, INT32_MAX).map(LeaderEpoch),
)
_topics = st.builds(
    TopicInfo,
    st.just("a"),
    st.integers(0, 99).map(topic_id),
    st.lists(_partitions, min_size=1, max_size=4).map(tuple),
    st.dictionaries(_texts, _texts, max_size=3),
)
_SEVEN = (BrokerId(7),)
_ONE_REPLICA = PartitionInfo(_SEVEN, _SEVEN, BrokerId(7), LeaderEpoch(3), 4, elr=_SEVEN)


@settings(deadline=None)
@given(_topics)
def test_a_topic_is_read_as_it_was_written(topic: TopicInfo) -> None:
    assert decode_topic("a", encode_topic(topic)) == topic


@settings(deadline=None)
@given(_topics, st.data())
def test_a_topic_cut_short_is_refused(topic: TopicInfo, data: st.DataObject) -> None:
    encoded = encode_topic(topic)
    size = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CorruptionError):
        decode_topic("a", encoded[:size])


@settings(deadline=None)
@given(_topics, st.binary(min_size=1))
def test_a_topic_with_more_behind_it_is_refused(topic: TopicInfo, more: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_topic("a", encode_topic(topic) + more)


@settings(deadline=None)
@given(st.binary())
def test_garbage_raises_nothing_but_a_storage_error(data: bytes) -> None:
    with suppress(StorageError):
        decode_topic("a", data)


def test_a_count_beyond_the_value_is_refused_before_anything_is_made() -> None:
    with pytest.raises(CorruptionError, match="ends too early"):
        decode_topic("a", b"\x01" + bytes(16) + b"\xff\xff\xff\xff")


def test_a_later_format_is_named_in_a_sentence() -> None:
    with pytest.raises(StorageError, match=r"format 2, .* reads formats up to 1") as caught:
        decode_topic("a", b"\x02anything")
    assert not isinstance(caught.value, CorruptionError)


def test_a_topic_without_partitions_or_replicas_is_refused() -> None:
    head = b"\x01" + bytes(16) + bytes(4)
    with pytest.raises(CorruptionError, match="no partitions"):
        decode_topic("a", head + bytes(4))
    with pytest.raises(CorruptionError, match="no replicas"):
        decode_topic("a", head + b"\0\0\0\x01" + bytes(23))


def test_flags_that_nobody_knows_are_refused() -> None:
    topic = TopicInfo("a", topic_id(1), (_ONE_REPLICA,), {})
    data = bytearray(encode_topic(topic))
    # Behind the flags stand three sizes and three ids.
    data[-19] |= 4
    with pytest.raises(CorruptionError, match="flags"):
        decode_topic("a", bytes(data))
