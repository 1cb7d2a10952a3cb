"""A few threads that wait for the disk, with next to no ceremony.

An executor makes a future, a work item and a handful of locks for each call, and the loop another
future and a task: more work than the sync itself. A sync needs none of that. Who hands one over is
told of its end by the work itself.

Not here: what is synced (`sync.py`), and who is told (`group_commit.py`).

W1  work is begun in the order in which it was handed over, by as many threads as there are
W2  after `shutdown` everything that was handed over is done, and no thread is left
"""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Final

from ottla.proto.errors import ensure

Work = Callable[[], object]


class SyncThreads:
    """Threads that begin when there is work, and end with `shutdown`. Belongs to one thread."""

    def __init__(self, count: int) -> None:
        self._count: Final = count
        self._queue: Final[SimpleQueue[Work | None]] = SimpleQueue()
        self._threads: Final[list[Thread]] = []
        self._is_over = False

    def submit(self, work: Work) -> None:
        """Let a thread do this; it must not raise."""
        ensure(not self._is_over, "nothing is synced after the end")
        self._queue.put(work)
        if len(self._threads) < self._count:
            thread = Thread(target=self._work, name=f"sync-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def shutdown(self) -> None:
        """Wait until all that was handed over is done."""
        self._is_over = True
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
