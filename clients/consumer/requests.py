"""Bodies of the requests that a consumer sends, and what their answers say, whatever the version.

Keys that a version does not have are passed over by the encoder, so one mapping serves all.

Not here: sending.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.consumer.protocol import partitions_by_topic
from ottla.clients.consumer.record import OffsetAndMetadata, OffsetAndTimestamp
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID

# From here on topics are named by their ids.
FETCH_IDS_FROM: Final = 13
# Version 10 names topics by ids; the answer of a broker is the same.
COMMIT_VERSION_MAX: Final = 9
OFFSET_FETCH_VERSION_MAX: Final = 9
_GROUPS_FROM: Final = 8
_CONSUMER_REPLICA: Final = -1
_NO_SESSION: Final = -1


class Ask(NamedTuple):
    """What is wanted of one partition."""

    partition: TopicPartition
    topic_id: UUID
    offset: int
    leader_epoch: int
    last_fetched_epoch: int


def fetch_fields(
    asks: Sequence[Ask],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    isolation_level: int,
    rack: str,
) -> dict[str, Any]:
    """Return a Fetch of all these, without a session."""
    topics: dict[str, dict[str, Any]] = {}
    for ask in asks:
        name = ask.partition.topic
        topic = topics.setdefault(name, {"topic": name, "topic_id": ask.topic_id, "partitions": []})
        topic["partitions"].append(
            {
                "partition": ask.partition.partition,
                "current_leader_epoch": ask.leader_epoch,
                "fetch_offset": ask.offset,
                "last_fetched_epoch": ask.last_fetched_epoch,
                "log_start_offset": -1,
                "partition_max_bytes": partition_max_bytes,
            }
        )
    return {
        "replica_id": _CONSUMER_REPLICA,
        "max_wait": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation_level,
        "session_id": 0,
        "session_epoch": _NO_SESSION,
        "topics": list(topics.values()),
        "forgotten_topics_data": [],
        "rack_id": rack,
    }


def list_offsets_fields(
    times: Mapping[TopicPartition, tuple[int, int]], isolation_level: int, timeout_ms: int
) -> dict[str, Any]:
    """Return a ListOffsets for (time, leader epoch) by partition."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": number,
                    "timestamp": times[TopicPartition(topic, number)][0],
                    "current_leader_epoch": times[TopicPartition(topic, number)][1],
                }
                for number in numbers
            ],
        }
        for topic, numbers in partitions_by_topic(times).items()
    ]
    return {
        "replica_id": _CONSUMER_REPLICA,
        "isolation_level": isolation_level,
        "topics": topics,
        "timeout": timeout_ms,
    }


def offsets_listed(answer: Message) -> dict[TopicPartition, tuple[int, OffsetAndTimestamp]]:
    """Return (error code, what was found) by partition; offset -1 means nothing so late."""
    return {
        TopicPartition(topic.name, one.partition_index): (
            one.error_code,
            OffsetAndTimestamp(one.offset, one.timestamp, one.get("leader_epoch", -1)),
        )
        for topic in answer.topics
        for one in topic.partitions
    }


def commit_fields(
    identity: Mapping[str, Any], offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[str, Any]:
    """Return an OffsetCommit."""
    return {
        "group_id": identity["group_id"],
        "generation_id_or_member_epoch": identity["generation_id"],
        "member_id": identity["member_id"],
        "group_instance_id": identity["group_instance_id"],
        "retention_time": -1,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    _commit_row(number, offsets[TopicPartition(topic, number)])
                    for number in numbers
                ],
            }
            for topic, numbers in partitions_by_topic(offsets).items()
        ],
    }


def _commit_row(number: int, offset: OffsetAndMetadata) -> dict[str, Any]:
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "committed_metadata": offset.metadata,
    }


def commit_errors(answer: Message) -> dict[TopicPartition, int]:
    """Return the error code of each partition, good or bad."""
    return {
        TopicPartition(topic.name, one.partition_index): one.error_code
        for topic in answer.topics
        for one in topic.partitions
    }


def offset_fetch_fields(
    group_id: str, partitions: Iterable[TopicPartition] | None, *, stable: bool = True
) -> dict[str, Any]:
    """Return an OffsetFetch for one group; None: all that it has committed."""
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": numbers}
            for topic, numbers in partitions_by_topic(partitions).items()
        ]
    group = {"group_id": group_id, "topics": topics, "member_id": None, "member_epoch": -1}
    return {"group_id": group_id, "topics": topics, "groups": [group], "require_stable": stable}


class Committed(NamedTuple):
    """What a group has committed, or why that cannot be told."""

    code: ErrorCode
    offsets: dict[TopicPartition, OffsetAndMetadata]


def committed_of(answer: Message) -> Committed:
    """Return offsets of partitions that have one; the first error is told for all."""
    told = answer.get("groups")
    group = told[0] if told else answer
    code = _code(group.get("error_code", 0))
    offsets = {}
    for topic in group.topics or ():
        for one in topic.partitions:
            if one.error_code and code is ErrorCode.NONE:
                code = _code(one.error_code)
            elif one.committed_offset >= 0:
                epoch = one.get("committed_leader_epoch", -1)
                offsets[TopicPartition(topic.name, one.partition_index)] = OffsetAndMetadata(
                    one.committed_offset, one.metadata or "", epoch
                )
    return Committed(code, offsets)


def leave_fields(identity: Mapping[str, Any], reason: str) -> dict[str, Any]:
    member = {
        "member_id": identity["member_id"],
        "group_instance_id": identity["group_instance_id"],
        "reason": reason[:255],
    }
    return {
        "group_id": identity["group_id"],
        "member_id": identity["member_id"],
        "members": [member],
    }


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
