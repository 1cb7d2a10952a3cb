"""The metadata as a state machine: an image and a command give the next image and an outcome.

Not here: where commands come from and how the outcome is kept (`solo.py`; later, the quorum), and
whether a topic's options can be obeyed, which depends on the node that is asked.

A1  `apply` is total: it raises for no command, however absurd; what cannot be done is refused
A2  it is deterministic: it looks at nothing but its arguments
A3  a refused command changes nothing, and returns the very image it was given
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, assert_never

from ottla.controller.commands import (
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    StartLeading,
    TakeProducerIds,
)
from ottla.controller.image import ALL_BROKERS, MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.names import METADATA_TOPIC, folded, is_usable_topic_id, name_problem
from ottla.controller.placement import Replicas, place
from ottla.controller.port import NewPartitions, NewTopic, TopicDefaults
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT64_MAX, BrokerId, LeaderEpoch, ProducerId
from ottla.proto.kafka.uuids import UUID

# One command makes no more than this, and one request asks for no more, as in Kafka.
PARTITIONS_AT_ONCE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command was not obeyed."""

    code: ErrorCode
    sentence: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a command, and which parts of the image are new."""

    refusal: Refusal | None = None
    # Names of topics that were made, changed or deleted.
    topics: tuple[str, ...] = ()
    # Names in `MetadataImage.broker_configs`.
    broker_configs: tuple[str, ...] = ()
    producer_ids: range | None = None


def apply(image: MetadataImage, command: Command) -> tuple[MetadataImage, Outcome]:
    """Return the next image and the outcome, or the same image and a refusal."""
    try:
        return _apply(image, command)
    except RequestError as error:
        return image, Outcome(Refusal(error.code, error.sentence))


def _apply(image: MetadataImage, command: Command) -> tuple[MetadataImage, Outcome]:
    match command:
        case CreateTopic():
            return _create_topic(image, command)
        case DeleteTopic():
            return _delete_topic(image, command)
        case CreatePartitions():
            return _create_partitions(image, command)
        case ChangeConfigs():
            return _change_configs(image, command)
        case TakeProducerIds():
            return _take_producer_ids(image, command)
        case StartLeading():
            return _start_leading(image, command)
        case _:
            assert_never(command)


# ── Topics ────────────────────────────────────────────────────────────────────────────────────


def _create_topic(image: MetadataImage, command: CreateTopic) -> tuple[MetadataImage, Outcome]:
    wanted = command.wanted
    _require_free_name(image, wanted.name)
    if wanted.assignments:
        replicas = _assigned(image, wanted)
    else:
        replicas = _placed(image, wanted, command.defaults, command.seed)
    _require_free_id(image, command.topic_id)
    made = TopicInfo(
        name=wanted.name,
        topic_id=command.topic_id,
        partitions=tuple(map(_new_partition, replicas)),
        configs=dict(wanted.configs),
    )
    return _with_topics(image, made), Outcome(topics=(made.name,))


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
    return place(image.brokers.values(), count=count, replication_factor=factor, seed=seed)


def _require_few(count: int) -> None:
    if count > PARTITIONS_AT_ONCE_MAX:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"At most {PARTITIONS_AT_ONCE_MAX} partitions are made at once, not {count}.",
        )


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


def _new_partition(replicas: Replicas) -> PartitionInfo:
    return PartitionInfo(
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=LeaderEpoch(0),
        partition_epoch=0,
    )


def _delete_topic(image: MetadataImage, command: DeleteTopic) -> tuple[MetadataImage, Outcome]:
    _require_topic(image, command.name, command.topic_id)
    topics = {name: topic for name, topic in image.topics.items() if name != command.name}
    names = {key: name for key, name in image.topic_names.items() if name != command.name}
    changed = replace(image, version=image.version + 1, topics=topics, topic_names=names)
    return changed, Outcome(topics=(command.name,))


def _create_partitions(
    image: MetadataImage, command: CreatePartitions
) -> tuple[MetadataImage, Outcome]:
    wanted = command.wanted
    topic = _require_topic(image, wanted.topic, command.topic_id)
    present = len(topic.partitions)
    if wanted.count <= present:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name!r} has {present} partitions; it can get more, but not "
            f"{wanted.count}.",
        )
    more = wanted.count - present
    _require_few(more)
    replicas = _more_replicas(image, topic, wanted, more, command.seed)
    partitions = topic.partitions + tuple(map(_new_partition, replicas))
    changed = replace(topic, partitions=partitions)
    return _with_topics(image, changed), Outcome(topics=(topic.name,))


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
    leading = Counter(one.leader for one in topic.partitions if one.leader is not None)
    brokers = image.brokers.values()
    return place(brokers, count=more, replication_factor=factor, seed=seed, leading=leading)


def _require_topic(image: MetadataImage, name: str, topic_id: UUID) -> TopicInfo:
    topic = image.topics.get(name)
    if topic is None or topic.topic_id != topic_id:
        sentence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sentence)
    return topic


def _with_topics(image: MetadataImage, *topics: TopicInfo) -> MetadataImage:
    return replace(
        image,
        version=image.version + 1,
        topics={**image.topics, **{topic.name: topic for topic in topics}},
        topic_names={**image.topic_names, **{topic.topic_id: topic.name for topic in topics}},
    )


# ── Options, producer ids, epochs ─────────────────────────────────────────────────────────────


def configs_after(image: MetadataImage, command: ChangeConfigs) -> Mapping[str, str]:
    """Return all the options that a topic or broker would set after a change."""
    change = command.change
    present: Mapping[str, str] = {}
    if not change.replace:
        topic = image.topics.get(change.name)
        if change.kind == "broker":
            present = image.broker_configs.get(change.name, {})
        elif topic is not None:
            present = topic.configs
    kept = {name: value for name, value in present.items() if name not in change.unset}
    return {**kept, **change.set}


def _change_configs(image: MetadataImage, command: ChangeConfigs) -> tuple[MetadataImage, Outcome]:
    change = command.change
    configs = configs_after(image, command)
    if change.kind == "topic":
        topic = image.topics.get(change.name)
        if topic is None:
            sentence = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.sentence
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, sentence)
        if configs == topic.configs:
            return image, Outcome()
        return _with_topics(image, replace(topic, configs=configs)), Outcome(topics=(change.name,))
    if change.name not in _broker_names(image.brokers):
        sentence = f"There is no broker {change.name!r}."
        raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, sentence)
    if configs == image.broker_configs.get(change.name, {}):
        return image, Outcome()
    every = {**image.broker_configs, change.name: configs}
    changed = replace(
        image,
        version=image.version + 1,
        broker_configs={name: options for name, options in every.items() if options},
    )
    return changed, Outcome(broker_configs=(change.name,))


def _broker_names(brokers: Iterable[BrokerId]) -> set[str]:
    return {ALL_BROKERS, *map(str, brokers)}


def _take_producer_ids(
    image: MetadataImage, command: TakeProducerIds
) -> tuple[MetadataImage, Outcome]:
    first = image.next_producer_id
    if command.count < 1 or first > INT64_MAX - command.count:
        raise RequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, "There are no producer ids left to give."
        )
    end = ProducerId(first + command.count)
    changed = replace(image, version=image.version + 1, next_producer_id=end)
    return changed, Outcome(producer_ids=range(first, end))


def _start_leading(image: MetadataImage, command: StartLeading) -> tuple[MetadataImage, Outcome]:
    led = [
        replace(topic, partitions=tuple(_led_anew(one, command) for one in topic.partitions))
        for topic in image.topics.values()
        if any(one.leader == command.broker_id for one in topic.partitions)
    ]
    if not led:
        return image, Outcome()
    return _with_topics(image, *led), Outcome(topics=tuple(topic.name for topic in led))


def _led_anew(partition: PartitionInfo, command: StartLeading) -> PartitionInfo:
    if partition.leader != command.broker_id:
        return partition
    return replace(
        partition,
        leader_epoch=LeaderEpoch(partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
    )
