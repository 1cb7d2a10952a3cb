"""CreateTopics, DeleteTopics, CreatePartitions.

What contradicts itself is refused here: a topic named twice, one named by name and by id, an option
without a value. Whether the rest can be done is the controller's to say, and what it says is passed
on. Answers stand in the order of the request; a topic named twice is answered once.

The time that a client allows is not looked at: an answer comes when the change is durable, or when
this node gives up asking.

Not here: deciding (`ottla.controller`), making logs (`node/reconcile.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.names import name_problem
from ottla.controller.port import NewPartitions, NewTopic
from ottla.node.kafka.refusals import error_fields
from ottla.node.kafka.requests import Request
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from ottla.proto.options.render import describe_topic

if TYPE_CHECKING:
    from ottla.node.broker import Broker

# "Choose for me", where a number of partitions or replicas is asked for.
_DEFAULT: Final = -1
_UNKNOWN: Final = -1
# From this version on DeleteTopics may name a topic by its id.
_DELETE_BY_ID_SINCE: Final = 6
# From this version on CreateTopics tells what was made, options and all.
_CREATED_TOLD_SINCE: Final = 5
# Each tells some thirty options: after so many, others on the event loop get their turn.
_TOLD_AT_ONCE: Final = 20
_TWICE: Final = RequestError(ErrorCode.INVALID_REQUEST, "The topic is named twice.")


# ── CreateTopics ──────────────────────────────────────────────────────────────────────────────


async def create_topics(broker: Broker, request: Request) -> dict[str, Any]:
    named = Counter(topic.name for topic in request.body.topics)
    answers: dict[str, TopicInfo | RequestError] = {}
    wanted: list[NewTopic] = []
    for topic in request.body.topics:
        refused = _TWICE if named[topic.name] > 1 else None
        refused = refused or _refusal_at_sight(broker.controller.image, topic)
        # A place in the order of answers, also for those that the controller has yet to judge.
        answers[topic.name] = refused or RequestError(ErrorCode.UNKNOWN_SERVER_ERROR)
        if refused is None:
            wanted.append(_new_topic(topic))
    validate_only = request.body.get("validate_only", False)
    made = await broker.controller.create_topics(
        wanted, validate_only=validate_only, client=request.client
    )
    answers.update(zip((one.name for one in wanted), made, strict=True))
    return {"throttle_time": 0, "topics": await _creation_told(broker, answers, request.version)}


def _refusal_at_sight(image: MetadataImage, topic: Message) -> RequestError | None:
    """Refuse what cannot be put to the controller; but what is wrong with a name comes first."""
    if problem := name_problem(topic.name):
        return RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    without = [config.name for config in topic.configs if config.value is None]
    if topic.name in image.topics:
        return RequestError(ErrorCode.TOPIC_ALREADY_EXISTS) if without else None
    if without:
        sentence = f"An option needs a value: {', '.join(without)}."
        return RequestError(ErrorCode.INVALID_CONFIG, sentence)
    partitions = Counter(one.partition_index for one in topic.assignments)
    if twice := [index for index, count in partitions.items() if count > 1]:
        sentence = f"Partition {twice[0]} is assigned twice."
        return RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, sentence)
    return None


def _new_topic(topic: Message) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=_unless_default(topic.num_partitions),
        replication_factor=_unless_default(topic.replication_factor),
        assignments={one.partition_index: _brokers(one.broker_ids) for one in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _unless_default(number: int) -> int | None:
    return None if number == _DEFAULT else number


def _brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, ids))


async def _creation_told(
    broker: Broker, answers: dict[str, TopicInfo | RequestError], version: int
) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    for number, (name, answer) in enumerate(answers.items(), 1):
        if isinstance(answer, RequestError):
            told.append(_not_created(name, answer))
        else:
            configs = _configs_told(broker, answer) if version >= _CREATED_TOLD_SINCE else []
            told.append(_created(answer, configs))
        if number % _TOLD_AT_ONCE == 0:
            await asyncio.sleep(0)
    return told


def _not_created(name: str, error: RequestError) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": ZERO_UUID,
        **error_fields(error),
        "num_partitions": _UNKNOWN,
        "replication_factor": _UNKNOWN,
        "configs": [],
    }


def _created(topic: TopicInfo, configs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        **error_fields(None),
        "topic_config_error_code": ErrorCode.NONE,
        "num_partitions": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": configs,
    }


def _configs_told(broker: Broker, topic: TopicInfo) -> list[dict[str, Any]]:
    options = broker.options
    described = describe_topic(options.of_topic(topic.configs), options.current, topic.configs)
    return [
        {
            "name": entry.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.sensitive,
        }
        for entry in sorted(described, key=lambda entry: entry.name)
    ]


# ── DeleteTopics ──────────────────────────────────────────────────────────────────────────────


async def delete_topics(broker: Broker, request: Request) -> dict[str, Any]:
    body, image = request.body, broker.controller.image
    if request.version >= _DELETE_BY_ID_SINCE:
        pairs = [(topic.name, topic.topic_id) for topic in body.topics]
    else:
        pairs = [(name, ZERO_UUID) for name in body.topic_names]
    judged = _judged(image, pairs)
    doomed = [name for (name, _), refused in judged.items() if refused is None and name is not None]
    deleted = await broker.controller.delete_topics(doomed, client=request.client)
    outcome = dict(zip(doomed, deleted, strict=True))
    responses = [
        {
            "name": name,
            "topic_id": topic_id,
            **error_fields(refused or outcome.get(name or "")),
        }
        for (name, topic_id), refused in judged.items()
    ]
    return {"throttle_time": 0, "responses": responses}


def _judged(
    image: MetadataImage, pairs: list[tuple[str | None, UUID]]
) -> dict[tuple[str | None, UUID], RequestError | None]:
    """Return each topic that is meant, by name and id as far as they are known, and its refusal."""
    given = Counter(pairs)
    found: dict[tuple[str | None, UUID], RequestError | None] = {}
    for name, topic_id in given:
        if name is not None and topic_id != ZERO_UUID:
            sentence = "A topic is named by its name or by its id, not by both."
            found[name, topic_id] = RequestError(ErrorCode.INVALID_REQUEST, sentence)
            continue
        meant, refused = _meant(image, name, topic_id)
        if given[name, topic_id] > 1 and refused is None:
            meant = (name, topic_id)
        # Also named twice: once by name, and once by id.
        if given[name, topic_id] > 1 or meant in found:
            refused = _TWICE
        found[meant] = refused
    return found


def _meant(
    image: MetadataImage, name: str | None, topic_id: UUID
) -> tuple[tuple[str | None, UUID], RequestError | None]:
    if name is not None:
        topic, unknown = image.topic(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif topic_id != ZERO_UUID:
        topic, unknown = image.topic_by_id(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
    else:
        sentence = "A topic needs a name or an id."
        return (name, topic_id), RequestError(ErrorCode.INVALID_REQUEST, sentence)
    if topic is None:
        return (name, topic_id), RequestError(unknown)
    return (topic.name, topic.topic_id), None


# ── CreatePartitions ──────────────────────────────────────────────────────────────────────────


async def create_partitions(broker: Broker, request: Request) -> dict[str, Any]:
    body = request.body
    named = Counter(topic.name for topic in body.topics)
    answers: dict[str, RequestError | None] = {
        name: _TWICE if count > 1 else None for name, count in named.items()
    }
    wanted = [_new_partitions(topic) for topic in body.topics if named[topic.name] == 1]
    made = await broker.controller.create_partitions(
        wanted, validate_only=body.validate_only, client=request.client
    )
    answers.update(zip((one.topic for one in wanted), made, strict=True))
    results = [{"name": name, **error_fields(error)} for name, error in answers.items()]
    return {"throttle_time": 0, "results": results}


def _new_partitions(topic: Message) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(_brokers(one.broker_ids) for one in topic.assignments)
    return NewPartitions(topic.name, topic.count, assignments)
