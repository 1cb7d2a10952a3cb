"""Event loops whose time jumps to the next timer, so that seconds of waiting take no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any


class _Jump(selectors.DefaultSelector):
    """Looks at sockets as ever; where the loop would sleep, its clock is moved."""

    moved_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "everybody waits, and nothing will ever happen"
            self.moved_s += max(timeout, 0)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while anything is to be done."""

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)
        # Everything that failed without anybody waiting for it.
        self.failed: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, what: self.failed.append(what))

    def time(self) -> float:
        return self._jump.moved_s


def play(story: Callable[[], Awaitable[None]]) -> None:
    """Run a story on virtual time; nothing may fail behind its back."""

    async def told() -> None:
        await story()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(told())
        loop = runner.get_loop()
        assert isinstance(loop, VirtualLoop)
        assert not loop.failed, loop.failed
