"""This node as a coordinator of groups: the partitions of `__consumer_offsets` that it leads.

Whoever leads a partition of that topic coordinates the groups in it. So this follows the replicas
here: one that begins to lead is loaded, one that stops is let go of at once.

C1  a group is served by the ledger of its partition, or by nobody
C2  who asks for a coordinator that is gone, as far as can be seen from here, waits a moment for the
    next one: a client that is sent to a dead node needs longer to come back than that takes
C3  the topic is made once, on first need, and with the replicas it is to have for ever

Not here: what a ledger does (`ledger.py`), and requests (`node/kafka`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from ottla.controller.image import MetadataImage, TopicInfo
from ottla.controller.port import NewTopic
from ottla.node.groups.group import Group
from ottla.node.groups.ledger import Ledger, World
from ottla.node.groups.places import GROUP_ID_MAX, OFFSETS_TOPIC, partition_of
from ottla.node.groups.readings import readings_of
from ottla.node.groups.words import Reason, Terms
from ottla.node.kafka.leading import require_standing
from ottla.node.logs import logger
from ottla.node.metrics import Reading
from ottla.proto.errors import CorruptionError, ErrorCode, RequestError, StorageError
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
# After a load that failed.
_AGAIN_S: Final = 1.0
_CONTROLLER: Final = "controller"
# So long is waited for another coordinator, and so often it is looked (C2).
PATIENCE_S: Final = 0.5
_LOOK_S: Final = 0.02

T = TypeVar("T")


class Groups:
    """All groups that this broker coordinates. `start` and `stop` once."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self.ledgers: Final[dict[int, Ledger]] = {}
        self.rebalances: Final[dict[Reason, int]] = dict.fromkeys(Reason, 0)
        self._world: Final = World(
            clock=broker.clock,
            terms=self._terms,
            require_standing=lambda replica: require_standing(broker, replica),
            on_a_thread=_on_a_thread,
            count_rebalance=self._count,
            is_topic=lambda name: name in broker.controller.image.topics,
            topics=self._known_topics,
        )
        # As far as the metadata were noted here; None: not yet.
        self._topics: Mapping[str, UUID] | None = None
        self._noted_version = -1
        self._tasks: Final[set[asyncio.Task[None]]] = set()
        self._making: asyncio.Task[None] | None = None
        self._is_stopped = False

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
        self._look_at_all()
        self._spawn(self._expire_for_ever())

    async def stop(self) -> None:
        """Tell everybody who waits that another one coordinates."""
        self._is_stopped = True
        for ledger in self.ledgers.values():
            ledger.close()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self, replica: Replica) -> None:
        """A replica has begun to lead, or to follow, or has failed."""
        if replica.partition.topic == OFFSETS_TOPIC and not self._is_stopped:
            self._look(replica.partition.partition, replica)

    async def obey(self, image: MetadataImage) -> None:
        """Look at everything, and let go of offsets in topics that are gone."""
        self._note(image)
        self._look_at_all()

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

    def _look_at_all(self) -> None:
        topic = self._broker.controller.image.topic(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        for index in {*range(count), *self.ledgers}:
            self._look(index, self._broker.replicas.get(OFFSETS_TOPIC, index))

    def _look(self, index: int, replica: Replica | None) -> None:
        ledger = self.ledgers.get(index)
        if ledger is not None and (ledger.replica is not replica or not ledger.is_led):
            ledger.close()
            del self.ledgers[index]
            ledger = None
        if ledger is None and replica is not None and replica.is_leader and not self._is_stopped:
            ledger = self.ledgers[index] = Ledger(replica, self._world)
            self._spawn(self._load(ledger))

    async def _load(self, ledger: Ledger) -> None:
        while ledger.is_led:
            try:
                await ledger.load()
            except (StorageError, CorruptionError, RequestError) as error:
                _tell_not_loaded(ledger, error)
                await asyncio.sleep(_AGAIN_S)
            else:
                return

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
        """Return the topic of groups, made now if there is none; raises `RequestError`.

        It is waited for until that time; it is made all the same, for whoever asks again.
        """
        found = self._broker.controller.image.topic(OFFSETS_TOPIC)
        if found is not None:
            return found
        if self._making is None:
            self._making = self._spawn(self._make(client))
        making = self._making
        left_s = max(0.0, until_s - asyncio.get_running_loop().time())
        await asyncio.wait({making}, timeout=left_s)
        found = self._broker.controller.image.topic(OFFSETS_TOPIC)
        if found is None:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found

    async def leader_of(self, info: TopicInfo, group: str, until_s: float) -> BrokerId | None:
        """Return who coordinates a group, waited for until that time if need be (C2)."""
        loop = asyncio.get_running_loop()
        while True:
            leader = info.partitions[partition_of(group, len(info.partitions))].leader
            if self._is_in_reach(leader) or loop.time() >= until_s:
                return leader
            await asyncio.sleep(_LOOK_S)
            # Deleted meanwhile: what was last known.
            info = self._broker.controller.image.topic(OFFSETS_TOPIC) or info

    def _is_in_reach(self, leader: BrokerId | None) -> bool:
        known = None if leader is None else self._broker.controller.image.brokers.get(leader)
        if leader is None or known is None or known.is_fenced:
            return False
        return not self._broker.is_out_of_reach(leader)

    async def _make(self, client: str) -> None:
        try:
            (made,) = await self._broker.controller.create_topics(
                [self._wanted()], validate_only=False, client=client
            )
        finally:
            self._making = None
        if isinstance(made, RequestError) and made.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            _log.warning("groups_have_no_topic", error=made.code.name, why=made.sentence)

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
                of(node.OFFSETS_TOPIC_REPLICATION_FACTOR), self._configured_nodes()
            ),
            configs=configs,
        )

    def _configured_nodes(self) -> int:
        """How many nodes there are to be, also those that are down at this moment (C3)."""
        static = self._broker.options.static.value_of
        # Where controllers are brokers too, all of them will be: this one is.
        is_combined = _CONTROLLER in static(node.PROCESS_ROLES)
        voters = len(static(node.CONTROLLER_VOTERS)) if is_combined else 0
        return max(1, voters, len(self._broker.controller.image.brokers))

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            what = {"message": "a task of groups failed", "exception": error}
            task.get_loop().call_exception_handler(what)


def require_group_id(group: str) -> None:
    """Refuse what is too long for a name: Kafka's limit is the 32,767 bytes of a text."""
    if len(group) > GROUP_ID_MAX:
        sentence = f"A group's name has at most {GROUP_ID_MAX} characters, not {len(group)}."
        raise RequestError(ErrorCode.INVALID_GROUP_ID, sentence)


def _tell_not_loaded(ledger: Ledger, error: Exception) -> None:
    # Who leads no more has nothing to load, and that is no error.
    if ledger.is_led:
        where = str(ledger.replica.partition)
        _log.error("groups_not_loaded", partition=where, error=str(error))


def _ids_of(image: MetadataImage) -> dict[str, UUID]:
    return {name: topic.topic_id for name, topic in image.topics.items()}


async def _on_a_thread(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
