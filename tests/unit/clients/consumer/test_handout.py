"""What a consumer gives out and what it calls processed, when something goes wrong meanwhile."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest

from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.errors import ConsumerError
from ottla.clients.consumer.positions import Chunk
from ottla.clients.consumer.sync_consumer import Consumer
from ottla.clients.errors import DeserializationError
from ottla.proto.errors import CorruptionError
from ottla.proto.ids import TopicPartition
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
CONFIG = {"bootstrap.servers": "localhost:1", "group.id": "g"}
AS_NUMBERS = {**CONFIG, "value.deserializer": "int32"}


class RecordingCoordinator:
    """Takes every commit, and remembers the offsets."""

    group_id = "g"

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, int] = {}

    async def commit(self, identity: Any, offsets: Any, timeout_s: float) -> None:
        self.committed |= {partition: one.offset for partition, one in offsets.items()}


def _give(consumer: AsyncConsumer, values: list[bytes], where: TopicPartition = A0) -> None:
    (bookmark,) = consumer.bookmarks.add([where])
    bookmark.move(0)
    records = [Record(offset, 1, None, value) for offset, value in enumerate(values)]
    assert bookmark.fetched(Chunk(memoryview(build_batch(records))), bookmark.turn)


def _numbers(count: int, *, bad: set[int]) -> list[bytes]:
    return [b"bad" if one in bad else one.to_bytes(4, "big") for one in range(count)]


def _recorded(consumer: AsyncConsumer) -> RecordingCoordinator:
    coordinator = RecordingCoordinator()
    object.__setattr__(consumer._committer, "_coordinator", coordinator)
    return coordinator


def _with_a_strict_one(look: Callable[[AsyncConsumer], None]) -> None:
    async def run() -> None:
        consumer = AsyncConsumer(AS_NUMBERS, strict=True)
        _recorded(consumer)
        try:
            look(consumer)
        finally:
            await consumer.close()

    asyncio.run(run())


def _fail(*, is_crash: bool) -> None:
    if is_crash:
        raise ZeroDivisionError


def test_a_strict_consumer_gives_out_what_comes_before_what_it_cannot_read() -> None:
    def look(consumer: AsyncConsumer) -> None:
        _give(consumer, _numbers(500, bad={300}))
        assert [one.value for one in consumer.take(500)] == list(range(300))
        with pytest.raises(DeserializationError, match="offset 300"):
            consumer.take(500)
        assert consumer.bookmarks.to_commit()[A0].offset == 300, "not yet done with"
        assert [one.value for one in consumer.take(500)] == list(range(301, 500))
        assert consumer.bookmarks.to_commit()[A0].offset == 301
        assert consumer.metrics()["records.consumed"] == 500
        assert consumer.metrics()["records.unreadable"] == 1

    _with_a_strict_one(look)


def test_a_strict_consumer_skips_nothing_one_by_one_and_over_partitions() -> None:
    def look(consumer: AsyncConsumer) -> None:
        _give(consumer, _numbers(3, bad={0, 2}), A0)
        _give(consumer, _numbers(3, bad={1}), A1)
        got, told = [], 0
        while consumer.bookmarks.has_records:
            try:
                record = consumer.next_here(lambda: None)
            except DeserializationError:
                told += 1
            else:
                assert record is not None
                got.append((record.partition, record.value))
        assert (sorted(got), told) == ([(0, 1), (1, 0), (1, 2)], 3)

    _with_a_strict_one(look)


def test_a_strict_consumer_is_told_of_damage_after_what_comes_before_it() -> None:
    def look(consumer: AsyncConsumer) -> None:
        _give(consumer, _numbers(3, bad=set()))
        broken = bytearray(build_batch([Record(3, 1, None, b"1234")], base_offset=3))
        broken[-1] ^= 1
        bookmark = consumer.bookmarks.of(A0)
        bookmark.fetched(Chunk(memoryview(broken)), bookmark.turn)
        assert len(consumer.take(500)) == 3
        with pytest.raises(CorruptionError):
            consumer.take(500)

    _with_a_strict_one(look)


@pytest.mark.parametrize("take", [Consumer.poll, Consumer.consume])
def test_who_has_said_nothing_of_what_to_read_is_told_so_and_does_not_wait(
    take: Callable[[Consumer], object],
) -> None:
    with (
        Consumer(CONFIG) as consumer,
        pytest.raises(ConsumerError, match="subscribe or assign comes first"),
    ):
        take(consumer)


def test_records_that_were_polled_are_in_the_metrics_when_these_are_asked_for() -> None:
    with Consumer({"bootstrap.servers": "localhost:1"}) as consumer:
        assert consumer.metrics()["records.consumed"] == 0
        _give(consumer._async, [b"v"] * 10)
        for number in range(1, 8):
            assert consumer.poll(0) is not None
            assert consumer.metrics()["records.consumed"] == number


@pytest.mark.parametrize("is_crash", [False, True])
def test_what_was_in_hand_when_an_exception_left_the_consumer_is_not_committed(
    is_crash: bool,
) -> None:
    async def run() -> RecordingCoordinator:
        consumer = AsyncConsumer(CONFIG)
        coordinator = _recorded(consumer)
        _give(consumer, [b"v"] * 10)
        with suppress(ZeroDivisionError):
            async with AsyncExitStack() as stack:
                # Entering would look for a cluster.
                stack.push_async_exit(consumer)
                assert len(consumer.take(4)) == 4
                assert len(consumer.take(6)) == 6
                _fail(is_crash=is_crash)
        return coordinator

    assert asyncio.run(run()).committed == {A0: 4 if is_crash else 10}


@pytest.mark.parametrize("is_crash", [False, True])
def test_the_same_holds_in_plain_python(is_crash: bool) -> None:
    consumer = Consumer(CONFIG)
    coordinator = _recorded(consumer._async)
    _give(consumer._async, [b"v"] * 10)
    with suppress(ZeroDivisionError), consumer:
        for number, record in enumerate(consumer):
            assert record.offset == number
            if number == 7:
                _fail(is_crash=is_crash)
                break
    assert coordinator.committed == {A0: 7 if is_crash else 8}


def test_an_interrupt_leaves_nothing_locked() -> None:
    """Ctrl-C comes at any moment; who holds the lock then could not even be closed."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    held = 0
    with Consumer(CONFIG) as consumer:
        handout = consumer._async
        lock: Any = handout.bookmarks.lock
        _recorded(handout)
        _give(handout, [b"x"] * 2_000)
        before = signal.signal(signal.SIGALRM, interrupt)
        # Callbacks of the collector (Hypothesis has one) would get the interrupt in our place.
        gc.disable()
        try:
            for turn in range(3_000):
                with suppress(KeyboardInterrupt):
                    signal.setitimer(signal.ITIMER_REAL, (20 + turn % 100) / 1e6)
                    for _ in range(2_000):
                        handout.next_here(lambda: None)
                while lock._is_owned():
                    # Or closing it would wait for ever.
                    lock.release()
                    held += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            gc.enable()
    assert held == 0
