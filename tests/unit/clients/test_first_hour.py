"""What a course says of the clients: names, arguments and defaults, as a table each."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import ottla
from ottla.clients.options import Role, options_of, read_options
from ottla.clients.producer.accumulator import BATCH_BYTES_MAX

# Option, and what it is if nobody says otherwise.
PRODUCER_DEFAULTS: dict[str, Any] = {
    "acks": -1,  # "all" on the wire
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "linger.ms": 5,
    "batch.size": 16384,
    "buffer.memory": 33_554_432,
    "max.block.ms": 60_000,
    "retries": 2_147_483_647,
    "delivery.timeout.ms": 120_000,
    "request.timeout.ms": 30_000,
    "retry.backoff.ms": 100,
    "compression.type": "none",
    "partitioner": "sticky",
}
CONSUMER_DEFAULTS: dict[str, Any] = {
    "fetch.min.bytes": 1,
    "fetch.max.wait.ms": 500,
    "max.partition.fetch.bytes": 1 << 20,
    "max.poll.records": 500,
    "enable.auto.commit": True,
    "auto.commit.interval.ms": 5000,
    "auto.offset.reset": "latest",
    "session.timeout.ms": 45_000,
    "heartbeat.interval.ms": 3000,
    "max.poll.interval.ms": 300_000,
    "request.timeout.ms": 30_000,
    "retry.backoff.ms": 100,
}
CONSUMER_NAMES = (
    "client.id", "client.rack", "isolation.level", "group.instance.id",
    "partition.assignment.strategy",
)  # fmt: skip

# Method, and its arguments after self; what has a default may be left away.
PRODUCER_METHODS = {
    "send": "topic, value, key=None, partition=None, timestamp_ms=None, headers=(), "
    "on_delivery=None",
    "flush": "timeout=None",
    "partitions_for": "topic",
    "metrics": "",
    "close": "",
}
CONSUMER_METHODS = {
    "subscribe": "topics, listener=None",
    "unsubscribe": "",
    "assign": "partitions",
    "poll": "timeout",
    "consume": "n, timeout",
    "seek": "partition, offset",
    "seek_to_beginning": "",
    "seek_to_end": "",
    "seek_to_time": "timestamp_ms",
    "pause": "partitions",
    "resume": "partitions",
    "position": "partition",
    "committed": "partitions",
    "commit": "offsets=None, asynchronous=False, callback=None",
    "partitions_for": "topic",
    "metrics": "",
    "close": "",
}


@pytest.mark.parametrize(
    ("role", "name", "default"),
    [
        *((Role.PRODUCER, name, default) for name, default in PRODUCER_DEFAULTS.items()),
        *((Role.CONSUMER, name, default) for name, default in CONSUMER_DEFAULTS.items()),
    ],
)
def test_an_option_has_kafkas_default(role: Role, name: str, default: Any) -> None:
    (option,) = (one for one in options_of(role) if one.name == name)
    assert read_options(role, {}).value_of(option) == default


@pytest.mark.parametrize("name", CONSUMER_NAMES)
def test_an_option_has_kafkas_name(name: str) -> None:
    assert name in {one.name for one in options_of(Role.CONSUMER)}


def test_batches_of_a_busy_partition_may_grow_to_1_mib() -> None:
    assert BATCH_BYTES_MAX == 1 << 20


@pytest.mark.parametrize("client", ["Producer", "AsyncProducer"])
@pytest.mark.parametrize(("method", "arguments"), PRODUCER_METHODS.items())
def test_a_producer_takes_what_the_course_says(client: str, method: str, arguments: str) -> None:
    _require_takes(getattr(getattr(ottla, client), method), arguments)


@pytest.mark.parametrize("client", ["Consumer", "AsyncConsumer"])
@pytest.mark.parametrize(("method", "arguments"), CONSUMER_METHODS.items())
def test_a_consumer_takes_what_the_course_says(client: str, method: str, arguments: str) -> None:
    _require_takes(getattr(getattr(ottla, client), method), arguments)


def test_the_admin_for_threads_and_the_one_for_asyncio_do_the_same() -> None:
    def calls(kind: type) -> dict[str, list[inspect.Parameter]]:
        return {
            name: list(inspect.signature(method).parameters.values())
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert calls(ottla.Admin) == calls(ottla.AsyncAdmin)


def _require_takes(method: Any, arguments: str) -> None:
    """Hold what a method takes against what is written: the same names, in the same order."""
    taken = list(inspect.signature(method).parameters.values())[1:]
    wanted = [one.partition("=") for one in arguments.split(", ") if one]
    for parameter, (name, equals, default) in zip(taken, wanted, strict=False):
        assert parameter.name == name
        if equals:
            assert repr(parameter.default) == default
    # What nobody wrote can be left away.
    for parameter in taken[len(wanted) :]:
        assert parameter.default is not inspect.Parameter.empty
    assert len(taken) >= len(wanted)
