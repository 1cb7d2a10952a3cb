"""librdkafka meets a fatal error: nothing is raised but that, and another instance goes on.

The library itself, before a broker that it makes up; and its own way to have a fatal error.
"""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaException, Producer

from ottla.chaos.history import Event, Kind, Place, from_lines
from ottla.chaos.runner.foreign import ForeignProducer, hear, let_go
from ottla.chaos.runner.foreign_transactor import ForeignTransactor
from ottla.chaos.runner.recorder import COMMIT_TXN, SEND, Recorder
from ottla.chaos.workload import Client, ProcessPlan
from tests.integration.nodes import wait_until

DEADLINE_S = 20.0
PLACES = (Place("orders", 0), Place("orders", 1), Place("orders", 2))
INVALID_PRODUCER_EPOCH = 47


@pytest.fixture
def bootstrap() -> Iterator[str]:
    """Yield the address of a broker that librdkafka plays."""
    host = Producer(
        {"bootstrap.servers": "127.0.0.1:1", "test.mock.num.brokers": 1, "log_level": 0}
    )
    (broker,) = host.list_topics(timeout=DEADLINE_S).brokers.values()
    yield f"{broker.host}:{broker.port}"
    assert host is not None, "the broker lives as long as its host"


def doom(producer: Any) -> None:
    """Let the library meet a fatal error in this instance."""
    where = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    library = ctypes.CDLL(str(next(where.glob("librdkafka*"))))
    library.rd_kafka_test_fatal_error.argtypes = [
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_char_p,
    ]
    # The pointer to the instance comes first in the Python object that holds it.
    instance = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)
    library.rd_kafka_test_fatal_error(instance, INVALID_PRODUCER_EPOCH, b"made up by a test")


def events_of(pen: io.StringIO) -> list[Event]:
    return list(from_lines(pen.getvalue().splitlines()))


def test_a_fatal_error_is_raised_as_itself_and_every_send_is_told_of(bootstrap: str) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "one", "linger.ms": 1_000}
    )
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    told = list[Kind]()
    for _ in range(8):
        producer.produce(
            "orders",
            b"x",
            partition=0,
            on_delivery=lambda error, message: told.append(Kind.UNKNOWN if error else Kind.OK),
        )
    doom(producer)
    with pytest.raises(KafkaException) as caught:
        hear(producer, DEADLINE_S)
    assert caught.value.args[0].fatal()
    let_go(producer)
    assert len(told) == 8


class DoomedProducer(ForeignProducer):
    """Meets a fatal error in its first instance."""

    lives = 0

    def _new(self) -> Any:
        self.lives += 1
        producer = super()._new()
        if self.lives == 1:
            doom(producer)
        return producer


def test_a_producer_that_met_a_fatal_error_goes_on_with_another_instance(bootstrap: str) -> None:
    plan = ProcessPlan(
        name="pl1",
        client=Client.LIBRDKAFKA_PRODUCER,
        seed="1",
        places=PLACES,
        is_idempotent=True,
        lanes=2,
    )
    pen = io.StringIO()
    client = DoomedProducer(plan, bootstrap, Recorder(pen))
    client.start()
    try:
        wait_until(lambda: ended(pen, SEND) > 4, DEADLINE_S, "the next instance has written")
    finally:
        client.stop()
    assert (client.failure, client.lives) == (None, 2)


class DoomedTransactor(ForeignTransactor):
    """Meets a fatal error in its first transaction, with sends in flight."""

    lives = 0

    def _new(self) -> Any:
        self.lives += 1
        return super()._new()

    def _send(self, producer: Any, lane: int, place: Place) -> None:
        super()._send(producer, lane, place)
        if self.lives == 1:
            doom(producer)


def test_a_transactor_that_met_a_fatal_error_goes_on_with_another_instance(bootstrap: str) -> None:
    plan = ProcessPlan(
        name="tx1", client=Client.LIBRDKAFKA_TRANSACTOR, seed="1", places=PLACES, lanes=6
    )
    pen = io.StringIO()
    client = DoomedTransactor(plan, bootstrap, Recorder(pen))
    client.start()
    try:
        wait_until(lambda: ended(pen, COMMIT_TXN) > 2, DEADLINE_S, "the next instance commits")
    finally:
        client.stop()
    assert client.failure is None
    events = events_of(pen)
    first = [one for one in events if one.transaction == "tx1-1" and one.function == SEND]
    assert first
    # A record of it may have been delivered before the error came.
    assert not [one for one in first if one.is_committed], "it was never committed"
    commits = [one for one in events if one.function == COMMIT_TXN and one.kind is Kind.OK]
    assert "tx1-1" not in {one.transaction for one in commits}
    assert count_open(events) == 0, "of every send somebody said what became of it"


def ended(pen: io.StringIO, function: str) -> int:
    return sum(one.function == function and one.kind is Kind.OK for one in events_of(pen))


def count_open(events: list[Event]) -> int:
    sends = [one for one in events if one.function == SEND]
    return 2 * sum(one.kind is Kind.INVOKE for one in sends) - len(sends)
