"""This node as a coordinator of groups: the partitions of `__consumer_offsets` that it leads.

Whoever leads a partition of that topic coordinates the groups in it. So this follows the replicas
here: one that begins to lead is loaded, one that stops is let go of at once.

C1  a group is served by the ledger of its partition, or by nobody
C2  offsets in topics that are gone are let go of before anything is served from newer metadata

Not here: which ledgers there are (`ledgers.py`), what one does (`ledger.py`), the topic
(`own_topic.py`), and requests (`node/kafka`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger, World
from ottla.node.groups.ledgers import Ledgers, on_a_thread
from ottla.node.groups.own_topic import OwnTopic, configured_nodes
from ottla.node.groups.places import GROUP_ID_MAX, OFFSETS_TOPIC, partition_of
from ottla.node.groups.readings import readings_of
from ottla.node.groups.words import Reason, Terms
from ottla.node.kafka.leading import require_standing
from ottla.node.logs import logger
from ottla.node.metrics import Reading
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.uuids import UUID
from ottla.proto.options import node
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("groups")

# offsets.retention.check.interval.ms, as Kafka has it.
_EXPIRY_S: Final = 600.0
_MINUTE_MS: Final = 60 * 1000


class Groups:
    """All groups that this broker coordinates. `start` and `stop` once."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._led: Final = Ledgers(broker, OFFSETS_TOPIC, self._new_ledger)
        self.ledgers: Final[dict[int, Ledger]] = self._led.by_index
        self._topic: Final = OwnTopic(broker, OFFSETS_TOPIC, self._wanted)
        self.rebalances: Final[dict[Reason, int]] = dict.fromkeys(Reason, 0)
        self._world: Final = World(
            clock=broker.clock,
            terms=self._terms,
            require_standing=lambda replica: require_standing(broker, replica),
            on_a_thread=on_a_thread,
            count_rebalance=self._count,
            is_topic=lambda name: name in broker.controller.image.topics,
            topics=self._known_topics,
        )
        # As far as the metadata were noted here; None: not yet.
        self._topics: Mapping[str, UUID] | None = None
        self._noted_version = -1

    def _new_ledger(self, replica: Replica) -> Ledger:
        return Ledger(replica, self._world)

    def _terms(self) -> Terms:
        of = self._broker.options.current.value_of
        return Terms(
            initial_delay_ms=of(node.GROUP_INITIAL_REBALANCE_DELAY_MS),
            size_max=of(node.GROUP_MAX_SIZE),
        )

    def _count(self, reason: Reason) -> None:
        self.rebalances[reason] += 1

    # ── Following the replicas ────────────────────────────────────────────────────────────────

    def _known_topics(self) -> Mapping[str, UUID]:
        if self._topics is None:
            image = self._broker.controller.image
            self._topics, self._noted_version = _ids_of(image), image.version
        return self._topics

    def start(self) -> None:
        self._known_topics()
        self._led.look_at_all()
        self._led.spawn(self._expire_for_ever())

    async def stop(self) -> None:
        """Tell everybody who waits that another one coordinates."""
        await self._led.stop()
        await self._topic.stop()

    def look(self, replica: Replica) -> None:
        """A replica has begun to lead, or to follow, or has failed."""
        self._led.look(replica)

    async def obey(self, image: MetadataImage) -> None:
        """Look at everything, and let go of offsets in topics that are gone."""
        self._note(image)
        self._led.look_at_all()

    def _note(self, image: MetadataImage) -> None:
        """Let go of offsets in topics that are gone.

        Before anything is served from an image, also if others still obey it:
            1. a topic is deleted and made again, and this node hears of both at once
            2. somebody commits an offset in the new one
            3. the offsets of the old one go, and this one with them
        """
        before = self._known_topics()
        if image.version <= self._noted_version:
            return
        now = _ids_of(image)
        self._topics, self._noted_version = now, image.version
        gone = frozenset(name for name, known in before.items() if now.get(name) != known)
        for ledger in self.ledgers.values():
            ledger.forget_topics(gone)

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(_EXPIRY_S)
            await self.expire()

    async def expire(self) -> None:
        """Let go of what offsets.retention.minutes says is too old."""
        minutes = self._broker.options.current.value_of(node.OFFSETS_RETENTION_MINUTES)
        for ledger in list(self.ledgers.values()):
            gone = ledger.expire(minutes * _MINUTE_MS)
            if gone:
                _log.info("offsets_expired", partition=str(ledger.replica.partition), count=gone)
            await asyncio.sleep(0)

    # ── For requests ──────────────────────────────────────────────────────────────────────────

    def ledger_of(self, group: str) -> Ledger:
        """Return the ledger that serves a group, or raise `RequestError` (C1)."""
        require_group_id(group)
        image = self._broker.controller.image
        self._note(image)
        topic = image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        ledger = self.ledgers.get(partition_of(group, len(topic.partitions)))
        if ledger is None:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        ledger.require()
        return ledger

    def readings(self) -> list[Reading]:
        return list(readings_of(self._broker, self))

    def all(self) -> Iterator[tuple[Ledger, Group]]:
        """Yield every group here; raises `RequestError` while some are being loaded."""
        for ledger in list(self.ledgers.values()):
            if not ledger.is_led:
                continue
            ledger.require()
            for group in list(ledger.groups.values()):
                yield ledger, group

    async def topic(self, client: str, until_s: float) -> TopicInfo:
        """Return the topic of groups, made now if there is none; raises `RequestError`."""
        return await self._topic.info(client, until_s)

    async def leader_of(self, info: TopicInfo, group: str, until_s: float) -> BrokerId | None:
        """Return who coordinates a group, waited for until that time if need be."""
        index = partition_of(group, len(info.partitions))
        return await self._topic.leader_of(info, index, until_s)

    def _wanted(self) -> NewTopic:
        of = self._broker.options.current.value_of
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(of(node.OFFSETS_TOPIC_SEGMENT_BYTES)),
        }
        return NewTopic(
            OFFSETS_TOPIC,
            partitions=of(node.OFFSETS_TOPIC_PARTITIONS),
            replication_factor=min(
                of(node.OFFSETS_TOPIC_REPLICATION_FACTOR), configured_nodes(self._broker)
            ),
            configs=configs,
        )


def require_group_id(group: str) -> None:
    """Refuse what is too long for a name: Kafka's limit is the 32,767 bytes of a text."""
    if len(group) > GROUP_ID_MAX:
        sentence = f"A group's name has at most {GROUP_ID_MAX} characters, not {len(group)}."
        raise RequestError(ErrorCode.INVALID_GROUP_ID, sentence)


def _ids_of(image: MetadataImage) -> dict[str, UUID]:
    return {name: topic.topic_id for name, topic in image.topics.items()}
