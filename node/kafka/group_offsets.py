"""OffsetCommit, OffsetFetch, OffsetDelete: how far a group has come.

An offset is told to be committed only after it is, on as many replicas as `__consumer_offsets` asks
for; and it is shown only from then on.

As in Kafka any offset may be committed, also one that no record has: a consumer that starts there
finds out. The partition has to exist.

Not here: whether a member may commit (`node/groups/group.py`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import MetadataImage
from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger, subscribed_topics
from ottla.node.groups.offsets import Changes, Offsets, Place
from ottla.node.groups.records import OffsetValue
from ottla.node.groups.words import State
from ottla.node.groups.writing import into
from ottla.node.kafka.pauses import with_pauses
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT64_MAX, NO_EPOCH
from ottla.proto.kafka.message import Message
from ottla.proto.options import node

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_BY_ID_SINCE: Final = 10
_NO_GROUP_SINCE: Final = 9
_MANY_GROUPS_SINCE: Final = 8
_GROUP_ERROR_SINCE: Final = 2
_NO_OFFSET: Final = -1
_DEFAULT_RETENTION: Final = -1
_CONSUMERS: Final = "consumer"

# Topic as it was named, index in the request's order, and what is wrong with it.
Judged = list[tuple[Message, list[tuple[Message, ErrorCode | None]]]]


def _topic_name(image: MetadataImage, topic: Message, *, by_id: bool) -> str | None:
    """Return the name of a topic that exists, or None."""
    if by_id:
        return image.topic_names.get(topic.topic_id)
    name: str = topic.name
    return name if name in image.topics else None


def _topic_told(topic: Message, *, by_id: bool) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if by_id else {"name": topic.name}


# ── OffsetCommit ──────────────────────────────────────────────────────────────────────────────


async def offset_commit(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    by_id = request.version >= _BY_ID_SINCE
    found = judged(broker, body, by_id=by_id)
    code: ErrorCode | None
    try:
        ledger = broker.groups.ledger_of(body.group_id)
        group = _group_to_commit(ledger, request)
        code = _may_commit(broker, group, body)
    except RequestError as refusal:
        code = refusal.code
    else:
        changes = changes_of(broker, body, found, by_id=by_id)
        if code is None and changes:
            ledger.groups.setdefault(group.group_id, group)
            code = await _written(ledger, group.group_id, changes)
    topics = [
        {
            **_topic_told(topic, by_id=by_id),
            "partitions": [
                {
                    "partition_index": one.partition_index,
                    "error_code": wrong or code or ErrorCode.NONE,
                }
                for one, wrong in partitions
            ],
        }
        for topic, partitions in found
    ]
    return {"throttle_time": 0, "topics": topics}


def judged(broker: Broker, body: Message, *, by_id: bool) -> Judged:
    """Return the partitions of a commit, each with what is wrong with it."""
    image = broker.controller.image
    room = broker.options.current.value_of(node.OFFSET_METADATA_MAX_BYTES)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found: Judged = []
    for topic in body.topics:
        name = _topic_name(image, topic, by_id=by_id)
        count = 0 if name is None else len(image.topics[name].partitions)
        partitions: list[tuple[Message, ErrorCode | None]] = []
        for one in topic.partitions:
            wrong: ErrorCode | None = None
            if name is None:
                wrong = unknown
            elif not 0 <= one.partition_index < count:
                wrong = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len((one.committed_metadata or "").encode()) > room:
                wrong = ErrorCode.OFFSET_METADATA_TOO_LARGE
            partitions.append((one, wrong))
        found.append((topic, partitions))
    return found


def _group_to_commit(ledger: Ledger, request: Request) -> Group:
    body = request.body
    group = ledger.groups.get(body.group_id)
    if group is not None:
        return group
    if body.generation_id_or_member_epoch < 0:
        # Nobody's group: somebody keeps offsets here and assigns partitions by himself.
        return Group(body.group_id)
    is_known = request.version >= _NO_GROUP_SINCE
    raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION)


def _may_commit(broker: Broker, group: Group, body: Message) -> ErrorCode | None:
    code = group.commit_refusal(
        body.member_id,
        body.get("group_instance_id"),
        body.generation_id_or_member_epoch,
        broker.clock.monotonic_ms(),
    )
    return None if code is ErrorCode.NONE else code


def changes_of(
    broker: Broker, body: Message, found: Judged, *, by_id: bool
) -> dict[tuple[str, int], OffsetValue]:
    """Return what a commit changes: the partitions that nothing is wrong with."""
    image, now_ms = broker.controller.image, broker.clock.now_ms()
    kept_ms = body.get("retention_time", _DEFAULT_RETENTION)
    # Who keeps it for longer than there is time keeps it for ever.
    until_ms = max(0, min(now_ms + kept_ms, INT64_MAX))
    expire_ms = None if kept_ms == _DEFAULT_RETENTION else until_ms
    changes: dict[tuple[str, int], OffsetValue] = {}
    for topic, partitions in found:
        name = _topic_name(image, topic, by_id=by_id)
        for one, wrong in partitions:
            if name is not None and wrong is None:
                changes[name, one.partition_index] = OffsetValue(
                    offset=one.committed_offset,
                    leader_epoch=one.get("committed_leader_epoch", NO_EPOCH),
                    metadata=one.committed_metadata or "",
                    commit_ms=now_ms,
                    expire_ms=expire_ms,
                )
    return changes


async def _written(ledger: Ledger, group_id: str, changes: Changes) -> ErrorCode | None:
    """Write, and wait until it is committed or nobody knows."""
    future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
    ledger.commit(group_id, changes, into(future))
    code = await future
    is_large = code is ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if is_large else code


# ── OffsetFetch ───────────────────────────────────────────────────────────────────────────────


async def offset_fetch(broker: Broker, request: Request) -> dict[str, Any]:
    body, version = request.body, request.version
    if version >= _MANY_GROUPS_SINCE:
        groups = [
            {"group_id": one.group_id, **_fetched(broker, one, request)}
            async for one in with_pauses(body.groups)
        ]
        return {"throttle_time": 0, "groups": groups}
    return {"throttle_time": 0, **_fetched(broker, body, request)}


def _fetched(broker: Broker, asked: Message, request: Request) -> dict[str, Any]:
    version, is_stable = request.version, request.body.get("require_stable", False)
    by_id = version >= _BY_ID_SINCE
    image = broker.controller.image
    try:
        ledger = broker.groups.ledger_of(asked.group_id)
    except RequestError as refusal:
        if version >= _GROUP_ERROR_SINCE:
            return {"topics": [], "error_code": refusal.code}
        topics = [
            {
                **_topic_told(topic, by_id=by_id),
                "partitions": [
                    _offset_told(index, None, refusal.code) for index in topic.partition_indexes
                ],
            }
            for topic in asked.topics or ()
        ]
        return {"topics": topics, "error_code": refusal.code}
    offsets = ledger.offsets.get(asked.group_id, Offsets())
    if asked.topics is None:
        topics = _all_told(image, offsets, by_id=by_id, is_stable=is_stable)
    else:
        topics = [
            _topic_offsets(image, offsets, topic, by_id=by_id, is_stable=is_stable)
            for topic in asked.topics
        ]
    return {"topics": topics, "error_code": ErrorCode.NONE}


def _topic_offsets(
    image: MetadataImage, offsets: Offsets, topic: Message, *, by_id: bool, is_stable: bool
) -> dict[str, Any]:
    name = image.topic_names.get(topic.topic_id) if by_id else topic.name
    partitions = [
        _offset_told(index, None, ErrorCode.UNKNOWN_TOPIC_ID)
        if name is None
        else _place_told(offsets, (name, index), is_stable=is_stable)
        for index in topic.partition_indexes
    ]
    return {**_topic_told(topic, by_id=by_id), "partitions": partitions}


def _place_told(offsets: Offsets, place: Place, *, is_stable: bool) -> dict[str, Any]:
    """Return the offset, or that a transaction has to be decided first (KIP-447)."""
    if is_stable and offsets.is_unstable(place):
        return _offset_told(place[1], None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _offset_told(place[1], offsets.get(place))


def _all_told(
    image: MetadataImage, offsets: Offsets, *, by_id: bool, is_stable: bool
) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for place in offsets.everything() if is_stable else offsets:
        if offsets.get(place) is not None or (is_stable and offsets.is_unstable(place)):
            told = _place_told(offsets, place, is_stable=is_stable)
            found.setdefault(place[0], []).append(told)
    told_topics: list[dict[str, Any]] = []
    for name, partitions in found.items():
        info = image.topic(name)
        if by_id and info is None:
            # Deleted a moment ago: it has no id any more.
            continue
        key = {"name": name} if info is None or not by_id else {"topic_id": info.topic_id}
        told_topics.append({**key, "partitions": partitions})
    return told_topics


def _offset_told(
    index: int, value: OffsetValue | None, code: ErrorCode = ErrorCode.NONE
) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": _NO_OFFSET if value is None else value.offset,
        "committed_leader_epoch": NO_EPOCH if value is None else value.leader_epoch,
        "metadata": "" if value is None else value.metadata,
        "error_code": code,
    }


# ── OffsetDelete ──────────────────────────────────────────────────────────────────────────────


async def offset_delete(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    try:
        ledger, group = _group_to_delete_from(broker, body.group_id)
        topics = await _deleted(broker, ledger, group, body)
    except RequestError as refusal:
        return {"error_code": refusal.code, "throttle_time": 0, "topics": []}
    return {"error_code": ErrorCode.NONE, "throttle_time": 0, "topics": topics}


def _group_to_delete_from(broker: Broker, group_id: str) -> tuple[Ledger, Group]:
    if not group_id:
        raise RequestError(ErrorCode.INVALID_GROUP_ID)
    ledger = broker.groups.ledger_of(group_id)
    group = ledger.groups.get(group_id)
    if group is None or group.state is State.DEAD:
        raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
    if group.state is not State.EMPTY and group.protocol_type != _CONSUMERS:
        raise RequestError(ErrorCode.NON_EMPTY_GROUP)
    return ledger, group


async def _deleted(
    broker: Broker, ledger: Ledger, group: Group, body: Message
) -> list[dict[str, Any]]:
    image, offsets = broker.controller.image, ledger.offsets.get(group.group_id)
    is_empty = group.state is State.EMPTY
    read = subscribed_topics(group)
    gone: dict[tuple[str, int], None] = {}
    topics: list[dict[str, Any]] = []
    for topic in body.topics:
        info = image.topic(topic.name)
        count = 0 if info is None else len(info.partitions)
        is_read = not is_empty and (read is None or topic.name in read)
        partitions = []
        for one in topic.partitions:
            place = (topic.name, one.partition_index)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            if not 0 <= one.partition_index < count:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if code is ErrorCode.NONE and offsets is not None and offsets.get(place) is not None:
                gone[place] = None
            partitions.append({"partition_index": one.partition_index, "error_code": code})
        topics.append({"name": topic.name, "partitions": partitions})
    if gone:
        failed = await _written(ledger, group.group_id, gone)
        if failed is not None:
            raise RequestError(failed)
    return topics
