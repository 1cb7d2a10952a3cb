"""Making topics and partitions, and deleting topics.

Not here: where the replicas go (`placement.py`), and what becomes of them later (`partitions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ottla.controller.commands import CreatePartitions, CreateTopic, DeleteTopic
from ottla.controller.election import active_brokers, is_fsync
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.names import (
    METADATA_TOPIC,
    folded,
    is_internal,
    is_usable_topic_id,
    name_problem,
)
from ottla.controller.outcome import Outcome
from ottla.controller.partitions import with_topics
from ottla.controller.placement import Replicas, place
from ottla.controller.port import NewPartitions, NewTopic, TopicDefaults
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.kafka.uuids import UUID

# One command makes no more than this, and one request asks for no more, as in Kafka.
PARTITIONS_AT_ONCE_MAX: Final = 10_000


def create_topic(image: MetadataImage, command: CreateTopic) -> tuple[MetadataImage, Outcome]:
    wanted = command.wanted
    _require_free_name(image, wanted.name)
    if wanted.assignments:
        replicas = _assigned(image, wanted)
    else:
        replicas = _placed(image, wanted, command.defaults, command.seed)
    _require_free_id(image, command.topic_id)
    made = TopicInfo(wanted.name, command.topic_id, (), dict(wanted.configs))
    made = replace(made, partitions=_new_partitions(image, made, replicas))
    return with_topics(image, [made]), Outcome(topics=(made.name,))


def _require_free_name(image: MetadataImage, name: str) -> None:
    if name in image.topics:
        raise RequestError(ErrorCode.TOPIC_ALREADY_EXISTS, f"There is a topic {name!r} already.")
    if name == METADATA_TOPIC:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"No topic may be called {name}.")
    if problem := name_problem(name):
        raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if "." in name or "_" in name:
        alike = folded(name)
        for other in image.topics:
            if folded(other) == alike:
                sentence = f"Metrics could not tell the topic {name!r} from the topic {other!r}."
                raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, sentence)


def _require_free_id(image: MetadataImage, topic_id: UUID) -> None:
    if topic_id in image.topic_names or not is_usable_topic_id(topic_id):
        sentence = f"The topic id {topic_id} is taken or reserved."
        raise RequestError(ErrorCode.INVALID_REQUEST, sentence)


def _assigned(image: MetadataImage, wanted: NewTopic) -> list[Replicas]:
    if wanted.partitions is not None or wanted.replication_factor is not None:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "Give either the replicas of each partition, or the number of partitions and the "
            "replication factor.",
        )
    _require_few(len(wanted.assignments))
    factor = None
    for index in sorted(wanted.assignments):
        replicas = wanted.assignments[index]
        _require_good_replicas(image, replicas, factor)
        factor = len(replicas)
    if sorted(wanted.assignments) != list(range(len(wanted.assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Partitions are numbered from 0 without gaps, and so must be their assignments.",
        )
    return [tuple(wanted.assignments[index]) for index in sorted(wanted.assignments)]


def _placed(
    image: MetadataImage, wanted: NewTopic, defaults: TopicDefaults, seed: int
) -> list[Replicas]:
    factor = wanted.replication_factor
    if factor is None:
        factor = min(defaults.replication_factor, len(image.brokers))
    count = defaults.partitions if wanted.partitions is None else wanted.partitions
    if not 1 <= factor <= len(image.brokers):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor must be from 1 to {len(image.brokers)}, the number of "
            f"brokers, not {factor}.",
        )
    if count < 1:
        sentence = f"A topic needs at least 1 partition, not {count}."
        raise RequestError(ErrorCode.INVALID_PARTITIONS, sentence)
    _require_few(count)
    _require_somebody(image)
    return place(image.brokers.values(), count=count, replication_factor=factor, seed=seed)


def _require_few(count: int) -> None:
    if count > PARTITIONS_AT_ONCE_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"At most {PARTITIONS_AT_ONCE_MAX} partitions are made at once, not {count}.",
        )


def _require_somebody(image: MetadataImage) -> None:
    if not active_brokers(image):
        sentence = "No broker is up at the moment that could lead a partition."
        raise RequestError(ErrorCode.INVALID_REPLICATION_FACTOR, sentence)


def _require_good_replicas(
    image: MetadataImage, replicas: Sequence[BrokerId], factor: int | None
) -> None:
    if not replicas:
        problem = "A partition needs at least one replica."
    elif strangers := [broker for broker in replicas if broker not in image.brokers]:
        problem = f"There is no broker {strangers[0]}."
    elif len(set(replicas)) < len(replicas):
        problem = "A broker holds a partition once: the list of replicas names one twice."
    elif factor is not None and len(replicas) != factor:
        problem = f"All partitions of a topic have as many replicas: {factor}, not {len(replicas)}."
    else:
        return
    raise RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _new_partitions(
    image: MetadataImage, topic: TopicInfo, placed: Sequence[Replicas]
) -> tuple[PartitionInfo, ...]:
    active = active_brokers(image)
    is_durable = is_fsync(image, topic)
    return tuple(_new_partition(replicas, active, is_durable) for replicas in placed)


def _new_partition(
    replicas: Replicas, active: frozenset[BrokerId], is_durable: bool
) -> PartitionInfo:
    isr = tuple(one for one in replicas if one in active)
    if not isr:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"None of the brokers {', '.join(map(str, replicas))} is up, and one must lead.",
        )
    return PartitionInfo(
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
        is_durable=is_durable,
    )


def delete_topic(image: MetadataImage, command: DeleteTopic) -> tuple[MetadataImage, Outcome]:
    _require_topic(image, command.name, command.topic_id)
    if is_internal(command.name):
        # With it would go how far every group has come (ADR 0026).
        sentence = f"The topic {command.name!r} is kept by the brokers, and cannot be deleted."
        raise RequestError(ErrorCode.POLICY_VIOLATION, sentence)
    topics = {name: topic for name, topic in image.topics.items() if name != command.name}
    names = {key: name for key, name in image.topic_names.items() if name != command.name}
    changed = replace(image, version=image.version + 1, topics=topics, topic_names=names)
    return changed, Outcome(topics=(command.name,))


def create_partitions(
    image: MetadataImage, command: CreatePartitions
) -> tuple[MetadataImage, Outcome]:
    wanted = command.wanted
    topic = _require_topic(image, wanted.topic, command.topic_id)
    present = len(topic.partitions)
    if is_internal(topic.name):
        # A name is found by its hash and this number: with another one, hardly any is (ADR 0026).
        sentence = f"The number of partitions of {topic.name!r} is {present} for ever."
        raise RequestError(ErrorCode.INVALID_PARTITIONS, sentence)
    if wanted.count <= present:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name!r} has {present} partitions; it can get more, but not "
            f"{wanted.count}.",
        )
    more = wanted.count - present
    _require_few(more)
    replicas = _more_replicas(image, topic, wanted, more, command.seed)
    partitions = topic.partitions + _new_partitions(image, topic, replicas)
    changed = replace(topic, partitions=partitions)
    return with_topics(image, [changed]), Outcome(topics=(topic.name,))


def _more_replicas(
    image: MetadataImage, topic: TopicInfo, wanted: NewPartitions, more: int, seed: int
) -> list[Replicas]:
    factor = topic.replication_factor
    if wanted.assignments is not None:
        if len(wanted.assignments) != more:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{more} partitions are to be added, but {len(wanted.assignments)} are assigned.",
            )
        for replicas in wanted.assignments:
            _require_good_replicas(image, replicas, factor)
        return [tuple(replicas) for replicas in wanted.assignments]
    if factor > len(image.brokers):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The topic has {factor} replicas, and there are {len(image.brokers)} brokers now.",
        )
    _require_somebody(image)
    leading = Counter(one.leader for one in topic.partitions if one.leader is not None)
    brokers = image.brokers.values()
    return place(brokers, count=more, replication_factor=factor, seed=seed, leading=leading)


def _require_topic(image: MetadataImage, name: str, topic_id: UUID) -> TopicInfo:
    topic = image.topics.get(name)
    if topic is None or topic.topic_id != topic_id:
        sentence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sentence)
    return topic
