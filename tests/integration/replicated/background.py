"""Something asynchronous that runs in a thread of its own, beside a test that waits and kills.

Not here: what runs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final, Self, TypeVar

_STOP_S: Final = 30.0
T = TypeVar("T")


class Background(ABC):
    """A thread with an event loop; a subclass says in `_live` what it does until `is_over`."""

    def __init__(self) -> None:
        self._over: Final = threading.Event()
        self._error: BaseException | None = None
        self._thread: Final = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End it when what is on the way has ended; raises what went wrong in it."""
        self._over.set()
        self._thread.join(_STOP_S)
        self.require_sound()
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
            return
        # What went wrong in the block matters more.
        with suppress(BaseException):
            self.stop()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def require_sound(self) -> None:
        """Raise what went wrong in the thread, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  (handed to whoever waits for it)
            self._error = error

    @abstractmethod
    async def _live(self) -> None:
        """Do what it is for, until `is_over`."""

    async def _ended(self) -> None:
        """Return when somebody has stopped it."""
        await asyncio.to_thread(self._over.wait)


async def first_of(
    works: Iterable[Awaitable[T | None]], is_good: Callable[[T], bool], deadline_s: float
) -> T | None:
    """Run all at once; return the first good result, None if there is none in time."""
    tasks = [asyncio.ensure_future(work) for work in works]
    end = time.monotonic() + deadline_s
    waiting = set(tasks)
    try:
        while waiting and (left := end - time.monotonic()) > 0:
            done, waiting = await asyncio.wait(
                waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                found = task.result()
                if found is not None and is_good(found):
                    return found
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
