"""Requests that wait share timers: their time is up a little late, and never early."""

from __future__ import annotations

import asyncio
import time

from ottla.node.kafka.deadlines import ROUND_MS, Deadlines


class Waits:
    def __init__(self) -> None:
        self.up_ms: int | None = None

    def time_is_up(self) -> None:
        assert self.up_ms is None
        self.up_ms = _now_ms()


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


async def until_up(*waiting: Waits) -> None:
    async with asyncio.timeout(10):
        while any(one.up_ms is None for one in waiting):  # noqa: ASYNC110  # time itself
            await asyncio.sleep(0.005)


def test_time_is_up_never_early_and_once() -> None:
    async def story() -> None:
        deadlines = Deadlines(_now_ms)
        began_ms = _now_ms()
        waiting = {wait_ms: Waits() for wait_ms in (0, 20, 1000, 1001, 1100)}
        for wait_ms, one in waiting.items():
            deadlines.add(one, wait_ms)
        await until_up(*waiting.values())
        for wait_ms, one in waiting.items():
            assert one.up_ms is not None
            # The clock of the loop and this one may differ by a tick.
            assert one.up_ms - began_ms >= wait_ms - 2

    asyncio.run(story())


def test_who_was_answered_is_not_told() -> None:
    async def story() -> None:
        deadlines = Deadlines(_now_ms)
        short, shared, stays = Waits(), Waits(), Waits()
        deadlines.add(short, 10)()
        call_off = deadlines.add(shared, 1000)
        deadlines.add(stays, 1000 + ROUND_MS)
        call_off()
        call_off()
        await until_up(stays)
        assert (short.up_ms, shared.up_ms) == (None, None)

    asyncio.run(story())
