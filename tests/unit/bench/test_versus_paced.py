"""A pace that is kept ends with the last acknowledgement; one that is not, when that is sure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from confluent_kafka import Producer

from bench.versus.drive_kafka import Paced, waited_us
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
