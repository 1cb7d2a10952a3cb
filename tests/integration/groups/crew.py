"""Members of one group, each a real client in a thread of its own, and what they have read.

Every member notes what it reads, and commits after that: so nothing may be missing in the end, and
whatever was committed must not be read again by whoever comes later.
"""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import aiokafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from confluent_kafka import Consumer, KafkaException, TopicPartition

import ottla
from ottla.proto.errors import OttlaError
from tests.integration.nodes import wait_until

with warnings.catch_warnings():
    # It reads its message schemas with functions that newer Pythons advise against.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

DEADLINE_S: Final = 60.0
_POLL_S: Final = 0.1
_AT_ONCE: Final = 500
_SESSION_MS: Final = 6_000
# A topic, and the number of one of its partitions.
Place = tuple[str, int]


class Readings:
    """What all members together have read and committed, in the order of one clock.

    By topic and partition: a record of one topic does not stand for one of another.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        # When each offset was read for the first time.
        self.seen: Final[dict[Place, dict[int, float]]] = defaultdict(dict)
        # Who has read what: by place and offset.
        self._readers: Final[dict[tuple[Place, int], set[Member]]] = defaultdict(set)
        # What was acknowledged, and when: offsets before which all is done.
        self._commits: Final[dict[Place, list[tuple[int, float]]]] = defaultdict(list)

    def note(self, place: Place, offset: int, reader: Member | None = None) -> None:
        with self._lock:
            self.seen[place].setdefault(offset, time.monotonic())
            if reader is not None:
                self._readers[place, offset].add(reader)

    def note_commit(self, place: Place, offset: int) -> None:
        """Note that the commit of an offset is acknowledged."""
        with self._lock:
            self._commits[place].append((offset, time.monotonic()))

    def read_s(self, place: Place, offset: int) -> float | None:
        """Return when a record was read first; None if it was not."""
        with self._lock:
            return self.seen[place].get(offset)

    def committed_s(self, place: Place, offset: int) -> float | None:
        """Return when a commit that covers a record was acknowledged first."""
        with self._lock:
            return next((when for end, when in self._commits[place] if end > offset), None)

    def has_all(self, topic: str, ends: dict[int, int]) -> bool:
        """Return whether everything before the ends of a topic's partitions was read."""
        with self._lock:
            return all(self.seen[topic, one].keys() >= set(range(end)) for one, end in ends.items())

    def readers(self, place: Place, offsets: range) -> set[Member]:
        with self._lock:
            return set().union(*(self._readers[place, one] for one in offsets))


class Errand:
    """A thread of a test, from `start` to `stop`. Where it fails, the test fails: `stop` raises."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} ends"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:  # noqa: BLE001  # told by `stop`
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError


class Member(Errand):
    """One consumer. `start`, then `stop` (it leaves) or `vanish` (it is only silent)."""

    def __init__(self, bootstrap: str, group: str, topic: str, into: Readings) -> None:
        super().__init__()
        self.bootstrap: Final = bootstrap
        self.group: Final = group
        # A name, or a pattern that begins with ^.
        self.topic: Final = topic
        self.into: Final = into
        self.instance_id: str | None = None
        # What it reads now, as far as it knows.
        self.owned: frozenset[Place] = frozenset()
        # How long one poll waits for records.
        self.poll_s = _POLL_S
        self._is_polite = True

    def vanish(self) -> None:
        """End without a word: the group finds out by its silence."""
        self._is_polite = False
        self.stop()

    def _run(self) -> None:
        super()._run()
        self.owned = frozenset()


class Confluent(Member):
    """librdkafka."""

    strategy = "range"

    def work(self) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": self.strategy,
            "topic.metadata.refresh.interval.ms": 1_000,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if self.instance_id is not None:
            options["group.instance.id"] = self.instance_id
        consumer = Consumer(options)
        consumer.subscribe([self.topic])
        while not self._ends.is_set():
            records = consumer.consume(_AT_ONCE, self.poll_s)
            self.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
            sound = [one for one in records if one.error() is None]
            for record in sound:
                topic, partition, offset = record.topic(), record.partition(), record.offset()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                self.into.note((topic, partition), offset, self)
            if sound:
                with suppress(KafkaException):
                    # Refused while another node takes over, or somebody joins: it is read again.
                    self._commit(consumer)
        if self._is_polite or self.instance_id is None:
            consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        for one in consumer.commit(asynchronous=False):
            if one.error is None:
                self.into.note_commit((one.topic, one.partition), one.offset)


class Cooperative(Confluent):
    """librdkafka, that gives up only what it must."""

    strategy = "cooperative-sticky"


class _Told(ConsumerRebalanceListener):  # type: ignore[misc] # it has no types
    """Tells a member what it was given at once, and not only when a poll ends."""

    def __init__(self, member: Member) -> None:
        self._member: Final = member

    def on_partitions_assigned(self, assigned: set[Any]) -> None:
        self._member.owned = frozenset((one.topic, one.partition) for one in assigned)

    def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Nothing: all of them are given out anew."""


class KafkaPython(Member):
    """kafka-python."""

    # How long an answer to SyncGroup took, on average.
    sync_ms = 0.0

    def work(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=[RangePartitionAssignor],
            metadata_max_age_ms=1_000,
        )
        if self.topic.startswith("^"):
            consumer.subscribe(pattern=self.topic, listener=_Told(self))
        else:
            consumer.subscribe([self.topic], listener=_Told(self))
        while not self._ends.is_set():
            polled = consumer.poll(timeout_ms=int(self.poll_s * 1000))
            self.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
            for records in polled.values():
                for record in records:
                    self.into.note((record.topic, record.partition), record.offset, self)
            if polled:
                with suppress(KafkaError):
                    consumer.commit()
        self.sync_ms = _sync_ms(consumer)
        consumer.close(autocommit=False)


def _sync_ms(consumer: Any) -> float:
    told = consumer.metrics()["consumer-coordinator-metrics"]["sync-time-avg"]
    return float(told)


class Aio(Member):
    """aiokafka."""

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=_SESSION_MS,
            heartbeat_interval_ms=500,
            partition_assignment_strategy=[AioRange],
            metadata_max_age_ms=1_000,
        )
        if self.topic.startswith("^"):
            consumer.subscribe(pattern=self.topic)
        else:
            consumer.subscribe([self.topic])
        await consumer.start()
        try:
            while not self._ends.is_set():
                polled = await consumer.getmany(timeout_ms=int(self.poll_s * 1000))
                self.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
                for records in polled.values():
                    for record in records:
                        self.into.note((record.topic, record.partition), record.offset, self)
                if polled:
                    with suppress(aiokafka.errors.KafkaError):
                        await consumer.commit()
        finally:
            await consumer.stop()


class Own(Member):
    """Ours."""

    def work(self) -> None:
        options: dict[str, object] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": 500,
            "partition.assignment.strategy": "range",
            "metadata.max.age.ms": 1_000,
        }
        if self.instance_id is not None:
            options["group.instance.id"] = self.instance_id
        with ottla.Consumer(options) as consumer:
            consumer.subscribe(self.topic)
            while not self._ends.is_set():
                records = consumer.consume(_AT_ONCE, self.poll_s)
                self.owned = frozenset((one.topic, one.partition) for one in consumer.assignment())
                for record in records:
                    self.into.note((record.topic, record.partition), record.offset, self)
                if records:
                    with suppress(OttlaError):
                        consumer.commit()


CLIENTS: Final[dict[str, type[Member]]] = {
    "confluent-kafka": Confluent,
    "confluent-kafka, cooperative": Cooperative,
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
    "ours": Own,
}


def until(holds: Callable[[], bool], what: str) -> None:
    wait_until(holds, DEADLINE_S, what)


def share_out(members: list[Member], count: int, topic: str) -> None:
    """Wait until each partition is read by exactly one member, and each member reads something."""

    def holds() -> bool:
        owned = [one for member in members for one in member.owned]
        everything = {(topic, index) for index in range(count)}
        is_busy = all(member.owned for member in members)
        return len(owned) == count and set(owned) == everything and is_busy

    until(holds, f"{len(members)} members share {count} partitions of {topic}")


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int] | None:
    """Return the committed offsets, or None while nobody can tell."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    try:
        asked = [TopicPartition(topic, index) for index in range(partitions)]
        told = consumer.committed(asked, timeout=5)
    except KafkaException:
        return None
    finally:
        consumer.close()
    return {one.partition: one.offset for one in told}
