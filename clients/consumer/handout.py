"""Gives out what is here already: the part of a consumer that is called for every record.

It is called by the program's own thread too, if the consumer has a lock. So it gives out only what
has come, and only if nothing else is to be done first; what waits, asks and joins is in
`async_consumer.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.clients.clock import now_ms
from ottla.clients.consumer.errors import ConsumerError
from ottla.clients.consumer.group import GroupMember
from ottla.clients.consumer.positions import Bookmarks
from ottla.clients.consumer.reading import Reading
from ottla.clients.consumer.record import Record
from ottla.clients.consumer.troubles import Troubles
from ottla.clients.errors import ClientClosedError, DeserializationError
from ottla.clients.metrics import Metrics


class Handout:
    """What a consumer needs to give out records that are here."""

    def __init__(self, bookmarks: Bookmarks, reading: Reading, metrics: Metrics) -> None:
        self.bookmarks: Final = bookmarks
        self._reading: Final = reading
        self._metrics: Final = metrics
        self.member: GroupMember | None = None
        # What the program has to know of, before any further record.
        self.errors: Final = Troubles(bookmarks)
        self._is_closed = False
        # Given out one by one, and not in the metrics yet.
        self._polled = 0
        # What is looked at for every record.
        self._is_plain: Final = reading.is_plain
        self._waiting: Final = self.errors.waiting

    def next_here(self, pump: Callable[[], None]) -> Record | None:
        """Return the next record if it is here; `pump` is called if there is room for more."""
        bookmarks = self.bookmarks
        # Not acquire and release, though that costs half: Ctrl-C between acquire and try would
        # leave it locked for ever.
        with bookmarks.lock:
            # As `_may_give_out`, without a call for each record.
            if self._waiting or self._is_closed:
                return None
            member = self.member
            if member is not None:
                if member.wants_quiet:
                    return None
                member.last_poll_ms = now_ms()
            opened = bookmarks.portions_opened
            record = bookmarks.next_record()
            if record is not None:
                self._polled += 1
                if not self._is_plain:
                    readable = self._reading.read([record]) or self.read(1)
                    record = readable[0] if readable else None
        if bookmarks.portions_opened != opened:
            pump()
        return record

    def take_here(self, count: int, pump: Callable[[], None]) -> list[Record]:
        """Return up to `count` records that are here; `pump` is called if there is room."""
        bookmarks = self.bookmarks
        with bookmarks.lock:
            if not self._may_give_out():
                return []
            opened = bookmarks.portions_opened
            records = self.read(count)
        if bookmarks.portions_opened != opened:
            pump()
        return records

    def _may_give_out(self) -> bool:
        """Note that the program came back; return whether it may be given records at once."""
        if self._is_closed or self.errors.waiting:
            return False
        self.bookmarks.came_back()
        member = self.member
        if member is not None:
            if member.wants_quiet:
                return False
            member.last_poll_ms = now_ms()
        return True

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed.")

    def _require_wish(self) -> None:
        self._require_open()
        if self.member is None and not self.bookmarks.all:
            raise ConsumerError("there is nothing to read: subscribe or assign comes first.")

    def count_polled(self) -> None:
        """Bring the metrics up to date."""
        self._metrics.count("records.consumed", self._polled)
        self._polled = 0

    def read(self, count: int) -> list[Record]:
        """Return what is here, deserialized; the caller holds the lock and may give it out."""
        if self._reading.is_strict:
            return self._read_strictly(count)
        while True:
            records = self.bookmarks.take(count)
            if not records:
                return records
            self._metrics.count("records.consumed", len(records))
            readable = self._reading.read(records)
            if readable:
                return readable

    def _read_strictly(self, count: int) -> list[Record]:
        """Return what comes before a record that cannot be read; that one is raised if it is first.

        It is not taken before it is told of, so that what is committed does not pass it unseen.
        """
        bookmarks, readable = self.bookmarks, list[Record]()
        while len(readable) < count:
            record = bookmarks.peek(has_some=bool(readable))
            if record is None:
                break
            try:
                readable.append(self._reading.read_one(record))
            except DeserializationError:
                if readable:
                    break
                bookmarks.take(1)
                self._metrics.count("records.consumed")
                self._metrics.count("records.unreadable")
                raise
            bookmarks.take(1)
        if readable:
            self._metrics.count("records.consumed", len(readable))
        return readable
