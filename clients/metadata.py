"""What a client knows of the cluster: brokers, topics, leaders. A core: it is told, and it tells.

An address book that is allowed to be wrong. Whoever finds a wrong entry says so, and it is asked
for again; it is never asked for more often than the back-off allows.

M1  the leader of a partition never goes back to an older epoch, whoever tells of it (KIP-951)
M2  a name that comes back with another id is another topic: nothing is kept of the one before
M3  a topic is asked for only while somebody has named it with `want`; an answer about others is
    remembered as well, and forgotten when `forget` is called
M4  `due_ms` says when to ask next: at once if something is wrong or wanted, but not within
    `backoff_ms` of the last question; else at the age `max_age_ms`

Not here: asking (`cluster.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ottla.proto.errors import ErrorCode
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID
from ottla.proto.options.endpoints import Address

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """One broker, as the cluster tells clients of it."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: who leads it, and who holds it."""

    topic: str
    partition: int
    # NO_LEADER if there is none at the moment.
    leader: int
    # -1 where the broker is too old to tell.
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One topic: its partitions in order of their numbers."""

    name: str
    # ZERO_UUID where the broker is too old to tell.
    topic_id: UUID
    partitions: tuple[PartitionInfo, ...]
    is_internal: bool = False


class MetadataCache:
    """The address book of one client."""

    def __init__(self, *, max_age_ms: float, backoff_ms: float) -> None:
        self._max_age_ms: Final = max_age_ms
        self._backoff_ms: Final = backoff_ms
        self.brokers: dict[int, BrokerInfo] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        self.topics: Final = dict[str, TopicInfo]()
        self._names: Final = dict[UUID, str]()
        # What was said of a topic that is not there, the last time it was asked for.
        self.errors: Final = dict[str, ErrorCode]()
        self._wanted: Final = set[str]()
        self._asked_ms: float | None = None
        self._known_ms: float | None = None
        self._stale = True

    # --- what is known ---

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def leader_of(self, topic: str, partition: int) -> PartitionInfo | None:
        """Return the partition if it is known and has a leader that can be reached."""
        found = self.topics.get(topic)
        if found is None or not 0 <= partition < len(found.partitions):
            return None
        one = found.partitions[partition]
        return one if one.leader in self.brokers else None

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)

    def broker(self, node_id: int) -> BrokerInfo | None:
        return self.brokers.get(node_id)

    @property
    def wanted(self) -> frozenset[str]:
        return frozenset(self._wanted)

    # --- what is asked for ---

    def want(self, *names: str) -> None:
        """Ask for these from now on; one that is not known yet makes the next question due."""
        for name in names:
            if name not in self._wanted:
                self._wanted.add(name)
                if name not in self.topics:
                    self._stale = True

    def forget(self, *names: str) -> None:
        for name in names:
            self._wanted.discard(name)
            self._remove(name)

    def mark_stale(self) -> None:
        """Say that something in here turned out to be wrong."""
        self._stale = True

    def due_ms(self, now_ms: float) -> float:
        """Return when to ask next; in the past means now (M4)."""
        if self._stale or self._known_ms is None:
            return now_ms if self._asked_ms is None else self._asked_ms + self._backoff_ms
        return self._known_ms + self._max_age_ms

    def asked(self, now_ms: float) -> None:
        """Note that a question is under way. What turns out wrong from now on is asked again."""
        self._asked_ms = now_ms
        self._stale = False

    def failed(self) -> None:
        """Note that the question was not answered."""
        self._stale = True

    # --- what is told ---

    def update(self, answer: Message, now_ms: float, *, whole: bool = False) -> None:
        """Take the answer to a Metadata request; `whole` if it was about all topics."""
        self._known_ms = now_ms
        self.cluster_id = answer.get("cluster_id", self.cluster_id)
        self.controller_id = answer.get("controller_id", self.controller_id)
        if answer.brokers:
            self.brokers = {
                one.node_id: BrokerInfo(one.node_id, one.host, one.port, one.get("rack"))
                for one in answer.brokers
            }
        seen = set[str]()
        for topic in answer.topics:
            if topic.name is not None:
                seen.add(topic.name)
                self._take_topic(topic)
        if whole:
            for name in set(self.topics) - seen:
                self._remove(name)

    def hint(
        self,
        topic: str,
        partition: int,
        leader: int,
        epoch: int,
        endpoints: Iterable[BrokerInfo] = (),
    ) -> bool:
        """Take what a broker says of a partition that it does not lead; return whether it is news.

        A hint with an older epoch, or with a leader nobody knows the address of, is none (M1).
        """
        for one in endpoints:
            self.brokers.setdefault(one.node_id, one)
        found = self.topics.get(topic)
        if leader not in self.brokers or found is None:
            return False
        if not 0 <= partition < len(found.partitions):
            return False
        known = found.partitions[partition]
        if epoch < known.leader_epoch or (epoch == known.leader_epoch and leader == known.leader):
            return False
        told = replace(known, leader=leader, leader_epoch=epoch)
        parts = (*found.partitions[:partition], told, *found.partitions[partition + 1 :])
        self.topics[topic] = replace(found, partitions=parts)
        return True

    def _take_topic(self, told: Message) -> None:
        name: str = told.name
        if told.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self.errors[name] = _code(told.error_code)
            self._remove(name)
            if name in self._wanted:
                self._stale = True
            return
        topic_id = told.get("topic_id", ZERO_UUID)
        before = self.topics.get(name)
        # M2: nothing of another topic of this name, not even its epochs.
        known = before.partitions if before is not None and before.topic_id == topic_id else ()
        parts = _partitions(name, told.partitions, known)
        if not parts:
            # It is being made; there will be partitions soon.
            self.errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
            self._stale = True
            return
        if any(one.leader not in self.brokers for one in parts) and name in self._wanted:
            self._stale = True
        self._remove(name)
        self.errors.pop(name, None)
        self.topics[name] = TopicInfo(name, topic_id, parts, told.get("is_internal", False))
        if topic_id != ZERO_UUID:
            self._names[topic_id] = name

    def _remove(self, name: str) -> None:
        gone = self.topics.pop(name, None)
        if gone is not None:
            self._names.pop(gone.topic_id, None)


def _partitions(
    name: str, told: Sequence[Message], known: Sequence[PartitionInfo]
) -> tuple[PartitionInfo, ...]:
    parts = []
    for index, one in enumerate(sorted(told, key=lambda each: each.partition_index)):
        if one.partition_index != index:
            # Numbers have no gaps. What comes after one is not believed yet.
            break
        epoch = one.get("leader_epoch", -1)
        if index < len(known) and epoch < known[index].leader_epoch:
            parts.append(known[index])
            continue
        parts.append(
            PartitionInfo(
                name,
                index,
                one.leader_id,
                epoch,
                tuple(one.replica_nodes),
                tuple(one.isr_nodes),
                tuple(one.get("offline_replicas", ())),
            )
        )
    return tuple(parts)


def endpoints_of(answer: Message) -> list[BrokerInfo]:
    """Return where the leaders can be reached that an answer hints at (KIP-951)."""
    told: list[Any] = answer.get("node_endpoints") or []
    return [BrokerInfo(one.node_id, one.host, one.port, one.get("rack")) for one in told]


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
