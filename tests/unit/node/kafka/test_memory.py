"""The purse for large requests: bounded, never a deadlock, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from hypothesis import given
from hypothesis import strategies as st

from ottla.node.kafka.memory import BUFFER_USUAL, MODERATE, ReceiveMemory
from tests.unit.node.kafka.guest import Table, framed, settled

LIMIT = 1000


class Guest:
    """Asks for memory, tries again when it is called, and gives back what it does not use."""

    def __init__(self, memory: ReceiveMemory) -> None:
        self.memory = memory
        self.has = 0
        self.wants = 0
        self.is_busy = True
        self.calls = 0

    def ask(self, size: int) -> bool:
        self.wants = size
        if self.memory.lend(self, size):
            self.has = size
            return True
        return False

    def go_on(self) -> None:
        self.calls += 1

    def shrink(self) -> None:
        if not self.is_busy:
            self.done()

    def done(self) -> None:
        self.has = self.wants = 0
        self.memory.give_back(self)


def guests(count: int, limit: int = LIMIT) -> tuple[ReceiveMemory, list[Guest]]:
    memory = ReceiveMemory(limit)
    return memory, [Guest(memory) for _ in range(count)]


def test_m1_m2_the_first_who_finds_too_little_is_given_it_and_the_second_is_not() -> None:
    memory, (rich, first, second) = guests(3)
    assert rich.ask(900)
    assert first.ask(500)
    assert not second.ask(200)
    assert not rich.ask(1100)
    # Who is in need may go on until he is done.
    assert first.ask(5000)
    assert memory.lent_bytes == 5900


def test_m3_who_was_refused_is_called_when_somebody_is_done() -> None:
    _, (rich, first, second, third) = guests(4)
    assert rich.ask(1000)
    assert first.ask(500)
    assert not second.ask(300)
    assert not third.ask(300)
    first.done()
    assert (second.calls, third.calls) == (1, 0)
    # The purse is still empty, but nobody is in need any more: he is.
    assert second.ask(300)
    # His having some may mean that there is some for the next as well.
    assert third.calls == 1
    assert not third.ask(300)
    rich.done()
    assert third.calls == 2
    assert third.ask(300)


def test_what_nothing_is_in_is_taken_back_before_anybody_is_in_need() -> None:
    memory, (idle, busy, new) = guests(3)
    idle.is_busy = False
    assert idle.ask(500)
    assert busy.ask(500)
    assert new.ask(500)
    assert not memory.is_short
    assert (idle.has, memory.lent_bytes) == (0, 1000)


def test_m4_huge_requests_leave_a_quarter_to_those_of_a_usual_size() -> None:
    memory, (huge, greedy, refused, usual, another) = guests(5, limit=40 * MODERATE)
    assert huge.ask(30 * MODERATE)
    assert greedy.ask(50 * MODERATE)
    assert not refused.ask(2 * MODERATE)
    # One is in need, and yet there is enough for these.
    assert usual.ask(MODERATE)
    assert another.ask(MODERATE)
    assert memory.is_short


def test_without_a_limit_nobody_is_in_need() -> None:
    memory, (guest,) = guests(1, limit=-1)
    assert guest.ask(10**12)
    assert not memory.is_short


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 700)), max_size=60))
def test_whatever_they_do_sums_are_right_and_somebody_can_go_on(
    steps: list[tuple[int, int]],
) -> None:
    memory, all_of_them = guests(6)
    for number, more in steps:
        guest = all_of_them[number]
        if more:
            guest.ask(guest.has + more)
        else:
            guest.done()
        assert memory.lent_bytes == sum(one.has for one in all_of_them)
        assert memory.lent_bytes <= LIMIT + max(one.has for one in all_of_them)
    # Who waits asks again when time goes by; who has what he wants is done. It must end.
    for _ in range(2 * len(all_of_them)):
        for guest in all_of_them:
            if guest.wants and guest.has >= guest.wants:
                guest.done()
        for guest in all_of_them:
            if guest.wants > guest.has:
                guest.ask(guest.wants)
    assert memory.lent_bytes == 0
    assert not memory.is_short


# -- connections that share a purse ------------------------------------------------------------


def at_tables(count: int, story: Callable[[ReceiveMemory, list[Table]], Awaitable[None]]) -> None:
    async def tell() -> None:
        memory = ReceiveMemory(4 * BUFFER_USUAL)
        tables = [Table() for _ in range(count)]
        for table in tables:
            table.waiter.memory = memory
        try:
            await asyncio.wait_for(story(memory, tables), 20)
        finally:
            for table in tables:
                table.connection.close("the story is over")
                table.guest.close()
        assert memory.lent_bytes == 0
        assert not memory.is_short

    asyncio.run(tell())


def test_n3_large_requests_share_the_memory_and_all_of_them_are_served_in_the_end() -> None:
    large = framed(bytes(12 * BUFFER_USUAL))

    async def story(memory: ReceiveMemory, tables: list[Table]) -> None:
        sending = [asyncio.ensure_future(table.order(large)) for table in tables]
        eating = [asyncio.ensure_future(table.eat(len(large))) for table in tables]
        most = 0
        while not all(done.done() for done in eating):
            await asyncio.sleep(0)
            most = max(most, memory.lent_bytes)
        assert most <= 4 * BUFFER_USUAL + len(large)
        for done in (*sending, *eating):
            await done

    at_tables(8, story)


def test_n3_half_sent_requests_do_not_stop_a_whole_one_and_are_not_read_meanwhile() -> None:
    half = framed(bytes(16 * BUFFER_USUAL))[: 3 * BUFFER_USUAL]
    whole = framed(bytes(10 * BUFFER_USUAL))

    async def story(memory: ReceiveMemory, tables: list[Table]) -> None:
        *lazy, good = tables
        sending = [asyncio.ensure_future(table.order(half)) for table in lazy]
        for _ in range(100):
            await settled()
        assert memory.is_short
        sending.append(asyncio.ensure_future(good.order(whole)))
        eating = asyncio.ensure_future(good.eat(len(whole)))
        for _ in range(100):
            await settled()
            memory.call_all()
        assert not eating.done()
        assert memory.lent_bytes <= 4 * BUFFER_USUAL + 16 * BUFFER_USUAL
        # The sweep ends the one in need, whose client is slow; then it is somebody else's turn.
        for table in lazy:
            table.connection.close("slow")
            for _ in range(20):
                await settled()
        assert await eating == whole
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    at_tables(7, story)


def test_a_buffer_goes_back_when_its_fetch_begins_to_wait() -> None:
    async def story(memory: ReceiveMemory, tables: list[Table]) -> None:
        (table,) = tables
        table.waiter.holds = table.waiter.waits = True
        await table.order(framed(bytes(3 * BUFFER_USUAL)) + b"\0")
        for _ in range(20):
            await settled()
        assert len(table.waiter.held) == 1
        assert memory.lent_bytes == 0
        assert len(table.connection._buffer) <= BUFFER_USUAL

    at_tables(1, story)
