"""What `send` gives back: one record's fate, waited for in every way."""

from __future__ import annotations

import asyncio
import threading

import pytest

from ottla.clients.errors import DeliveryFailedError, DeliveryUnknownError
from ottla.clients.producer.batch import Batch, Outcome, State
from ottla.clients.producer.delivery import AsyncDelivery, Delivery


def _batch(count: int = 1) -> Batch:
    batch = Batch("t", 3, 0.0, 1)
    batch.records.extend((100 + at, None, b"v", ()) for at in range(count))
    return batch


def test_a_result_has_partition_offset_and_time() -> None:
    batch = _batch(3)
    batch.end(Outcome(State.OK, 40))
    report = Delivery(batch, 2).result()
    assert (report.partition, report.offset, report.timestamp_ms) == (3, 42, 102)


def test_the_time_of_the_leader_counts_where_it_is_told() -> None:
    batch = _batch()
    batch.end(Outcome(State.OK, 0, 777))
    assert Delivery(batch, 0).result().timestamp_ms == 777


@pytest.mark.parametrize(
    ("state", "kind"),
    [(State.FAILED, DeliveryFailedError), (State.UNKNOWN, DeliveryUnknownError)],
)
def test_what_is_not_acknowledged_is_raised_and_told(state: State, kind: type[Exception]) -> None:
    batch = _batch()
    batch.end(Outcome(state, sentence="no"))
    delivery = Delivery(batch, 0)
    with pytest.raises(kind, match="t-3: no"):
        delivery.result()
    assert isinstance(delivery.exception(), kind)


def test_waiting_in_vain_says_nothing_about_the_record() -> None:
    delivery = Delivery(_batch(), 0)
    with pytest.raises(TimeoutError):
        delivery.result(0.01)
    assert delivery.report() is None
    assert not delivery.done()


def test_a_thread_that_waits_is_woken_also_where_the_record_went_on() -> None:
    batch, other = _batch(), _batch(2)
    delivery, found = Delivery(batch, 0), list[int | None]()
    waiting = threading.Thread(target=lambda: found.append(delivery.result(10).offset))
    waiting.start()
    batch.move([(other, 1)])
    other.end(Outcome(State.OK, 7))
    waiting.join(10)
    assert found == [8]


def test_callbacks_are_called_once_before_and_after_the_end() -> None:
    batch, other = _batch(), _batch()
    delivery, called = Delivery(batch, 0), list[Delivery]()
    delivery.add_done_callback(called.append)
    batch.move([(other, 0)])
    assert called == []
    other.end(Outcome(State.OK, 0))
    delivery.add_done_callback(called.append)
    assert called == [delivery, delivery]


def test_on_a_loop_it_is_awaited_and_never_blocks() -> None:
    async def main() -> int | None:
        batch = _batch()
        delivery = AsyncDelivery(batch, 0)
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        asyncio.get_running_loop().call_soon(batch.end, Outcome(State.OK, 5))
        return (await delivery).offset

    assert asyncio.run(main()) == 5
