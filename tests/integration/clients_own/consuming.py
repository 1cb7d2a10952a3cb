"""What the tests of our consumer share: settings, records, and reading until enough is there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ottla.clients.consumer.record import Record
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.producer.client import Producer

DEADLINE_S = 30.0


def settings(bootstrap: str, group: str = "", **more: Any) -> dict[str, object]:
    """Return options of a consumer that reads from the beginning; `_` stands for `.`."""
    chosen: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "auto.offset.reset": "earliest",
        "fetch.max.wait.ms": 50,
        "heartbeat.interval.ms": 200,
        "session.timeout.ms": 6000,
    }
    if group:
        chosen["group.id"] = group
    return chosen | {name.replace("_", "."): value for name, value in more.items()}


def write(producer: Producer, topic: str, count: int, partitions: int = 1, start: int = 0) -> None:
    """Write the numbers [start, start + count) in turn to the partitions, and wait."""
    for number in range(start, start + count):
        producer.send(topic, b"%d" % number, partition=number % partitions)
    producer.flush(DEADLINE_S)


def read(consumer: Consumer, count: int, deadline_s: float = DEADLINE_S) -> list[Record]:
    """Return exactly so many records, or fail."""
    end = time.monotonic() + deadline_s
    found: list[Record] = []
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} records came"
        found += consumer.consume(count - len(found), 0.5)
    return found


def poll_until(consumers: Sequence[Consumer], is_so: Any, what: str) -> list[Record]:
    """Poll all in turn until something holds; return what they got meanwhile."""
    end = time.monotonic() + DEADLINE_S
    found: list[Record] = []
    while not is_so():
        assert time.monotonic() < end, f"waited for this to hold: {what}"
        for one in consumers:
            found += one.consume(500, 0.05)
    return found
