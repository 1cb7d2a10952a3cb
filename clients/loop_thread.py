"""An event loop on a thread of its own, on which the synchronous clients run the asynchronous ones.

T1  everything of the client happens on that thread; other threads hand work over, and wait
T2  the thread is a daemon: a program that forgets to close its client ends all the same
T3  after `stop` nothing runs any more; stopping twice is allowed

Not here: what runs there.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from ottla.clients.errors import ClientClosedError

R = TypeVar("R")


class LoopThread:
    """One event loop on one thread, from the first use until `stop`."""

    def __init__(self, name: str) -> None:
        self.loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Return what the coroutine returns, or raise what it raises.

        Ctrl-C while waiting cancels the work.
        """
        if self.is_current:
            work.close()
            raise RuntimeError("a callback must not wait for the client that called it")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        except RuntimeError:
            work.close()
            raise ClientClosedError("the client is closed.") from None
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Run this on the loop; after `stop`, not at all."""
        try:
            self.loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            return

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the loop's thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        if self.loop.is_closed():
            return
        self.call_soon(self.loop.stop)
        if not self.is_current:
            self._thread.join()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self.loop.close()
