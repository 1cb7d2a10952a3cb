"""librdkafka as producer and consumer, each in a thread of its own.

A producer is several processes of the history, its lanes: each has one write in flight, and all go
through one instance of the library, which gathers them into batches and sends again what it thinks
was lost. It is idempotent, so nothing may be there twice.

What the library reports after several attempts is believed only as far as its least certain attempt
goes: a refusal counts as one only if every attempt would have been refused before anything was
appended. A write that timed out is unknown.

Not here: clients that send once (`raw_producer.py`, `raw_consumer.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place, Shown
from ottla.chaos.payload import decode_payload, encode_payload
from ottla.chaos.runner.raw_producer import NOT_SENT
from ottla.chaos.runner.recorder import ASSIGN, POLL, SEND, Recorder
from ottla.chaos.workload import ALL, ProcessPlan, SendDraw, sends
from ottla.proto.errors import ErrorCode

# Longer than most outages here, and shorter than the end of a run.
_DELIVERY_MS: Final = 20_000
_FLUSH_S: Final = 22.0
_LET_GO_S: Final = 1.0
_JOIN_S: Final = 30.0
# Less than 0.2: see `hear`.
_WAKE_S: Final = 0.1
_POLL_RECORDS: Final = 500
_NO_GROUP: Final = "ottla-chaos"
QUICK: Final = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "socket.timeout.ms": 6_000,
    "topic.metadata.refresh.interval.ms": 5_000,
    "log_level": 0,
}
# What an earlier attempt would have been told as well. The library tries again after any other.
REFUSED_ALWAYS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


@dataclass(slots=True)
class _Lane:
    """One process of the history."""

    name: str
    draws: Iterator[SendDraw]
    due_s: float
    counter: int = 0
    is_busy: bool = False


class ForeignClient:
    """A thread with a client in it; a subclass says in `_live` what it does until `is_over`."""

    def __init__(self, plan: ProcessPlan, bootstrap: str, recorder: Recorder) -> None:
        self.plan: Final = plan
        self.failure: str | None = None
        self._bootstrap: Final = bootstrap
        self._recorder: Final = recorder
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._run, name=plan.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        self._over.set()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            self.failure = f"{self.plan.name}: it does not end"

    def _run(self) -> None:
        try:
            self._live()
        except Exception as error:  # noqa: BLE001  (told by whoever collects failures)
            self.failure = f"{self.plan.name}: {type(error).__name__}: {error}"

    def _live(self) -> None:
        raise NotImplementedError


class ForeignProducer(ForeignClient):
    """Idempotent, acks=all, with the library's own retries."""

    def __init__(self, plan: ProcessPlan, bootstrap: str, recorder: Recorder) -> None:
        super().__init__(plan, bootstrap, recorder)
        self._every_s: Final = plan.lanes / plan.per_s
        self._lanes: Final = [
            _Lane(f"{plan.name}.{at}", sends(replace(plan, seed=f"{plan.seed}.{at}")), 0.0)
            for at in range(plan.lanes)
        ]
        self._is_dead = False

    def _live(self) -> None:
        producer = self._new()
        began_s = now_s()
        for at, lane in enumerate(self._lanes):
            lane.due_s = began_s + at * self._every_s / len(self._lanes)
        while not self._over.is_set():
            if self._is_dead:
                producer = self._replaced(producer)
            now = now_s()
            for lane in self._lanes:
                if not lane.is_busy and lane.due_s <= now:
                    lane.due_s = max(lane.due_s, now - self._every_s) + self._every_s
                    self._send(producer, lane)
            idle = [lane.due_s for lane in self._lanes if not lane.is_busy]
            self._hear(producer, max(0.0, min(min(idle, default=now + _WAKE_S) - now_s(), _WAKE_S)))
        with suppress(KafkaException):
            hear(producer, _FLUSH_S)
        let_go(producer)

    def _hear(self, producer: Any, wait_s: float) -> None:
        try:
            producer.poll(wait_s)
        except KafkaException:
            # Nothing else is raised by a poll than that it met a fatal error.
            self._is_dead = True

    def _new(self) -> Any:
        self._is_dead = False
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self.plan.name,
                "enable.idempotence": self.plan.is_idempotent,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": _DELIVERY_MS,
                "error_cb": self._on_error,
                **QUICK,
            }
        )

    def _replaced(self, producer: Any) -> Any:
        """An idempotent producer that met a fatal error takes nothing more: begin another."""
        let_go(producer)
        return self._new()

    def _on_error(self, error: KafkaError) -> None:
        self._is_dead = self._is_dead or error.fatal()

    def _send(self, producer: Any, lane: _Lane) -> None:
        draw = next(lane.draws)
        lane.counter += 1
        value = f"{lane.name}-{lane.counter}"
        index = self._recorder.begin(
            lane.name,
            SEND,
            place=draw.place,
            value=value,
            acks=ALL,
            is_idempotent=self.plan.is_idempotent,
            # The library does not say how often it sent it.
            attempts=0,
        )
        lane.is_busy = True

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            lane.is_busy = False
            self._take(index, error, message)

        try:
            producer.produce(
                draw.place.topic,
                encode_payload(draw.place, value),
                partition=draw.place.partition,
                on_delivery=on_delivery,
            )
        except (BufferError, KafkaException) as error:
            lane.is_busy = False
            self._is_dead = self._is_dead or is_fatal(error)
            self._recorder.end(index, Kind.FAIL, error=NOT_SENT)

    def _take(self, index: int, error: KafkaError | None, message: Message) -> None:
        offset = message.offset()
        offset = -1 if offset is None else offset
        if error is None:
            # The library knows from a later answer that it is kept, and nobody said where.
            kind = Kind.OK if offset >= 0 else Kind.UNKNOWN
            self._recorder.end(
                index, kind, offset=offset if offset >= 0 else None, is_kept=offset < 0
            )
            return
        self._recorder.end(index, kind_of(error.code()), error=error.name())


def kind_of(code: int) -> Kind:
    """Return what a delivery report with this error means, after any number of attempts.

    The library's own codes are negative: whatever they say, it may have been sent before.
    """
    return Kind.FAIL if code in REFUSED_ALWAYS else Kind.UNKNOWN


def hear(producer: Any, wait_s: float) -> None:
    """Wait, so long at most, until every send was told of; raise `KafkaException` if it is dead.

    Not by the library's `flush`: it goes on after a fatal error (confluent-kafka 2.16).
      1. the fatal error is left behind as an exception that nobody has raised yet
      2. flush begins its next 200 ms, and calls back for the next record
      3. whatever the callback does first fails: it found an exception that was not its own
      4. flush raises a SystemError, and that record is never told of
    A poll that takes less than 200 ms ends after the first step.
    """
    until_s = now_s() + wait_s
    while len(producer) and now_s() < until_s:
        producer.poll(_WAKE_S)


def let_go(producer: Any) -> None:
    """Take what is told of the last sends of a producer that is used no more."""
    producer.purge()
    until_s = now_s() + _LET_GO_S
    while len(producer) and now_s() < until_s:
        with suppress(KafkaException):
            producer.poll(_WAKE_S)


def is_fatal(error: BaseException) -> bool:
    said = error.args[0] if error.args else None
    return isinstance(said, KafkaError) and bool(said.fatal() or said.code() == KafkaError._FATAL)


class ForeignConsumer(ForeignClient):
    """Partitions of its own, from the first record on."""

    def _live(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self.plan.name,
                "group.id": _NO_GROUP,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                **QUICK,
            }
        )
        try:
            for place in self.plan.places:
                index = self._recorder.begin(self.plan.name, ASSIGN, place=place, offset=0)
                self._recorder.end(index, Kind.OK)
            consumer.assign([TopicPartition(*place, 0) for place in self.plan.places])
            while not self._over.is_set():
                self._poll(consumer)
                self._over.wait(1.0 / self.plan.per_s)
        finally:
            consumer.close()

    def _poll(self, consumer: Any) -> None:
        index = self._recorder.begin(self.plan.name, POLL)
        shown, errors = consumed(consumer, 0.05)
        kind = Kind.FAIL if errors and not shown else Kind.OK
        told = "+".join(sorted(errors)) or None
        self._recorder.end(index, kind, shown=tuple(shown), error=told)


def consumed(consumer: Any, wait_s: float) -> tuple[list[Shown], set[str]]:
    """Return the records that come within some time, and the names of errors among them."""
    shown, errors = list[Shown](), set[str]()
    for one in consumer.consume(_POLL_RECORDS, wait_s):
        error = one.error()
        if error is not None:
            errors.add(error.name())
            continue
        place = Place(one.topic(), one.partition())
        epoch = one.leader_epoch()
        value = decode_payload(place, one.value())
        shown.append(Shown(place, one.offset(), value, -1 if epoch is None else epoch))
    return shown, errors
