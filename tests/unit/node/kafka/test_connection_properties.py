"""Whatever the sizes of requests and of the pieces they arrive in: exactly these, in order."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.node.kafka.guest import Table, at_table, framed, settled

SIZES = st.one_of(
    st.integers(0, 20),
    st.integers(2040, 2060),
    st.integers(65_520, 65_550),
    st.integers(0, 300_000),
)
PIECES = st.lists(st.integers(1, 70_000), min_size=1, max_size=20)


@settings(max_examples=80, deadline=None)
@given(sizes=st.lists(SIZES, min_size=1, max_size=8), pieces=PIECES, shrinks=st.booleans())
def test_requests_come_out_as_they_went_in(
    sizes: list[int], pieces: list[int], shrinks: bool
) -> None:
    orders = [bytes([number]) * size for number, size in enumerate(sizes)]
    whole = b"".join(map(framed, orders))

    async def story(table: Table) -> None:
        eating = asyncio.ensure_future(table.eat(len(whole)))
        at = turn = 0
        while at < len(whole):
            # Small pieces of small requests only: else this takes minutes and shows no more.
            piece = max(pieces[turn % len(pieces)], len(whole) // 200)
            await table.order(whole[at : at + piece])
            if shrinks:
                table.connection.shrink()
            at += piece
            turn += 1
        assert await eating == whole
        assert table.waiter.frames == orders

    at_table(story)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_answers_given_in_any_order_leave_in_order(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 20))
    turns = data.draw(st.permutations(range(count)))
    sizes = data.draw(st.lists(st.integers(0, 100_000), min_size=count, max_size=count))
    answers = [bytes([number]) * size for number, size in enumerate(sizes)]

    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"x") * count)
        eating = asyncio.ensure_future(table.eat(sum(sizes)))
        for number in turns:
            table.waiter.held[number].answer((answers[number][:7], answers[number][7:]))
            await settled()
        assert await eating == b"".join(answers)

    at_table(story, socket_bytes=8192)
