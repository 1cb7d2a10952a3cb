"""What a wish means before it is proposed, and what came of it afterwards: pure functions.

Not here: asking for it (`cluster.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ottla.controller.commands import Command, ElectionKind
from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.outcome import Outcome, PartitionResult
from ottla.controller.partitions import PARTITIONS_NAMED_MAX
from ottla.controller.port import NewPartitions, NewTopic, TopicDefaults
from ottla.controller.state import PARTITIONS_AT_ONCE_MAX, apply
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.kafka.uuids import UUID

W = TypeVar("W")

_UNKNOWN_PARTITION: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


def tried(
    image: MetadataImage,
    wishes: Iterable[W],
    command_for: Callable[[MetadataImage, W], Command],
) -> list[RequestError | None]:
    """Say what would become of wishes, one after the other."""
    answers: list[RequestError | None] = []
    for wish in wishes:
        try:
            image, outcome = apply(image, command_for(image, wish))
            answers.append(error_of(outcome))
        except RequestError as error:
            answers.append(error)
    return answers


def known_topic(image: MetadataImage, name: str) -> TopicInfo:
    topic = image.topic(name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


def id_of(image: MetadataImage, name: str, index: int) -> UUID | None:
    """Return the id of the topic, if it has this partition."""
    topic = image.topic(name)
    has_it = topic is not None and 0 <= index < len(topic.partitions)
    return topic.topic_id if topic is not None and has_it else None


def to_elect(image: MetadataImage, kind: ElectionKind) -> list[tuple[str, int]]:
    """Return the partitions that do not have the leader they should have."""
    return [
        (topic.name, index)
        for topic in image.topics.values()
        for index, one in enumerate(topic.partitions)
        if (one.leader is None if kind == "unclean" else one.leader != one.replicas[0])
    ]


def in_pieces(named: list[tuple[UUID, int]]) -> Iterable[list[tuple[UUID, int]]]:
    for start in range(0, len(named), PARTITIONS_NAMED_MAX):
        yield named[start : start + PARTITIONS_NAMED_MAX]


def result_error(result: PartitionResult) -> RequestError | None:
    refusal = result.refusal
    if refusal is None:
        return None
    if refusal.code in _UNKNOWN_PARTITION:
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return RequestError(refusal.code, refusal.sentence)


def is_not_needed(error: RequestError | None) -> bool:
    return error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED


def partitions_wanted(topic: NewTopic, defaults: TopicDefaults) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return defaults.partitions if topic.partitions is None else max(topic.partitions, 0)


def partitions_to_add(image: MetadataImage, wanted: NewPartitions) -> int:
    topic = image.topic(wanted.topic)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)


def too_many(count: int) -> RequestError:
    return RequestError(
        ErrorCode.POLICY_VIOLATION,
        f"One request makes at most {PARTITIONS_AT_ONCE_MAX} partitions, not {count}.",
    )


def error_of(outcome: Outcome) -> RequestError | None:
    refusal = outcome.refusal
    return None if refusal is None else RequestError(refusal.code, refusal.sentence)


def require_done(outcome: Outcome) -> None:
    refused = error_of(outcome)
    if refused is not None:
        raise refused
