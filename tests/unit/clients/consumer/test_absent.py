"""What a consumer is to read and the cluster does not have is told once."""

from __future__ import annotations

from ottla.clients.consumer.absent import Absent
from ottla.clients.consumer.positions import Bookmark
from ottla.clients.metadata import MetadataCache, PartitionInfo, TopicInfo
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.uuids import ZERO_UUID


def _cluster(*topics: str) -> MetadataCache:
    """Return a cluster with these topics of one partition each."""
    metadata = MetadataCache(max_age_ms=1000, backoff_ms=100)
    for name in topics:
        metadata.topics[name] = TopicInfo(name, ZERO_UUID, (PartitionInfo(name, 0, 1, 0),))
    return metadata


def test_a_topic_that_is_missing_is_told_once_and_again_if_it_goes() -> None:
    absent, there, gone = Absent(), _cluster("orders"), _cluster()
    gone.errors["orders"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for _ in range(2):
        told = [absent.news(gone, ["orders"], ()) for _ in range(3)]
        assert told == [["there is no topic orders; it is read as soon as it is made"], [], []]
        assert absent.news(there, ["orders"], ()) == []


def test_a_topic_of_which_nothing_is_known_yet_is_not_called_missing() -> None:
    metadata = _cluster()
    assert Absent().news(metadata, ["orders"], ()) == []
    metadata.errors["orders"] = ErrorCode.LEADER_NOT_AVAILABLE
    assert Absent().news(metadata, ["orders"], ()) == []


def test_a_partition_that_is_missing_is_told_with_how_many_there_are() -> None:
    mine = [Bookmark(TopicPartition("orders", number)) for number in (0, 1)]
    (told,) = Absent().news(_cluster("orders"), (), mine)
    assert told.startswith("there is no partition orders-1, and orders has 1, numbered from 0;")


def test_a_topic_of_assigned_partitions_is_told_once_for_all_of_them() -> None:
    metadata = _cluster()
    metadata.errors["orders"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    mine = [Bookmark(TopicPartition("orders", number)) for number in (0, 1)]
    assert len(Absent().news(metadata, (), mine)) == 1
