"""Where records wait for company: order, sizes, memory."""

from __future__ import annotations

from random import Random

import pytest

from ottla.clients.errors import BufferFullError, DeliveryFailedError, NoTopicError
from ottla.clients.producer.accumulator import Accumulator, AccumulatorSettings
from ottla.clients.producer.batch import Batch, Outcome, Report, State


def _clock() -> float:
    return 10.0


def _made(**settings: object) -> Accumulator:
    return Accumulator(AccumulatorSettings(**settings), Random(1).randrange)  # type: ignore[arg-type]


def _put(
    accumulator: Accumulator, value: bytes = b"v", *, partition: int | None = 0, topic: str = "t"
) -> tuple[Batch, int]:
    return accumulator.append(topic, None, value, partition, 1, (), None, _clock)


def test_records_of_a_partition_share_a_batch_in_order() -> None:
    accumulator = _made()
    accumulator.know("t", 2, [0, 1], 0)
    places = [_put(accumulator, bytes([at])) for at in range(3)]
    assert [index for _, index in places] == [0, 1, 2]
    assert len({batch for batch, _ in places}) == 1
    assert [entry[2] for entry in places[0][0].records] == [b"\0", b"\1", b"\2"]


def test_a_batch_takes_no_more_records_than_it_may() -> None:
    accumulator = _made(batch_num_messages=2)
    accumulator.know("t", 1, [0], 0)
    batches = [_put(accumulator)[0] for _ in range(5)]
    assert [len(batch.records) for batch in dict.fromkeys(batches)] == [2, 2, 1]


def test_a_batch_grows_beyond_its_size_up_to_a_mebibyte_while_nobody_takes_it() -> None:
    accumulator = _made(batch_size=1000)
    accumulator.know("t", 1, [0], 0)
    batches = dict.fromkeys(_put(accumulator, b"x" * 10_000)[0] for _ in range(200))
    assert all(batch.size <= 1 << 20 for batch in batches)
    assert [len(batch.records) for batch in batches] == [104, 96]


def test_a_batch_that_was_sent_takes_no_more() -> None:
    accumulator = _made()
    accumulator.know("t", 1, [0], 0)
    first, _ = _put(accumulator)
    first.attempts = 1
    assert _put(accumulator)[0] is not first


def test_memory_is_bounded_and_a_refusal_changes_nothing() -> None:
    accumulator = _made(buffer_memory=500)
    accumulator.know("t", 1, [0], 0)
    _put(accumulator, b"x" * 300)
    used = accumulator.used_bytes
    with pytest.raises(BufferFullError, match=r"buffer\.memory is 500"):
        _put(accumulator, b"x" * 300)
    assert accumulator.used_bytes == used
    assert len(accumulator.live) == 1


def test_memory_is_free_when_a_batch_has_ended() -> None:
    accumulator = _made(buffer_memory=500)
    accumulator.know("t", 1, [0], 0)
    batch, _ = _put(accumulator, b"x" * 300)
    accumulator.end(batch, Outcome(State.OK, 0))
    assert accumulator.used_bytes == 0


def test_a_record_that_is_too_large_is_refused_at_once() -> None:
    accumulator = _made(max_request_size=1000)
    accumulator.know("t", 1, [0], 0)
    with pytest.raises(DeliveryFailedError, match=r"max\.request\.size is 1000"):
        _put(accumulator, b"x" * 1000)


def test_a_partition_that_is_not_there_is_refused() -> None:
    accumulator = _made()
    accumulator.know("t", 2, [0, 1], 0)
    with pytest.raises(NoTopicError, match="no partition 2; it has partitions 0 to 1"):
        _put(accumulator, partition=2)


def test_records_wait_for_a_topic_in_order_and_are_sorted_in_when_it_is_known() -> None:
    accumulator = _made(partitioner="round_robin")
    told = list[Report]()
    places = [
        accumulator.append("t", None, bytes([at]), None, 1, (), told.append, _clock)
        for at in range(4)
    ]
    waiting = places[0][0]
    assert not waiting.has_ended
    accumulator.know("t", 2, [0, 1], 20.0)
    assert waiting.moved_to is not None
    went = [(batch.partition, index) for batch, index in waiting.moved_to]
    assert went == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert accumulator.used_bytes == sum(batch.size for batch in accumulator.live)


def test_a_record_that_waited_for_a_partition_which_never_was_fails_alone() -> None:
    accumulator = _made()
    told = list[Report]()
    for partition in (5, 0):
        accumulator.append("t", None, b"v", partition, 1, (), told.append, _clock)
    accumulator.know("t", 1, [0], 20.0)
    (ended,) = accumulator.take_ended()
    assert ended.report(0).state is State.FAILED
    assert ended.callbacks == [(0, told.append)]
    assert len(accumulator.busy) == 1


def test_the_halves_of_a_batch_stand_where_it_stood() -> None:
    accumulator = _made(batch_num_messages=4)
    accumulator.know("t", 1, [0], 0)
    places = [_put(accumulator, bytes([at])) for at in range(6)]
    (lane,) = accumulator.busy
    whole = lane.queue.popleft()
    accumulator.split(lane, whole)
    values = [[entry[2] for entry in batch.records] for batch in lane.queue]
    assert values == [[b"\0", b"\1"], [b"\2", b"\3"], [b"\4", b"\5"]]
    assert whole is places[0][0]
    assert list(accumulator.live)[:2] == list(lane.queue)[:2]
    assert accumulator.used_bytes == sum(batch.size for batch in accumulator.live)
