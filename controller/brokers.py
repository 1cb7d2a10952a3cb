"""The life of a broker, as commands: registered, unfenced, fenced, shutting down, forgotten.

Each of these is one command however many partitions it touches: who is in sync and who leads
follows from who is active (`election.py`).

Not here: when to propose them (`liveness.py`).

B1  a broker that registers is fenced, leads nothing and is in no in-sync set (rule 8)
B2  whoever proposes for an earlier life of a broker proposes in vain: STALE_BROKER_EPOCH
B3  broker epochs are versions: a later registration has a larger one (rules 2 and 68)
B4  damage that is reported ends every claim of that broker to the partition, and makes every
    in-sync set vain that was asked for before; only fetches that come later bring it back
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ottla.controller.commands import (
    NO_BROKER_EPOCH,
    BeginShutdown,
    FenceBroker,
    ForgetBroker,
    Partitions,
    RegisterBroker,
    ReportDamage,
    TakeOffice,
    UnfenceBroker,
)
from ottla.controller.election import Terms, active_brokers, settle, terms_of
from ottla.controller.image import BrokerInfo, MetadataImage, PartitionInfo, TopicInfo
from ottla.controller.outcome import Outcome
from ottla.controller.partitions import change_all, retuned, with_topics
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import INT32_MAX, BrokerId
from ottla.proto.kafka.uuids import ZERO_UUID

_PORT_MAX: Final = 65_535


# ── Registration ──────────────────────────────────────────────────────────────────────────────


def register_broker(image: MetadataImage, command: RegisterBroker) -> tuple[MetadataImage, Outcome]:
    if command.cluster_id != image.cluster_id:
        raise RequestError(ErrorCode.INCONSISTENT_CLUSTER_ID)
    old = image.brokers.get(command.broker_id)
    if old is not None and old.incarnation == command.incarnation != ZERO_UUID:
        # Asked again because the answer was lost: it is the same life still.
        return image, Outcome(epoch=old.broker_epoch)
    _require_expected(old, command)
    _require_good_registration(image, command)
    epoch = image.version + 1
    brokers = {**image.brokers, command.broker_id: _registered(command, epoch)}
    registered = replace(image, brokers=dict(sorted(brokers.items())))

    def leave(_: TopicInfo, partition: PartitionInfo, terms: Terms) -> PartitionInfo:
        if command.broker_id not in partition.isr and command.broker_id not in partition.elr:
            return partition
        kept = _keeps_claim(old, command, partition)
        return settle(partition, terms, lost=() if kept else (command.broker_id,))

    return _changed(registered, change_all(registered, leave), Outcome(epoch=epoch))


def _require_expected(old: BrokerInfo | None, command: RegisterBroker) -> None:
    # Whoever proposed this has seen the end of the life that it replaces. A copy that was delayed
    # would end another, later one.
    present = NO_BROKER_EPOCH if old is None else old.broker_epoch
    if command.expected_epoch != present:
        raise RequestError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Broker {command.broker_id} has registered meanwhile, at version {present}.",
        )


def _require_good_registration(image: MetadataImage, command: RegisterBroker) -> None:
    if command.feature_level_max < image.feature_level:
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The cluster is at feature level {image.feature_level}, and the broker knows those up "
            f"to {command.feature_level_max}.",
        )
    sharing = [
        other.broker_id
        for other in image.brokers.values()
        if other.directory_id == command.directory_id and other.broker_id != command.broker_id
    ]
    problem = ""
    if not 0 <= command.broker_id <= INT32_MAX:
        problem = f"A broker's id is from 0 to {INT32_MAX}."
    elif ZERO_UUID in (command.incarnation, command.directory_id):
        problem = "A broker has an incarnation and a directory id."
    elif not all(1 <= port <= _PORT_MAX for port in _ports(command)):
        problem = "A broker's ports are from 1 to 65535."
    elif sharing:
        problem = f"Broker {sharing[0]} has the same directory id: one is a copy of the other."
    if problem:
        raise RequestError(ErrorCode.INVALID_REGISTRATION, problem)


def _ports(command: RegisterBroker) -> tuple[int, ...]:
    return command.port, command.internal_port, *(one.port for one in command.endpoints)


def _registered(command: RegisterBroker, epoch: int) -> BrokerInfo:
    return BrokerInfo(
        broker_id=command.broker_id,
        host=command.host,
        port=command.port,
        rack=command.rack,
        broker_epoch=epoch,
        incarnation=command.incarnation,
        directory_id=command.directory_id,
        boot_id=command.boot_id,
        is_fenced=True,
        internal_host=command.internal_host,
        internal_port=command.internal_port,
        feature_level_max=command.feature_level_max,
        endpoints=command.endpoints,
    )


def _keeps_claim(old: BrokerInfo | None, command: RegisterBroker, partition: PartitionInfo) -> bool:
    """Whether what the broker held when it was last here is still on its disk (rule 8)."""
    if old is None or old.directory_id != command.directory_id:
        return False
    return (
        # There is no better copy to wait for.
        len(partition.replicas) == 1
        or command.previous_epoch == old.broker_epoch
        or partition.is_durable
        or (old.boot_id == command.boot_id != ZERO_UUID)
    )


# ── Fencing ───────────────────────────────────────────────────────────────────────────────────


def fence_broker(image: MetadataImage, command: FenceBroker) -> tuple[MetadataImage, Outcome]:
    broker = _require_broker(image, command.broker_id, command.broker_epoch)
    if broker.is_fenced:
        return image, Outcome()
    return _leave(image, replace(broker, is_fenced=True))


def begin_shutdown(image: MetadataImage, command: BeginShutdown) -> tuple[MetadataImage, Outcome]:
    broker = _require_broker(image, command.broker_id, command.broker_epoch)
    if broker.shutdown_version is not None:
        return image, Outcome(epoch=broker.shutdown_version)
    version = image.version + 1
    changed, outcome = _leave(image, replace(broker, shutdown_version=version))
    return changed, replace(outcome, epoch=version)


def _leave(image: MetadataImage, broker: BrokerInfo) -> tuple[MetadataImage, Outcome]:
    """Return the image in which the broker, not active any more, is in no in-sync set."""
    left = replace(image, brokers={**image.brokers, broker.broker_id: broker})

    def change(_: TopicInfo, partition: PartitionInfo, terms: Terms) -> PartitionInfo:
        return settle(partition, terms) if broker.broker_id in partition.isr else partition

    return _changed(left, change_all(left, change), Outcome())


def report_damage(image: MetadataImage, command: ReportDamage) -> tuple[MetadataImage, Outcome]:
    # Nothing here remembers the damage. A leader asks for an in-sync set with somebody new in it
    # only after a fetch of that one (rule 37), and a replica that has failed does not fetch. A
    # fetch that was long under way may still bring it back; then it reports again.
    # That a broker which serves may report is not a feature level of its own: no version was
    # released that would refuse it, so all who apply this command do the same.
    _require_broker(image, command.broker_id, command.broker_epoch)
    topics = _without_claims(image, command.broker_id, command.damaged)
    return (_changed(image, topics, Outcome())) if topics else (image, Outcome())


def unfence_broker(image: MetadataImage, command: UnfenceBroker) -> tuple[MetadataImage, Outcome]:
    broker = _require_broker(image, command.broker_id, command.broker_epoch)
    if command.applied_version < broker.broker_epoch:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"The broker has followed the metadata to version {command.applied_version}, and "
            f"registered at {broker.broker_epoch}.",
        )
    if not broker.is_fenced:
        return image, Outcome()
    damaged = _without_claims(image, command.broker_id, command.damaged)
    brokers = {**image.brokers, command.broker_id: replace(broker, is_fenced=False)}
    topics = {**image.topics, **{topic.name: topic for topic in damaged}}
    unfenced = replace(image, brokers=brokers, topics=topics)

    def change(_: TopicInfo, partition: PartitionInfo, terms: Terms) -> PartitionInfo:
        # Where somebody leads, this broker has to catch up before anything changes.
        is_waiting = partition.leader is None and command.broker_id in partition.replicas
        return settle(partition, terms) if is_waiting else partition

    elected = change_all(unfenced, change)
    changed = {topic.name: topic for topic in (*damaged, *elected)}
    return _changed(unfenced, list(changed.values()), Outcome())


def _without_claims(
    image: MetadataImage, broker_id: BrokerId, damaged: Partitions
) -> list[TopicInfo]:
    """Return the topics of which the broker's disk turned out to lack something."""
    if not damaged:
        return []
    indexes = {topic_id: frozenset(numbers) for topic_id, numbers in damaged.items()}
    active = active_brokers(image)
    changed = []
    for topic in filter(None, map(image.topic_by_id, indexes)):
        terms = terms_of(image, topic, active)
        partitions = tuple(
            _without_claim(one, broker_id, terms) if index in indexes[topic.topic_id] else one
            for index, one in enumerate(topic.partitions)
        )
        if partitions != topic.partitions:
            changed.append(replace(topic, partitions=partitions))
    return changed


def _without_claim(partition: PartitionInfo, broker_id: BrokerId, terms: Terms) -> PartitionInfo:
    # The sole replica leads whatever it has: there is no better copy to wait for (rule 8).
    if len(partition.replicas) == 1 or broker_id not in partition.replicas:
        return partition
    settled = settle(partition, terms, lost=(broker_id,))
    # Also if it had no claim: a leader may have asked for one, before it knew.
    return replace(settled, partition_epoch=partition.partition_epoch + 1)


def forget_broker(image: MetadataImage, command: ForgetBroker) -> tuple[MetadataImage, Outcome]:
    broker = _require_broker(image, command.broker_id, command.broker_epoch)
    if not broker.is_fenced:
        raise RequestError(ErrorCode.INVALID_REQUEST, "The broker is up; stop it first.")
    for topic in image.topics.values():
        if any(broker.broker_id in one.replicas for one in topic.partitions):
            sentence = f"The broker holds partitions of the topic {topic.name!r}."
            raise RequestError(ErrorCode.INVALID_REQUEST, sentence)
    brokers = {key: one for key, one in image.brokers.items() if key != broker.broker_id}
    return replace(image, version=image.version + 1, brokers=brokers), Outcome()


# ── The office ────────────────────────────────────────────────────────────────────────────────


def take_office(image: MetadataImage, command: TakeOffice) -> tuple[MetadataImage, Outcome]:
    """Every node goes by the defaults of the active controller, or rule 17 would not be safe."""
    if command.expected_epoch != image.controller_epoch:
        raise RequestError(
            ErrorCode.NOT_CONTROLLER,
            f"Node {image.controller_id} has taken office at version {image.controller_epoch}.",
        )
    epoch = image.version + 1
    after = replace(
        image,
        controller_id=command.node_id,
        controller_epoch=epoch,
        defaults=command.defaults,
    )
    topics: list[TopicInfo] = []
    if image.defaults != command.defaults:
        tuned = ((topic, retuned(image, after, topic)) for topic in image.topics.values())
        topics = [new for old, new in tuned if new is not old]
    return _changed(after, topics, Outcome(epoch=epoch))


def _require_broker(image: MetadataImage, broker_id: BrokerId, epoch: int) -> BrokerInfo:
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise RequestError(ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.broker_epoch != epoch:
        raise RequestError(ErrorCode.STALE_BROKER_EPOCH)
    return broker


def _changed(
    image: MetadataImage, topics: list[TopicInfo], outcome: Outcome
) -> tuple[MetadataImage, Outcome]:
    names = tuple(topic.name for topic in topics)
    return with_topics(image, topics), replace(outcome, topics=names)
