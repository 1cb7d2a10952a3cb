"""What `send` gives back: a promise that one record's fate will be told.

Y1  it is told once, and then stays: ok, failed or unknown
Y2  `result` raises `DeliveryFailedError` or `DeliveryUnknownError`; with acks=0, where nobody is
    asked, it returns a report whose state is unknown
Y3  waiting ends nothing: a time-out here says nothing about the record

Not here: how the fate is found out (`sender.py`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from ottla.clients.errors import DeliveryError
from ottla.clients.producer.batch import Batch, Report


class Delivery:
    """The fate of one record; can be waited for with `result(timeout)` or `await`."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def done(self) -> bool:
        return self._settled() is not None

    def report(self) -> Report | None:
        """Return what became of the record, or None if that is not known yet."""
        batch = self._settled()
        return None if batch is None else batch.report(self._index)

    def result(self, timeout: float | None = None) -> Report:
        """Wait, and return the report, or raise why it is not acknowledged (Y2).

        Raises `TimeoutError` if nothing is known after so many seconds (Y3).
        """
        while (batch := self._settled()) is None:
            told = threading.Event()
            self._batch.waiters.append(told.set)
            if not self._batch.has_ended and not told.wait(timeout):
                raise TimeoutError(f"nothing is known of the record after {timeout:g} s")
        return _checked(batch.report(self._index))

    def exception(self, timeout: float | None = None) -> DeliveryError | None:
        """Wait, and return why the record is not acknowledged, or None if it is."""
        try:
            self.result(timeout)
        except DeliveryError as error:
            return error
        return None

    def add_done_callback(self, callback: Callable[[Delivery], Any]) -> None:
        """Call it when all is known, on the producer's thread; at once if it is known already."""

        def tell() -> None:
            if self.done():
                callback(self)
            else:
                self._batch.waiters.append(tell)

        watched = self._batch
        if self.done():
            callback(self)
            return
        once = _Once(tell)
        watched.waiters.append(once)
        if watched.has_ended:
            once()

    def __await__(self) -> Generator[Any, None, Report]:
        while (batch := self._settled()) is None:
            loop = asyncio.get_running_loop()
            told = loop.create_future()
            self._batch.waiters.append(partial(_wake, loop, told))
            if not self._batch.has_ended:
                yield from told
        return _checked(batch.report(self._index))

    def __repr__(self) -> str:
        report = self.report()
        return f"<Delivery {'pending' if report is None else report}>"

    def _settled(self) -> Batch | None:
        """Return the batch that has the outcome; follow the record where it went."""
        while (places := self._batch.moved_to) is not None:
            self._batch, self._index = places[self._index]
        return self._batch if self._batch.outcome is not None else None


class AsyncDelivery(Delivery):
    """The same on an event loop, where nobody may block: it is awaited."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> Report:
        """Return the report of what is known already; raises `InvalidStateError` if nothing is."""
        if not self.done():
            raise asyncio.InvalidStateError("nothing is known of the record yet: await it")
        return super().result()


class _Once:
    """Calls something once, though two threads may come."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._lock = threading.Lock()

    def __call__(self) -> None:
        if self._lock.acquire(blocking=False):
            self._call()


def _checked(report: Report) -> Report:
    if report.error is not None:
        raise report.error
    return report


def _wake(loop: asyncio.AbstractEventLoop, told: asyncio.Future[None]) -> None:
    def tell() -> None:
        if not told.done():
            told.set_result(None)

    if not loop.is_closed():
        loop.call_soon_threadsafe(tell)
