"""Which replica a request may use, and where the leader is if it is not here.

Records are written and read at the leader. One function finds it, for every request; who asks the
wrong node is told so, and by the newer versions of Produce and Fetch also whom to ask (KIP-951), so
that a client finds a new leader without asking for the metadata first.

Not here: who leads (the metadata), and what a replica does (`ottla.replication`).

E1  a replica that does not lead, as far as this node knows, is given to nobody
E2  who knows another leader epoch than this node is told so before anything else (KIP-320)
E3  a leader that has lost the controllers, and may have been replaced, writes nothing,
    acknowledges nothing and says nothing of its end; what is committed may be read (rule 13)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.controller.election import terms_of
from ottla.controller.image import MetadataImage, PartitionInfo
from ottla.controller.serving import electable_others, standing
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import NO_EPOCH, BrokerId, LeaderEpoch
from ottla.proto.kafka.hot import Endpoint
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options import node
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_UNKNOWN_PARTITION: Final = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_UNKNOWN_ID: Final = RequestError(ErrorCode.UNKNOWN_TOPIC_ID)


def led_here(broker: Broker, topic: str, index: int, epoch: int = NO_EPOCH) -> Replica:
    """Return the replica that leads a partition on this broker, or raise `RequestError`.

    What is committed may be read of it. Who writes, or looks at its end, also needs
    `require_standing`. `epoch` is the leader epoch that a client knows; −1 knows none.
    """
    replica = broker.replicas.get(topic, index)
    if replica is None:
        raise _absence(broker, topic, index)
    # After a failover of many it may be one of the last to hear that it leads, or does no longer.
    broker.hurry(replica.partition)
    if epoch not in (NO_EPOCH, replica.leader_epoch):
        is_old = epoch < replica.leader_epoch
        raise RequestError(
            ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
        )
    if replica.leader is None:
        raise _no_leader(broker, replica)
    if replica.log.offline is not None:
        raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, replica.log.offline)
    return replica


def require_standing(broker: Broker, replica: Replica) -> None:
    """Raise NOT_LEADER_OR_FOLLOWER if another may lead by now, unheard (rule 13).

    For whatever writes, acknowledges, or tells where the log ends.
    """
    if not broker.is_heard():
        _require_unreplaced(broker, replica)


def _require_unreplaced(broker: Broker, replica: Replica) -> None:
    image, name, core = broker.controller.image, replica.partition, replica.leader
    topic, partition = image.topic(name.topic), _partition(image, name.topic, name.partition)
    if core is None or topic is None or partition is None:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.leader_epoch > core.leader_epoch:
        # The metadata is here already, and the replica hears of it in a moment.
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if replica.is_sole:
        return
    # A set that was proposed, and of which nobody knows what became, may be the committed one.
    others = {*electable_others(partition, broker.node_id), *core.maximal_isr} - {broker.node_id}
    found = standing(
        is_heard=False,
        fetched_ms={one: replica.heard_ms(one) for one in others},
        is_unclean_allowed=terms_of(image, topic, frozenset()).is_unclean_allowed,
        session_ms=broker.options.current.value_of(node.BROKER_SESSION_TIMEOUT_MS),
        now_ms=broker.clock.monotonic_ms(),
    )
    if not found.may_serve:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, found.sentence)


def _no_leader(broker: Broker, replica: Replica) -> RequestError:
    """Return why a replica that is here does not lead."""
    if replica.failure is not None:
        name = replica.partition
        partition = _partition(broker.controller.image, name.topic, name.partition)
        if partition is not None and partition.leader == broker.node_id:
            # It should, and must not: it may lack what is committed (rule 44).
            return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, replica.failure)
    return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _absence(broker: Broker, topic: str, index: int) -> RequestError:
    """Return why there is no replica here."""
    partition = _partition(broker.controller.image, topic, index)
    if partition is None:
        return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader == broker.node_id:
        # Its log is lost; or it is new, and its log is being made at this moment.
        return broker.replicas.refusal(topic, index)
    return RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def name_of(
    image: MetadataImage, name: str | None, topic_id: UUID | None
) -> tuple[str | None, RequestError]:
    """Return the name of a topic that is there, given either; and what to say if it is None."""
    if name is not None:
        return name if name in image.topics else None, _UNKNOWN_PARTITION
    found = None if topic_id is None else image.topic_names.get(topic_id)
    return found, _UNKNOWN_ID


def leader_of(
    image: MetadataImage, topic: str | None, index: int
) -> tuple[BrokerId, LeaderEpoch] | None:
    """Return who leads a partition and in which epoch, or None if nobody does."""
    partition = None if topic is None else _partition(image, topic, index)
    if partition is None or partition.leader is None:
        return None
    return partition.leader, partition.leader_epoch


def endpoints_of(
    image: MetadataImage, leaders: Iterable[BrokerId], listener: str
) -> list[Endpoint]:
    """Return where clients of a listener reach brokers, each once; without those out of reach."""
    brokers = [image.brokers.get(one) for one in sorted(set(leaders))]
    return [
        (one.broker_id, *one.address_for(listener), one.rack)
        for one in brokers
        if one is not None and not one.is_fenced
    ]


def _partition(image: MetadataImage, topic: str, index: int) -> PartitionInfo | None:
    info = image.topic(topic)
    if info is None or not 0 <= index < len(info.partitions):
        return None
    return info.partitions[index]
