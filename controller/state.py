"""The metadata as a state machine: an image and a command give the next image and an outcome.

Not here: where commands come from and how the outcome is kept (`replay.py`), and
whether a topic's options can be obeyed, which depends on the node that is asked.

A1  `apply` is total: it raises for no command, however absurd; what cannot be done is refused
A2  it is deterministic: it looks at nothing but its arguments
A3  a refused command changes nothing, and returns the very image it was given
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from ottla.controller.brokers import (
    begin_shutdown,
    fence_broker,
    forget_broker,
    register_broker,
    report_damage,
    take_office,
    unfence_broker,
)
from ottla.controller.commands import (
    AlterPartitions,
    BeginShutdown,
    ChangeConfigs,
    Command,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectLeaders,
    FenceBroker,
    ForgetBroker,
    RegisterBroker,
    ReportDamage,
    SetFeatureLevel,
    TakeOffice,
    TakeProducerIds,
    UnfenceBroker,
)
from ottla.controller.image import ALL_BROKERS, MetadataImage, TopicInfo
from ottla.controller.outcome import Outcome, Refusal, refused
from ottla.controller.partitions import alter_partitions, elect_leaders, retuned, with_topics
from ottla.controller.topics import (
    PARTITIONS_AT_ONCE_MAX,
    create_partitions,
    create_topic,
    delete_topic,
)
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT64_MAX, BrokerId, ProducerId

__all__ = ["PARTITIONS_AT_ONCE_MAX", "Outcome", "Refusal", "apply", "configs_after"]

Next = tuple[MetadataImage, Outcome]


def apply(image: MetadataImage, command: Command) -> Next:
    """Return the next image and the outcome, or the same image and a refusal."""
    try:
        return _TABLE[type(command)](image, command)
    except RequestError as error:
        return image, refused(error)


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
        return _with_topic_configs(image, replace(topic, configs=configs))
    if change.name not in _broker_names(image.brokers):
        sentence = f"There is no broker {change.name!r}."
        raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED, sentence)
    if configs == image.broker_configs.get(change.name, {}):
        return image, Outcome()
    every = {**image.broker_configs, change.name: configs}
    kept = {name: options for name, options in every.items() if options}
    after = replace(image, broker_configs=kept)
    topics: list[TopicInfo] = []
    if change.name == ALL_BROKERS:
        tuned = ((topic, retuned(image, after, topic)) for topic in image.topics.values())
        topics = [new for old, new in tuned if new is not old]
    names = tuple(topic.name for topic in topics)
    return with_topics(after, topics), Outcome(topics=names, broker_configs=(change.name,))


def _with_topic_configs(image: MetadataImage, topic: TopicInfo) -> tuple[MetadataImage, Outcome]:
    after = replace(image, topics={**image.topics, topic.name: topic})
    tuned = retuned(image, after, topic)
    return with_topics(image, [tuned]), Outcome(topics=(topic.name,))


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


def _set_feature_level(
    image: MetadataImage, command: SetFeatureLevel
) -> tuple[MetadataImage, Outcome]:
    if command.level == image.feature_level:
        return image, Outcome()
    if command.level < image.feature_level:
        raise RequestError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"The feature level is {image.feature_level}, and never goes back.",
        )
    if not image.brokers:
        sentence = "There is no broker yet that could know a higher feature level."
        raise RequestError(ErrorCode.INVALID_UPDATE_VERSION, sentence)
    behind = [one for one in image.brokers.values() if one.feature_level_max < command.level]
    if behind:
        raise RequestError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Broker {behind[0].broker_id} knows feature levels up to "
            f"{behind[0].feature_level_max}, not {command.level}.",
        )
    changed = replace(image, version=image.version + 1, feature_level=command.level)
    return changed, Outcome()


_TABLE: Final[Mapping[type[Command], Callable[[MetadataImage, Any], Next]]] = {
    AlterPartitions: alter_partitions,
    BeginShutdown: begin_shutdown,
    ChangeConfigs: _change_configs,
    CreatePartitions: create_partitions,
    CreateTopic: create_topic,
    DeleteTopic: delete_topic,
    ElectLeaders: elect_leaders,
    FenceBroker: fence_broker,
    ForgetBroker: forget_broker,
    RegisterBroker: register_broker,
    ReportDamage: report_damage,
    SetFeatureLevel: _set_feature_level,
    TakeOffice: take_office,
    TakeProducerIds: _take_producer_ids,
    UnfenceBroker: unfence_broker,
}
