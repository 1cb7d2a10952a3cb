"""Changes of partitions that are there: in-sync sets, leaders, durability.

Not here: who leads (`election.py`), and making partitions (`topics.py`).

The checks of `alter_partitions` are rule 14's, in its order: the answer to a leader that is behind
in two ways depends on which is looked at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from ottla.controller.commands import (
    NO_BROKER_EPOCH,
    AlterPartitions,
    ElectLeaders,
    PartitionChange,
    Partitions,
)
from ottla.controller.election import (
    Terms,
    active_brokers,
    is_fsync,
    prefer,
    settle,
    settle_uncleanly,
    terms_of,
)
from ottla.controller.image import MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.outcome import Outcome, PartitionResult, Refusal
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID

# So many partitions are named in one command; their results are remembered with its outcome.
PARTITIONS_NAMED_MAX: Final = 1000

Change = Callable[[TopicInfo, PartitionInfo, Terms], PartitionInfo]


def with_topics(image: MetadataImage, topics: Iterable[TopicInfo]) -> MetadataImage:
    """Return the image of the next version in which these topics are new or changed."""
    changed = list(topics)
    return replace(
        image,
        version=image.version + 1,
        topics={**image.topics, **{topic.name: topic for topic in changed}},
        topic_names={**image.topic_names, **{topic.topic_id: topic.name for topic in changed}},
    )


def change_all(image: MetadataImage, change: Change) -> list[TopicInfo]:
    """Return the topics that are others after `change` was asked about each of their partitions."""
    active = active_brokers(image)
    changed = []
    for topic in image.topics.values():
        terms = terms_of(image, topic, active)
        partitions = tuple(change(topic, one, terms) for one in topic.partitions)
        if any(new is not old for new, old in zip(partitions, topic.partitions, strict=True)):
            changed.append(replace(topic, partitions=partitions))
    return changed


def retuned(before: MetadataImage, after: MetadataImage, topic: TopicInfo) -> TopicInfo:
    """Return a topic of `after`, whose options or defaults are others than in `before`.

    The minimum decides who is eligible (rule 20), and durability what a power cut can take (rule
    8): a change to `pagecache` ends it at once, one to `fsync` waits for the leader's word. That
    word counts only if it was given since, so every such change has a partition epoch of its own.
    """
    terms = terms_of(after, topic, active_brokers(after))
    partitions = [settle(one, terms) for one in topic.partitions]
    old = before.topics.get(topic.name, topic)
    now_fsync = is_fsync(after, topic)
    if is_fsync(before, old) != now_fsync:
        partitions = [
            replace(
                one,
                is_durable=one.is_durable and now_fsync,
                partition_epoch=one.partition_epoch + 1,
            )
            for one in partitions
        ]
    if all(new is old for new, old in zip(partitions, topic.partitions, strict=True)):
        return topic
    return replace(topic, partitions=tuple(partitions))


# ── AlterPartition ────────────────────────────────────────────────────────────────────────────


def alter_partitions(
    image: MetadataImage, command: AlterPartitions
) -> tuple[MetadataImage, Outcome]:
    caller = image.brokers.get(command.broker_id)
    if caller is None or caller.broker_epoch != command.broker_epoch:
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH)
    active = active_brokers(image)
    edits = _Edits(image)
    results = []
    for change in command.changes:
        try:
            altered = _altered(edits, command.broker_id, change, active)
        except RequestError as error:
            results.append(_result(change.topic_id, change.partition, error))
        else:
            epoch = altered.partition_epoch
            results.append(PartitionResult(change.topic_id, change.partition, None, epoch))
    return edits.finish(tuple(results))


def _altered(
    edits: _Edits, caller: BrokerId, change: PartitionChange, active: frozenset[BrokerId]
) -> PartitionInfo:
    topic, partition = edits.find(change.topic_id, change.partition)
    _require_epochs(partition, caller, change)
    _require_good_isr(partition, change)
    _require_eligible(edits.image, change)
    terms = terms_of(edits.image, topic, active)
    settled = settle(partition, terms, isr=[member for member, _ in change.isr])
    # The leader's word is about those in sync. Of somebody who is eligible and not here, nobody
    # knows what it has synced; while there is one, the word does not count:
    #   1. a topic in the page cache loses a replica to the network, which stays eligible
    #   2. the topic is changed to fsync, and the leader, alone, says that all have synced
    #   3. the other replica loses power and its tail, and keeps its claim, being "durable"
    #   4. the leader dies, the other is elected, and committed records are gone
    is_sworn = change.is_synced and not settled.elr and is_fsync(edits.image, topic)
    altered = replace(
        settled,
        partition_epoch=partition.partition_epoch + 1,
        is_recovering=change.is_recovering,
        is_durable=partition.is_durable or is_sworn,
    )
    edits.put(topic, change.partition, altered)
    return altered


def _require_epochs(partition: PartitionInfo, caller: BrokerId, change: PartitionChange) -> None:
    code, told = None, ""
    if (
        change.leader_epoch > partition.leader_epoch
        or change.partition_epoch > partition.partition_epoch
    ):
        code, told = (
            ErrorCode.NOT_CONTROLLER,
            "The caller knows a later epoch than this controller.",
        )
    elif change.leader_epoch < partition.leader_epoch:
        code = ErrorCode.FENCED_LEADER_EPOCH
        told = f"The leader epoch is {partition.leader_epoch}, not {change.leader_epoch}."
    elif caller != partition.leader:
        code, told = ErrorCode.INVALID_REQUEST, f"Broker {caller} does not lead this partition."
    elif change.partition_epoch < partition.partition_epoch:
        code = ErrorCode.INVALID_UPDATE_VERSION
        told = f"The partition epoch is {partition.partition_epoch}, not {change.partition_epoch}."
    if code is not None:
        raise RequestError(code, told)


def _require_good_isr(partition: PartitionInfo, change: PartitionChange) -> None:
    members = [member for member, _ in change.isr]
    problem = ""
    if not set(members) <= set(partition.replicas):
        problem = "Who is in sync must be a replica."
    elif len(set(members)) < len(members):
        problem = "Nobody is in sync twice."
    elif partition.leader not in members:
        problem = "A leader is in sync with itself."
    elif change.is_recovering and len(members) > 1:
        problem = "Nobody is in sync with a leader that has not recovered."
    elif change.is_recovering and not partition.is_recovering:
        problem = "A leader that has recovered does not recover again."
    if problem:
        raise RequestError(ErrorCode.INVALID_REQUEST, problem)


def _require_eligible(image: MetadataImage, change: PartitionChange) -> None:
    for member, epoch in change.isr:
        broker = image.brokers.get(member)
        if broker is None:
            why = "is not registered"
        elif broker.shutdown_version is not None:
            why = "is shutting down"
        elif broker.is_fenced:
            why = "is fenced"
        elif epoch not in (NO_BROKER_EPOCH, broker.broker_epoch):
            why = "has registered again"
        else:
            continue
        raise RequestError(ErrorCode.INELIGIBLE_REPLICA, f"Broker {member} {why}.")


# ── ElectLeaders ──────────────────────────────────────────────────────────────────────────────


def elect_leaders(image: MetadataImage, command: ElectLeaders) -> tuple[MetadataImage, Outcome]:
    active = active_brokers(image)
    edits = _Edits(image)
    if command.partitions is None:
        for topic in image.topics.values():
            terms = terms_of(image, topic, active)
            for index, partition in enumerate(topic.partitions):
                elected = _elected(command, partition, terms)
                if elected is not partition:
                    edits.put(topic, index, elected)
        return edits.finish(())
    require_few_named(command.partitions)
    results = []
    for topic_id, index in named(command.partitions):
        try:
            topic, partition = edits.find(topic_id, index)
            elected = _elected(command, partition, terms_of(image, topic, active))
            _require_elected(command, partition, elected)
        except RequestError as error:
            results.append(_result(topic_id, index, error))
        else:
            edits.put(topic, index, elected)
            results.append(PartitionResult(topic_id, index, None, elected.partition_epoch))
    return edits.finish(tuple(results))


def _elected(command: ElectLeaders, partition: PartitionInfo, terms: Terms) -> PartitionInfo:
    if command.kind == "preferred":
        return prefer(partition, terms)
    return partition if partition.leader is not None else settle_uncleanly(partition, terms)


def _require_elected(
    command: ElectLeaders, partition: PartitionInfo, elected: PartitionInfo
) -> None:
    if elected is not partition:
        return
    if command.kind == "unclean":
        has_one = partition.leader is not None
        missing = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    else:
        has_one = partition.leader == partition.replicas[0]
        missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    raise RequestError(ErrorCode.ELECTION_NOT_NEEDED if has_one else missing)


# ── Partitions by id ──────────────────────────────────────────────────────────────────────────


def named(partitions: Partitions) -> Iterator[tuple[UUID, int]]:
    return ((key, index) for key, indexes in partitions.items() for index in indexes)


def require_few_named(partitions: Partitions) -> None:
    count = sum(map(len, partitions.values()))
    if count > PARTITIONS_NAMED_MAX:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"One command names at most {PARTITIONS_NAMED_MAX} partitions, not {count}.",
        )


def _result(topic_id: UUID, partition: int, error: RequestError) -> PartitionResult:
    return PartitionResult(topic_id, partition, Refusal(error.code, error.sentence))


class _Edits:
    """Partitions that are to be replaced, by topic, until all is known."""

    __slots__ = ("_changed", "image")

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._changed: dict[str, list[PartitionInfo]] = {}

    def find(self, topic_id: UUID, index: int) -> tuple[TopicInfo, PartitionInfo]:
        topic = self.image.topic_by_id(topic_id)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if not 0 <= index < len(topic.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic, self._changed.get(topic.name, topic.partitions)[index]

    def put(self, topic: TopicInfo, index: int, partition: PartitionInfo) -> None:
        self._changed.setdefault(topic.name, list(topic.partitions))[index] = partition

    def finish(self, results: tuple[PartitionResult, ...]) -> tuple[MetadataImage, Outcome]:
        if not self._changed:
            return self.image, Outcome(results=results)
        topics = [
            replace(self.image.topics[name], partitions=tuple(partitions))
            for name, partitions in self._changed.items()
        ]
        outcome = Outcome(topics=tuple(self._changed), results=results)
        return with_topics(self.image, topics), outcome
