"""One partition of transactional ids on a real log, with a disk that the test holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from ottla.node.transactions import ledger as ledger_module
from ottla.node.transactions.ledger import Ledger, World
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import (
    NEW_CLIENT,
    Decision,
    Init,
    Refused,
    State,
    Told,
)
from ottla.proto.errors import ErrorCode, RequestError
from ottla.replication.replica import Replica
from tests.unit.node.groups.books import Books

T = TypeVar("T")
P = ("t", 0)


class Office:
    """A ledger on the replica of a `Books`."""

    def __init__(self) -> None:
        self.books = Books()
        self.clock = self.books.clock
        self.marked: list[str] = []
        self.ids = iter(range(7, 100))
        self.has_standing = True
        self.ledger = self.new_ledger()

    def new_ledger(self) -> Ledger:
        world = World(
            clock=self.clock,
            require_standing=self._require_standing,
            on_a_thread=_at_once,
            new_id=self._new_id,
            mark=lambda _, one: self.marked.append(one.transactional_id),
        )
        return Ledger(self.books.replica, world)

    def _require_standing(self, _: Replica) -> None:
        if not self.has_standing:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def _new_id(self) -> int:
        return next(self.ids)

    async def loaded(self) -> Ledger:
        self.books.disk.sync()
        self.ledger = self.new_ledger()
        await self.ledger.load()
        return self.ledger

    async def synced(self, asked: Awaitable[T]) -> T:
        """Let the disk sync until somebody is answered."""
        task = asyncio.ensure_future(asked)
        while not task.done():
            await asyncio.sleep(0)
            self.books.disk.sync()
        return task.result()

    def init(self, name: str = "x") -> Awaitable[Told | Refused]:
        def question(one: Transaction, fresh: int | None) -> Decision:
            return one.init(Init(timeout_ms=100), self.clock.now_ms(), fresh)

        def make(producer_id: int) -> Transaction:
            return Transaction.new(name, producer_id, 100, self.clock.now_ms())

        return self.ledger.ask(name, question, make)

    def add(
        self, name: str = "x", partitions: int = 1, epoch: int = 0
    ) -> Awaitable[Told | Refused]:
        places = frozenset(("t", index) for index in range(partitions))

        def question(one: Transaction, _: int | None) -> Decision:
            holder = one.value.producer_id
            return one.add(holder, epoch, places, self.clock.now_ms(), NEW_CLIENT)

        return self.ledger.ask(name, question)

    def limit_records(self, bytes_max: int) -> None:
        """Let the log take nothing larger from now on."""
        log = self.books.replica.log
        log.adopt_settings(replace(log.settings, max_message_bytes=bytes_max))

    def end(self, epoch: int = 0) -> Awaitable[Told | Refused]:
        def question(one: Transaction, fresh: int | None) -> Decision:
            return one.end(
                7, epoch, self.clock.now_ms(), is_commit=True, version=NEW_CLIENT, fresh=fresh
            )

        return self.ledger.ask("x", question)


def is_complete(one: Transaction) -> bool:
    return one.value.state.is_complete


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def run(story: Callable[[Office], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(20):
            await story(Office())

    asyncio.run(within())


def test_nothing_is_served_before_it_is_loaded_nor_without_standing() -> None:
    async def story(office: Office) -> None:
        for is_loaded in (False, True):
            if is_loaded:
                await office.loaded()
            else:
                assert await office.init() == Refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            office.has_standing = False
            assert await office.init() == Refused(ErrorCode.NOT_COORDINATOR)
            office.has_standing = True
        office.ledger.close()
        assert await office.init() == Refused(ErrorCode.NOT_COORDINATOR)

    run(story)


def test_a_yes_is_told_when_it_is_committed_and_the_next_coordinator_knows_it() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        asked = asyncio.ensure_future(office.init())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not asked.done()
        assert await office.synced(asked) == Told(7, 0)
        await office.synced(office.add())
        assert await office.synced(office.end()) == Told(7, 1)
        assert office.marked == ["x"]
        office.ledger.close()
        office.marked.clear()
        loaded = await office.loaded()
        one = loaded.transactions["x"]
        assert (one.value.state, one.unmarked) == (State.PREPARE_COMMIT, {P})
        assert office.marked == ["x"]

    run(story)


def test_what_is_in_doubt_stops_everything_else_until_the_log_has_the_last_word() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        asked = asyncio.ensure_future(office.end())
        await asyncio.sleep(0)
        one = office.ledger.transactions["x"]
        assert one.pending is not None
        # Time goes by: nobody aborts what may have been committed.
        office.clock.ms += 10_000
        assert office.ledger.time_out(100) == 0
        assert await office.synced(asked) == Told(7, 1)
        assert one.value.state is State.PREPARE_COMMIT

    run(story)


def test_who_asks_while_something_is_under_way_waits_for_it() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        first = asyncio.ensure_future(office.add())
        second = asyncio.ensure_future(office.add())
        told = await office.synced(asyncio.gather(first, second))
        assert list(told) == [Told(), Told()]

    run(story)


def test_waiting_ends_with_the_patience_or_the_office(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        await office.synced(office.end())
        # Decided, and nobody writes markers: the retry is told to come again.
        with monkeypatch.context() as patch:
            patch.setattr(ledger_module, "PATIENCE_S", 0.01)
            assert await office.end() == Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert office.ledger.waiting == 0
        asked = asyncio.ensure_future(office.end())
        await asyncio.sleep(0)
        office.ledger.close()
        assert await asked == Refused(ErrorCode.NOT_COORDINATOR)

    run(story)


def test_too_few_replicas_refuse_and_leave_nothing_behind() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        office.books.need_replicas(2)
        assert await office.init() == Refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert office.ledger.transactions == {}

    run(story)


def test_a_time_out_counts_when_it_is_written() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        office.clock.ms += 101
        office.books.need_replicas(2)
        assert office.ledger.time_out(100) == 0
        office.books.need_replicas(1)
        assert office.ledger.time_out(100) == 1
        assert office.ledger.time_out(100) == 0

    run(story)


def test_a_time_out_that_the_log_refuses_holds_up_nobody_else() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        for name, partitions in (("large", 200), ("small", 1), ("x", 1)):
            await office.synced(office.init(name))
            await office.synced(office.add(name, partitions))
        office.clock.ms += 101
        office.limit_records(400)
        assert office.ledger.time_out(1) == 1
        assert office.ledger.time_out(100) == 1
        office.books.disk.sync()
        assert office.marked == ["small", "x"]
        office.limit_records(1 << 20)
        assert office.ledger.time_out(100) == 1

    run(story)


def test_an_id_is_complete_when_the_last_marker_is_told() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        await office.synced(office.end())
        one = office.ledger.transactions["x"]
        one.marked([P])
        office.ledger.complete(one)
        office.books.disk.sync()
        assert one.value.state is State.COMPLETE_COMMIT
        assert one.value.holder == (7, 1)

    run(story)


@pytest.mark.parametrize("why", ["too few in sync", "no standing", "the log is full"])
def test_the_last_page_is_tried_until_the_log_takes_it(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_module, "_AGAIN_S", 0.001)

    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        await office.synced(office.end())
        one = office.ledger.transactions["x"]
        one.marked([P])
        office.books.need_replicas(2 if why == "too few in sync" else 1)
        office.has_standing = why != "no standing"
        office.limit_records(10 if why == "the log is full" else 1 << 20)
        office.ledger.complete(one)
        await asyncio.sleep(0.01)
        assert not is_complete(one)
        office.books.need_replicas(1)
        office.has_standing = True
        office.limit_records(1 << 20)
        while not is_complete(one):
            await asyncio.sleep(0.001)
            office.books.disk.sync()
        assert await office.synced(office.init()) == Told(7, 2)

    run(story)


def test_a_page_that_was_closed_after_all_is_not_closed_again_under_the_next_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "_AGAIN_S", 0.01)

    async def story(office: Office) -> None:
        await office.loaded()
        await office.synced(office.init())
        await office.synced(office.add())
        await office.synced(office.end())
        one = office.ledger.transactions["x"]
        one.marked([P])
        office.ledger.complete(one)
        # It is committed in a moment without standing: whoever waits is refused, and it is so.
        office.has_standing = False
        office.books.disk.sync()
        office.has_standing = True
        assert is_complete(one)
        await office.synced(office.add(epoch=1))
        await office.synced(office.end(epoch=1))
        failures: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: failures.append(what))
        await asyncio.sleep(0.05)
        assert not failures
        assert one.value.state is State.PREPARE_COMMIT
        assert one.unmarked == {P}

    run(story)


def test_a_stranger_who_ends_what_is_not_there_is_refused() -> None:
    async def story(office: Office) -> None:
        await office.loaded()
        assert await office.end() == Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    run(story)
