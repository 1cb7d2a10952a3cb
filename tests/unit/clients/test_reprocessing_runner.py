"""What the runner does when a commit or a delivery fails: nothing is lost, and only that stops it
which no other member can make good."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest

from ottla.clients.consumer.errors import CommitError, ConsumerError
from ottla.clients.consumer.record import OffsetAndMetadata, Record
from ottla.clients.errors import DeliveryFailedError
from ottla.clients.reprocessing.runner import AsyncRunner
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import TopicPartition
from ottla.proto.records.header import TimestampType

HERE = TopicPartition("orders", 0)
DEADLINE_S = 10.0
GONE_ON = [
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
]


class ListedConsumer:
    """Gives out ten records, in twos, and commits as it is told."""

    def __init__(self) -> None:
        self.max_poll_records = 2
        self.at = 0
        self.refusals: list[ErrorCode] = []
        self.committed: list[int] = []

    async def consume(self, timeout: float) -> list[Record]:  # noqa: ASYNC109 - as the real one
        await asyncio.sleep(0)
        got = [_record(offset) for offset in range(self.at, min(10, self.at + 2))]
        self.at += len(got)
        return got

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.refusals:
            code = self.refusals.pop(0)
            raise CommitError(f"not committed: {code.name}", code)
        self.committed.append(offsets[HERE].offset)

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        self.at = offset

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        return None

    def assignment(self) -> set[TopicPartition]:
        return {HERE}


class ListedProducer:
    """Fails to deliver, a moment later."""

    async def room(self) -> None:
        return None

    def send(self, *_: object, **__: object) -> Awaitable[object]:
        failed = asyncio.get_running_loop().create_future()
        failed.set_exception(DeliveryFailedError("not delivered", ErrorCode.UNKNOWN_SERVER_ERROR))
        return failed


def _record(offset: int) -> Record:
    return Record("orders", 0, offset, 1, None, b"v", (), TimestampType.CREATE_TIME, 0)


class Run:
    """A runner over ten records, which stops behind the last one."""

    def __init__(self, *, bad: frozenset[int] = frozenset(), at_most_once: bool = False) -> None:
        self.bad = bad
        self.seen: list[int] = []
        self.consumer = ListedConsumer()
        config = {"bootstrap.servers": "localhost:1", "group.id": "g"}
        self.runner = AsyncRunner(config, "orders", self.handle, at_most_once=at_most_once)
        for name, fake in (("_consumer", self.consumer), ("_producer", ListedProducer())):
            setattr(self.runner, name, fake)

    async def handle(self, record: Record) -> None:
        await asyncio.sleep(0)
        self.seen.append(record.offset)
        if record.offset == 9:
            self.runner.stop()
        if record.offset in self.bad:
            raise ZeroDivisionError

    async def go(self) -> None:
        async with asyncio.timeout(DEADLINE_S):
            await self.runner.run()


def _run(work: Callable[[], Awaitable[Any]]) -> None:
    async def run() -> None:
        await work()

    asyncio.run(run())


@pytest.mark.parametrize("code", GONE_ON, ids=lambda code: code.name)
def test_a_commit_that_a_rebalance_refuses_stops_nothing(code: ErrorCode) -> None:
    async def work() -> None:
        run = Run()
        run.consumer.refusals = [code]
        await run.go()
        assert run.seen == list(range(10))
        assert run.consumer.committed[-1] == 10

    _run(work)


@pytest.mark.parametrize("code", GONE_ON, ids=lambda code: code.name)
def test_at_most_once_handles_nothing_that_is_not_committed(code: ErrorCode) -> None:
    async def work() -> None:
        run = Run(at_most_once=True)
        run.consumer.refusals = [code]
        await run.go()
        assert run.seen == list(range(10)), "put back, and handled once it was committed"
        assert run.consumer.committed == [2, 4, 6, 8, 10]

    _run(work)


def test_another_refusal_of_a_commit_stops_the_runner_for_good() -> None:
    async def work() -> None:
        run = Run()
        run.consumer.refusals = [ErrorCode.FENCED_INSTANCE_ID]
        with pytest.raises(CommitError):
            await run.go()
        with pytest.raises(ConsumerError, match="make a new one"):
            await run.go()
        assert run.consumer.committed == []

    _run(work)


def test_a_record_that_could_not_be_passed_on_is_never_committed_past() -> None:
    async def work() -> None:
        run = Run(bad=frozenset({3}))
        with pytest.raises(DeliveryFailedError):
            await run.go()
        with pytest.raises(ConsumerError, match="make a new one"):
            await run.go()
        assert all(offset <= 3 for offset in run.consumer.committed)

    _run(work)


def test_what_is_passed_on_while_others_settle_is_not_waited_for_twice() -> None:
    async def work() -> None:
        run = Run(bad=frozenset({1, 3}))
        run.consumer.max_poll_records = 100
        acknowledged, waited = asyncio.Event(), 0

        async def delivered() -> None:
            nonlocal waited
            await acknowledged.wait()
            waited += 1

        async def handle(record: Record) -> None:
            if record.offset == 4:
                # The first settles now, and takes the second with it, while this one is handled.
                acknowledged.set()
                for _ in range(20):
                    await asyncio.sleep(0)
            await run.handle(record)

        runner: Any = run.runner
        runner._handler = handle
        # A coroutine that is awaited twice raises.
        runner._producer.send = lambda *_, **__: delivered()
        await run.go()
        assert (waited, run.consumer.committed[-1]) == (2, 10)

    _run(work)
