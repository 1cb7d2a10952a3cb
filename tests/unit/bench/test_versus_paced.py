"""A pace that is kept ends with the last acknowledgement; one that is not, when that is sure.

What is written before the clock runs gives each partition a large batch.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from bench.versus.drive_kafka import Paced, waited_us, warm_calls
from bench.versus.figures import allowed_s

_RATE = 1000
_OPTIONS = {"rate": _RATE, "size": 100, "partitions": 1, "topic": "t"}


class FakeProducer:
    """Acknowledges at once as many records as it is told, and the others never."""

    def __init__(self, acks: int) -> None:
        self._acks = acks

    def produce(self, *_: object, on_delivery: Callable[[Any, Any], None], **__: object) -> None:
        if self._acks:
            self._acks -= 1
            on_delivery(None, None)

    def flush(self, timeout: float) -> int:
        if not self._acks:
            time.sleep(timeout)
        return 0


def _paced(acks: int) -> Paced:
    return Paced(cast(Producer, FakeProducer(acks)), _OPTIONS)


def test_a_pace_that_is_kept_leaves_nothing() -> None:
    paced = _paced(acks=1000)
    began, ended = paced.run(50)
    assert paced.take_left(began, ended) == 0
    assert len(paced.times_us) == 50


def test_what_is_left_counts_as_long_as_it_has_waited() -> None:
    paced = _paced(acks=10)
    began, ended = paced.run(50)
    assert allowed_s(50 / _RATE) <= ended - began < allowed_s(50 / _RATE) + 1.0
    assert paced.take_left(began, ended) == 40
    assert len(paced.times_us) == 50
    # All were due at least half a second ago.
    assert sum(us >= 500_000 for us in paced.times_us) == 40


def test_who_was_due_later_has_waited_for_less() -> None:
    assert waited_us([0, 1], first_due=10.0, step_s=0.5, now=12.0) == [2_000_000, 1_500_000]


class FakeJetStream:
    """Refuses the first record, and acknowledges the others at once."""

    def __init__(self) -> None:
        self.asked = 0

    async def publish(self, *_: object, **__: object) -> None:
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("refused")


def test_a_record_that_failed_long_before_the_end_fails_the_turn() -> None:
    # Its client is only there after `make bench-install`.
    drive_nats = pytest.importorskip("bench.versus.drive_nats")
    paced = drive_nats.Paced(FakeJetStream(), {**_OPTIONS, "to": ""})
    with pytest.raises(ConnectionError, match="refused"):
        asyncio.run(paced.run(20))


@pytest.mark.parametrize(
    ("queued", "partitions", "clients", "calls"),
    [(32_768, 1, 1, 32), (3_276, 12, 1, 12), (32_768, 100, 1, 100), (32_768, 100, 8, 13)],
)
def test_clients_warm_up_together_with_a_large_batch_for_each_partition(
    queued: int, partitions: int, clients: int, calls: int
) -> None:
    assert warm_calls(queued, partitions, clients) == calls
    # As they begin at different ones.
    first = [number * partitions // clients for number in range(clients)]
    reached = {(one + call) % partitions for one in first for call in range(calls)}
    assert len(reached) == partitions
