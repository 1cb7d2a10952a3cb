"""Members of a group from four libraries, each driven by a thread of its own, in one language."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from confluent_kafka import Consumer as ConfluentConsumer

from ottla.clients.consumer.sync_consumer import Consumer
from tests.integration.clients_own.consuming import settings

with warnings.catch_warnings():
    # It reads its own files by a way that Python is about to drop.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import (
        CooperativeStickyAssignor as PyCooperative,
    )
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PyRange
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as PyRoundRobin


class Member(Protocol):
    """One member: what it was given, what it holds, and its end."""

    held: set[tuple[str, int]]
    seen: Counter[int]

    def stop(self) -> None: ...


class _Threaded:
    """Runs `step` again and again on a thread, until `stop`."""

    def __init__(self) -> None:
        self.held: set[tuple[str, int]] = set()
        self.seen: Counter[int] = Counter()
        self._stop: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._work, daemon=True)
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert self.error is None, self.error
        self.held = set()

    def _work(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - told by `stop`
            self.error = error

    def run(self) -> None:
        raise NotImplementedError


class OurMember(_Threaded):
    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        self._config: Final = settings(bootstrap, group) | {
            "partition.assignment.strategy": strategy
        }
        self._topic: Final = topic

    def run(self) -> None:
        with Consumer(self._config) as consumer:
            consumer.subscribe(self._topic)
            while not self._stop.is_set():
                for record in consumer.consume(500, 0.1):
                    self.seen[int(record.value)] += 1
                self.held = {(one.topic, one.partition) for one in consumer.assignment()}


class ConfluentMember(_Threaded):
    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        self._config: Final = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": strategy,
            "heartbeat.interval.ms": 200,
            "session.timeout.ms": 6000,
        }
        self._topic: Final = topic

    def run(self) -> None:
        consumer = ConfluentConsumer(self._config)
        consumer.subscribe([self._topic])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, 0.1):
                    if message.error() is None:
                        self.seen[int(message.value() or b"")] += 1
                self.held = {(one.topic, one.partition) for one in consumer.assignment()}
        finally:
            consumer.close()


class KafkaPythonMember(_Threaded):
    ASSIGNORS: Final = {
        "range": PyRange,
        "roundrobin": PyRoundRobin,
        "cooperative-sticky": PyCooperative,
    }

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        self._make: Final[Callable[[], KafkaConsumer]] = lambda: KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[self.ASSIGNORS[strategy]],
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )

    def run(self) -> None:
        consumer = self._make()
        try:
            while not self._stop.is_set():
                for records in consumer.poll(100).values():
                    self.seen.update(int(one.value) for one in records)
                self.held = {(one.topic, one.partition) for one in consumer.assignment()}
        finally:
            consumer.close()


class AioMember(_Threaded):
    ASSIGNORS: Final = {"range": AioRange, "roundrobin": AioRoundRobin}

    def __init__(self, bootstrap: str, group: str, topic: str, strategy: str) -> None:
        super().__init__()
        self._place: Final = (bootstrap, group, topic)
        self._strategy: Final = strategy

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        bootstrap, group, topic = self._place
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            partition_assignment_strategy=[self.ASSIGNORS[self._strategy]],
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
        )
        await consumer.start()
        try:
            while not self._stop.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    self.seen.update(int(one.value) for one in records)
                self.held = {(one.topic, one.partition) for one in consumer.assignment()}
        finally:
            with suppress(Exception):
                await consumer.stop()


MEMBERS: Final[dict[str, Callable[[str, str, str, str], _Threaded]]] = {
    "ottla": OurMember,
    "confluent-kafka": ConfluentMember,
    "kafka-python": KafkaPythonMember,
    "aiokafka": AioMember,
}
