"""ApiVersions, Metadata, DescribeTopicPartitions: what there is, and where.

All of it is read from one image, so that an answer does not contradict itself.

Nobody is asked who he is yet, so everybody is told that he may do everything.

Not here: changing anything, but for topics that are made because somebody asked for them.

V1  no version is told that is not served (but Produce 0–2; see the table)
V2  a leader whose stream to this broker broke a moment ago is not told as the leader: who lost it
    as well would be sent back there, and many clients do not ask again for a second
V3  whoever names topics is also told where a broker with a replica of them is that was just fenced:
    librdkafka mislays a partition for a second when one answer takes its broker away and names
    another leader. Whoever names none is not: those are tools, that ask every broker and wait
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.names import METADATA_TOPIC, is_internal, name_problem
from ottla.controller.port import NewTopic
from ottla.node.kafka.cluster import (
    CLUSTER_OPERATIONS,
    NO_BROKER,
    NOT_ASKED_FOR,
    broker_told,
    controller_told,
    reachable_brokers,
)
from ottla.node.kafka.features import finalized_features, supported_features
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, BrokerId
from ottla.proto.kafka.apis import API_TABLE, API_VERSIONS, ApiRow
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import ZERO_UUID
from ottla.proto.options import node

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE: Final = 3

# Bits by Kafka's numbers of operations: all that can be done with a topic.
TOPIC_OPERATIONS: Final = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
_BY_ID_SINCE: Final = 12

# The brokers that can be reached: a replica on any other is offline.
Up = frozenset[BrokerId]
_NOBODY: Final[Up] = frozenset()
# Longer than it takes to replace a leader that died, and not for ever: others may reach one that
# this broker does not (V2).
_NO_LEADER_S: Final = 1.0


# ── ApiVersions ───────────────────────────────────────────────────────────────────────────────


async def api_versions(broker: Broker, request: Request) -> dict[str, Any]:
    if request.version >= _SOFTWARE_SINCE and not software_of(request.body):
        return {"error_code": ErrorCode.INVALID_REQUEST, "api_keys": [], "throttle_time": 0}
    image = broker.controller.image
    return {
        "error_code": ErrorCode.NONE,
        "api_keys": _API_KEYS,
        "throttle_time": 0,
        "supported_features": supported_features(request.version),
        "finalized_features_epoch": image.version,
        "finalized_features": finalized_features(image),
        "zk_migration_ready": False,
    }


def unsupported_api_versions() -> dict[str, Any]:
    """Return the answer, in version 0, to a version of ApiVersions that is not served (KIP-511)."""
    return {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "api_keys": [_versions_told(API_VERSIONS)],
    }


def software_of(body: Message) -> str:
    """Return a client's program and its version, or nothing if it does not tell, or not rightly."""
    parts = (body.get("client_software_name", ""), body.get("client_software_version", ""))
    return "/".join(parts) if all(map(_SOFTWARE.fullmatch, parts)) else ""


def _versions_told(row: ApiRow) -> dict[str, int]:
    low = row.low if row.advertised_low is None else row.advertised_low
    return {"api_key": row.key, "min_version": low, "max_version": row.high}


_API_KEYS: Final = [_versions_told(row) for row in sorted(API_TABLE, key=lambda row: row.key)]


# ── Metadata ──────────────────────────────────────────────────────────────────────────────────


async def metadata(broker: Broker, request: Request) -> dict[str, Any]:
    body, version = request.body, request.version
    if refused := _contradiction(body, version):
        return _refused_metadata(body, refused)
    wanted = body.topics
    names = list(dict.fromkeys(topic.name for topic in wanted or () if topic.name is not None))
    given_ids = (topic.get("topic_id", ZERO_UUID) for topic in wanted or ())
    ids = list(dict.fromkeys(topic_id for topic_id in given_ids if topic_id != ZERO_UUID))
    refusals = {} if ids else await _create_missing(broker, names, request)
    # After it, so that what was just made is told.
    image = broker.controller.image
    reachable = reachable_brokers(image)
    up = frozenset(one.broker_id for one in reachable)
    lost = frozenset(one for one in up if _is_just_lost(broker, one))
    if wanted is None or (version == 0 and not wanted):
        topics = [_topic_told(topic, up, lost) for topic in image.topics.values()]
    elif ids:
        # Whoever names one topic by its id means all of them so; names beside ids are not read.
        topics = [_told_by_id(image, topic_id, up, lost) for topic_id in ids]
    else:
        topics = [_told_by_name(image, name, refusals.get(name), up, lost) for name in names]
    if body.get("include_topic_authorized_operations", False):
        for topic in topics:
            if topic["name"] is not None:
                topic["topic_authorized_operations"] = TOPIC_OPERATIONS
    told_brokers = reachable if not (names or ids) else _with_just_fenced(broker, reachable, topics)
    may_be_told = body.get("include_cluster_authorized_operations", False)
    return {
        "throttle_time": 0,
        "brokers": [broker_told(one, "node_id", request.listener) for one in told_brokers],
        "cluster_id": image.cluster_id,
        "controller_id": controller_told(image, broker.node_id),
        "topics": topics,
        "cluster_authorized_operations": CLUSTER_OPERATIONS if may_be_told else NOT_ASKED_FOR,
        "error_code": ErrorCode.NONE,
    }


def _is_just_lost(broker: Broker, broker_id: BrokerId) -> bool:
    lost_for_s = broker.lost_for_s(broker_id)
    return lost_for_s is not None and lost_for_s < _NO_LEADER_S


def _with_just_fenced(
    broker: Broker, reachable: list[BrokerInfo], topics: Iterable[dict[str, Any]]
) -> list[BrokerInfo]:
    """Return the brokers, and those just fenced that have replicas of these topics (V3)."""
    fenced = tuple(broker.just_fenced())
    if not fenced:
        return reachable
    parts = (part for topic in topics for part in topic["partitions"])
    holders = {one for part in parts for one in part["replica_nodes"]}
    return reachable + [one for one in fenced if one.broker_id in holders]


def _contradiction(body: Message, version: int) -> ErrorCode | None:
    """Return what is wrong with the whole question: ids before their time, or nothing named."""
    for topic in body.topics or ():
        has_id = topic.get("topic_id", ZERO_UUID) != ZERO_UUID
        if (has_id and version < _BY_ID_SINCE) or (not has_id and topic.name is None):
            return ErrorCode.INVALID_REQUEST
    return None


def _refused_metadata(body: Message, code: ErrorCode) -> dict[str, Any]:
    return {
        "throttle_time": 0,
        "brokers": [],
        "cluster_id": None,
        "controller_id": NO_BROKER,
        "topics": [
            _absent_told(code, topic.name or "", topic.get("topic_id", ZERO_UUID))
            for topic in body.topics
        ],
        "cluster_authorized_operations": NOT_ASKED_FOR,
        "error_code": code,
    }


async def _create_missing(
    broker: Broker, names: Iterable[str], request: Request
) -> dict[str, RequestError]:
    """Make the topics that are not there, if that is wanted on both sides; return the refusals.

    A client gets its topic with the first answer. (Kafka tells it to ask again.) The topics that
    brokers keep for themselves are made by whoever needs them, with options of their own.
    """
    is_on = broker.options.current.value_of(node.AUTO_CREATE_TOPICS)
    if not (is_on and request.body.get("allow_auto_topic_creation", True)):
        return {}
    missing = [
        name
        for name in names
        if name not in broker.controller.image.topics
        and name != METADATA_TOPIC
        and not is_internal(name)
        and name_problem(name) is None
    ]
    if not missing:
        return {}
    made = await broker.controller.create_topics(
        [NewTopic(name) for name in missing], validate_only=False, client=request.client
    )
    answers = zip(missing, made, strict=True)
    return {name: answer for name, answer in answers if isinstance(answer, RequestError)}


def _told_by_id(image: MetadataImage, topic_id: Any, up: Up, lost: Up) -> dict[str, Any]:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        return _absent_told(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
    return _topic_told(topic, up, lost)


def _told_by_name(
    image: MetadataImage, name: str, refused: RequestError | None, up: Up, lost: Up
) -> dict[str, Any]:
    topic = image.topic(name)
    if topic is not None:
        return _topic_told(topic, up, lost)
    if refused is not None:
        return _absent_told(refused.code, name)
    return _absent_told(_absence(name), name)


def _absence(name: str) -> ErrorCode:
    """Return why there is no topic of a name."""
    if name_problem(name):
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _absent_told(code: ErrorCode, name: str | None, topic_id: Any = ZERO_UUID) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": name is not None and is_internal(name),
        "partitions": [],
        "topic_authorized_operations": NOT_ASKED_FOR,
    }


def _topic_told(
    topic: TopicInfo, up: Up, lost: Up = _NOBODY, *, first: int = 0, count_max: int = INT32_MAX
) -> dict[str, Any]:
    partitions = topic.partitions[first : first + count_max]
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": is_internal(topic.name),
        "partitions": [
            _partition_told(index, one, up, lost) for index, one in enumerate(partitions, first)
        ],
        "topic_authorized_operations": NOT_ASKED_FOR,
    }


def _partition_told(index: int, partition: PartitionInfo, up: Up, lost: Up) -> dict[str, Any]:
    leader = None if partition.leader in lost else partition.leader
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leader is None else ErrorCode.NONE,
        "partition_index": index,
        "leader_id": NO_BROKER if leader is None else leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": partition.replicas,
        "isr_nodes": partition.isr,
        "eligible_leader_replicas": partition.elr,
        "last_known_elr": (),
        "offline_replicas": [one for one in partition.replicas if one not in up],
    }


# ── DescribeTopicPartitions ───────────────────────────────────────────────────────────────────


async def describe_topic_partitions(broker: Broker, request: Request) -> dict[str, Any]:
    """Tell topics page by page, in the order of their names, from where the cursor points."""
    body, image = request.body, broker.controller.image
    up = frozenset(one.broker_id for one in reachable_brokers(image))
    requested = {topic.name for topic in body.topics}
    cursor = body.get("cursor")
    if cursor is not None and _is_astray(cursor, requested):
        topics = [_absent_told(ErrorCode.INVALID_REQUEST, name) for name in sorted(requested)]
        return {"throttle_time": 0, "topics": topics, "next_cursor": None}
    first = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    limit = broker.options.current.value_of(node.MAX_REQUEST_PARTITIONS)
    room = max(1, min(body.response_partition_limit, limit))
    told: list[dict[str, Any]] = []
    for name in sorted(name for name in requested or image.topics if name >= first[0]):
        begin = first[1] if name == first[0] else 0
        if room == 0:
            return {"throttle_time": 0, "topics": told, "next_cursor": _cursor(name, begin)}
        page = _page(image, name, begin, room, up)
        told.append(page)
        room -= len(page["partitions"])
        end, topic = begin + len(page["partitions"]), image.topic(name)
        if topic is not None and end < len(topic.partitions):
            return {"throttle_time": 0, "topics": told, "next_cursor": _cursor(name, end)}
    return {"throttle_time": 0, "topics": told, "next_cursor": None}


def _is_astray(cursor: Message, requested: set[str]) -> bool:
    is_elsewhere = bool(requested) and cursor.topic_name not in requested
    return is_elsewhere or cursor.partition_index < 0


def _page(image: MetadataImage, name: str, first: int, room: int, up: Up) -> dict[str, Any]:
    topic = image.topic(name)
    told = (
        _topic_told(topic, up, first=first, count_max=room)
        if topic
        else _absent_told(_absence(name), name)
    )
    return {**told, "topic_authorized_operations": TOPIC_OPERATIONS}


def _cursor(name: str, index: int) -> dict[str, Any]:
    return {"topic_name": name, "partition_index": index}
