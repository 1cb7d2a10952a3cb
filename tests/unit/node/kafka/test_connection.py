"""One client's connection: N1 to N4, back-pressure, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from functools import partial

import pytest

from ottla.node.kafka.connection import (
    SLOTS_MAX,
    UNSENT_BYTES_MAX,
    WAITING_BYTES_MAX,
)
from tests.unit.node.kafka.guest import REQUEST_BYTES_MAX, Table, at_table, framed, settled


def test_a_request_is_served_and_answered() -> None:
    async def story(table: Table) -> None:
        await table.order(framed(b"soup"))
        assert await table.eat(8) == framed(b"soup")

    assert at_table(story).frames == [b"soup"]


def test_requests_that_arrive_together_are_served_one_by_one() -> None:
    async def story(table: Table) -> None:
        orders = [b"soup", b"", b"bread", b"x" * 3000]
        await table.order(b"".join(map(framed, orders)))
        assert table.waiter.frames == orders

    at_table(story)


@pytest.mark.parametrize("cut", range(1, 24))
def test_a_request_may_be_cut_anywhere(cut: int) -> None:
    async def story(table: Table) -> None:
        sent = framed(b"first") + framed(b"the second")
        await table.order(sent[:cut])
        await table.order(sent[cut:])
        assert table.waiter.frames == [b"first", b"the second"]

    at_table(story)


def test_a_large_request_behind_small_ones_is_read_whole() -> None:
    """The buffer is replaced while it is read into: this was wrong once."""

    async def story(table: Table) -> None:
        large = bytes(range(256)) * 4096
        for size in (1, 2047, 2048, 65_531, 65_532, 65_533, 200_000, len(large)):
            small, big = framed(b"s" * 100), framed(large[:size])
            table.waiter.frames.clear()
            await table.order(small + big[:50])
            await table.order(big[50:] + small)
            await settled()
            assert table.waiter.frames == [b"s" * 100, large[:size], b"s" * 100]
            assert await table.eat(len(small) * 2 + len(big)) == small + big + small

    at_table(story)


def test_n1_answers_leave_in_the_order_of_the_requests() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"0") + framed(b"1") + framed(b"2"))
        held = table.waiter.held
        held[2].answer((b"two",))
        held[1].answer((b"one",))
        await settled()
        assert table.eat_what_is_there() == b""
        held[0].answer((b"zero",))
        assert await table.eat(10) == b"zeroonetwo"

    at_table(story)


def test_n1_an_answer_that_is_there_at_once_waits_for_those_before_it() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"slow"))
        table.waiter.holds = False
        await table.order(framed(b"fast"))
        assert table.eat_what_is_there() == b""
        table.waiter.held[0].answer((framed(b"slow"),))
        assert await table.eat(16) == framed(b"slow") + framed(b"fast")

    at_table(story)


def test_n3_no_more_requests_are_taken_than_may_wait() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        table.order_some(framed(b"x") * (SLOTS_MAX * 3))
        await settled()
        assert len(table.waiter.held) == SLOTS_MAX
        assert not table.connection.is_read
        # One answer makes room for one request.
        table.waiter.held[0].answer((b"a",))
        await settled()
        assert len(table.waiter.held) == SLOTS_MAX + 1
        for number in range(1, SLOTS_MAX * 3):
            while len(table.waiter.held) <= number:
                await settled()
            table.waiter.held[number].answer((b"a",))
        assert await table.eat(SLOTS_MAX * 3) == b"a" * (SLOTS_MAX * 3)
        assert table.connection.is_read

    at_table(story)


def test_n3_no_more_bytes_are_taken_than_may_wait() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        size = REQUEST_BYTES_MAX
        fits = WAITING_BYTES_MAX // size
        sending = asyncio.ensure_future(table.order(framed(bytes(size)) * (fits + 2)))
        while len(table.waiter.held) < fits:
            await settled()
        for _ in range(50):
            await settled()
        assert len(table.waiter.held) == fits
        assert not table.connection.is_read
        for number in range(fits + 2):
            while len(table.waiter.held) <= number:
                await settled()
            table.waiter.held[number].answer((b"a",))
        await sending

    at_table(story)


def test_n3_who_does_not_eat_is_not_served_any_more() -> None:
    async def story(table: Table) -> None:
        order = framed(bytes(100_000))
        sending = asyncio.ensure_future(table.order(order * 40))
        for _ in range(200):
            await settled()
        served = len(table.waiter.frames)
        assert served * len(order) < UNSENT_BYTES_MAX + 4 * len(order)
        assert not table.connection.is_read
        # When the guest eats again, all is served, in order and whole.
        assert await table.eat(len(order) * 40) == order * 40
        await sending
        assert table.connection.is_read

    at_table(story, socket_bytes=8192)


def test_a_serial_request_lets_none_behind_it_begin() -> None:
    async def story(table: Table) -> None:
        table.waiter.is_serial = True
        await table.order(framed(b"make") + framed(b"use"))
        assert table.waiter.frames == [b"make"]
        table.waiter.is_serial = False
        table.waiter.held[0].answer((framed(b"make"),))
        await settled()
        assert table.waiter.frames == [b"make"]
        table.connection.end_serial()
        assert await table.eat(15) == framed(b"make") + framed(b"use")

    at_table(story)


def test_n4_a_length_is_not_paid_for_when_it_is_heard() -> None:
    async def story(table: Table) -> None:
        await table.order(framed(bytes(REQUEST_BYTES_MAX))[:5000])
        assert len(table.connection._buffer) <= 64 * 1024

    at_table(story)


@pytest.mark.parametrize(
    ("length", "sentence"),
    [
        (-1, "a request of -1 bytes was announced"),
        (
            REQUEST_BYTES_MAX + 1,
            "a request of 8388609 bytes was announced; socket.request.max.bytes allows 8388608",
        ),
        (0x16030102, "this is a TLS handshake, and the listener speaks plain text"),
        (0x47455420, "this is an HTTP request, and the listener speaks Kafka's protocol"),
    ],
)
def test_n4_a_length_that_cannot_be_closes_and_is_told(length: int, sentence: str) -> None:
    async def story(table: Table) -> None:
        await table.order(framed(b"soup") + struct.pack(">i", length))
        # What was asked before is still answered.
        assert await table.eat(9) == framed(b"soup")

    waiter = at_table(story)
    assert [str(error) for error in waiter.broken] == [sentence]
    assert waiter.closings == [f"protocol: {sentence}"]


def test_a_request_that_is_none_closes_after_the_answers_that_are_ready() -> None:
    async def story(table: Table) -> None:
        table.waiter.refuses = b"bad"
        await table.order(framed(b"soup") + framed(b"bad") + framed(b"never"))
        assert await table.eat(9) == framed(b"soup")

    waiter = at_table(story)
    assert waiter.frames == [b"soup"]
    assert waiter.closings == ["protocol: this is none"]


def test_who_waits_is_told_when_the_client_goes() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        told = list[int]()
        await table.order(framed(b"0") + framed(b"1") + framed(b"2"))
        for number, slot in enumerate(table.waiter.held):
            slot.on_closed = partial(told.append, number)
        table.waiter.held[1].answer((b"ready, but not its turn",))
        table.guest.close()
        await settled()
        assert told == [0, 2]
        assert table.connection.is_closed
        # A late answer goes nowhere, and harms nothing.
        table.waiter.held[0].answer((b"late",))

    waiter = at_table(story)
    assert waiter.closings == ["closed by the client"]


def test_a_reset_is_an_end_like_any_other() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"soup"))
        table.guest.close()
        await settled()
        table.waiter.held[0].answer((bytes(100),))
        await settled()
        assert table.connection.is_closed

    assert len(at_table(story).closings) == 1


def test_an_answer_to_a_client_that_is_gone_closes_the_connection() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"soup"))
        # It has gone, and nothing that could be read says so.
        table.guest.shutdown(socket.SHUT_RD)
        table.waiter.held[0].answer((bytes(10),))
        await settled()
        assert table.connection.is_closed

    assert at_table(story).closings == ["sending failed: Broken pipe"]


def test_an_answer_that_cannot_be_given_closes_the_connection() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"soup"))
        table.waiter.held[0].fail("the kitchen burns")
        assert await table.eat(1) == b""

    assert at_table(story).closings == ["the kitchen burns"]


def test_a_large_buffer_is_given_back_when_nothing_is_in_it() -> None:
    async def story(table: Table) -> None:
        await table.order(framed(bytes(1_000_000)))
        while not table.waiter.frames:
            await settled()
        assert len(table.connection._buffer) > 64 * 1024
        assert await table.eat(1_000_004)
        table.connection.shrink()
        assert len(table.connection._buffer) == 2048
        # And it grows again.
        await table.order(framed(b"y" * 100_000))
        assert await table.eat(100_004) == framed(b"y" * 100_000)

    at_table(story)


def test_a_buffer_with_half_a_request_in_it_is_kept() -> None:
    async def story(table: Table) -> None:
        whole = framed(b"z" * 100_000)
        await table.order(whole[:90_000])
        table.connection.shrink()
        await table.order(whole[90_000:])
        assert await table.eat(len(whole)) == whole

    at_table(story)


def test_the_time_of_a_request_counts_from_its_first_byte() -> None:
    async def story(table: Table) -> None:
        seen = [_time_and_need(table)]
        frame = framed(b"soup")
        for time_ms, piece in [
            (5, frame[:6]),
            (9, frame[6:7]),
            (11, frame[7:] + framed(b"")[:1]),
            (12, framed(b"")[1:]),
        ]:
            table.waiter.time_ms = time_ms
            await table.order(piece)
            seen.append(_time_and_need(table))
        assert seen == [(None, 4), (5, 8), (5, 8), (11, 4), (None, 4)]

    at_table(story)


def _time_and_need(table: Table) -> tuple[int | None, int]:
    return table.connection.frame_began_ms, table.connection.needed


def test_who_asks_a_node_that_stops_is_told_at_once_that_nobody_answers() -> None:
    async def story(table: Table) -> None:
        table.connection.drain()
        await table.order(framed(b"soup"))
        assert table.guest.recv(1) == b""

    assert at_table(story).frames == []


def test_a_node_that_stops_lets_go_of_a_client_when_it_has_all_its_answers() -> None:
    async def story(table: Table) -> None:
        table.waiter.holds = True
        await table.order(framed(b"soup"))
        table.connection.drain()
        # Nobody reads this one; that costs the guest nothing that was ordered before.
        await table.order(framed(b"bread"))
        with pytest.raises(BlockingIOError):
            table.guest.recv(1)
        (soup,) = table.waiter.held
        soup.answer((b"soup",))
        await settled()
        assert table.connection.is_drained
        assert await table.eat(5) == b"soup"

    assert at_table(story).frames == [b"soup"]
