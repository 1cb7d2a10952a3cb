"""Gives partitions a position: the committed one, else what `auto.offset.reset` says.

I1  a program that seeks meanwhile is right: what is found later does not count (`turn`)
I2  a log that was cut below the position (KIP-320) is read on from where it was cut; with
    `auto.offset.reset=none` the program is told instead

Not here: lookups by time (`locating.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ottla.clients import options as rows
from ottla.clients.cluster import ClusterClient
from ottla.clients.consumer.committing import Committer
from ottla.clients.consumer.errors import NoOffsetError
from ottla.clients.consumer.locating import Locator
from ottla.clients.consumer.positions import Bookmark, Bookmarks, Reset
from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.clients.consumer")


class Positioner:
    """Begins partitions, and finds a place for those that lost theirs."""

    def __init__(
        self,
        cluster: ClusterClient,
        bookmarks: Bookmarks,
        committer: Committer,
        locator: Locator,
        *,
        failed: Callable[[OttlaError], None],
        found: Callable[[], None],
    ) -> None:
        value_of = cluster.options.value_of
        self._cluster: Final = cluster
        self._bookmarks: Final = bookmarks
        self._committer: Final = committer
        self._locator: Final = locator
        self._failed: Final = failed
        self._found: Final = found
        self._reset: Final = Reset(value_of(rows.AUTO_OFFSET_RESET))
        self._timeout_s: Final = value_of(rows.DEFAULT_API_TIMEOUT_MS) / 1000
        self._tasks: Final = set[asyncio.Task[None]]()

    def begin(self, new: Sequence[Bookmark]) -> None:
        """Find positions for bookmarks that have none."""
        fresh = [one for one in new if one.position is None and one.lookup_time is None]
        for one in fresh:
            one.awaits_committed = True
        if fresh:
            task = asyncio.create_task(self._position(fresh))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._found()

    async def close(self) -> None:
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def lost(self, bookmark: Bookmark, code: ErrorCode, parted_at: int | None) -> None:
        """Go on elsewhere: what was asked for is not in the log."""
        where, position = bookmark.partition, bookmark.fetch_offset
        if parted_at is not None and self._reset is not Reset.NONE:
            LOG.warning("%s: the log was cut at %d, below %d", where, parted_at, position)
            self._cluster.metrics.count("offsets.cut")
            bookmark.move(min(parted_at, position))
            return
        LOG.warning("%s: offset %d is out of range (%s)", where, position, code.name)
        self._cluster.metrics.count("offsets.out_of_range")
        self._start_anew(bookmark, f"offset {position} is out of range")

    def _start_anew(self, bookmark: Bookmark, why: str) -> None:
        if self._reset is Reset.NONE:
            bookmark.lose(None)
            self._failed(NoOffsetError(bookmark.partition, why))
        else:
            bookmark.lose(self._reset.time)
            self._locator.pump()

    async def _position(self, bookmarks: Sequence[Bookmark]) -> None:
        waiting = {one.partition: (one, one.turn) for one in bookmarks}
        found: Mapping[TopicPartition, OffsetAndMetadata | None] = {}
        if self._committer.has_group:
            try:
                found = await self._committer.committed(waiting, self._timeout_s)
            except OttlaError as error:
                self._failed(error)
                return
        with self._bookmarks.lock:
            for partition, (bookmark, turn) in waiting.items():
                if bookmark.turn != turn or not bookmark.awaits_committed:
                    continue
                offset = found.get(partition)
                if offset is None:
                    self._start_anew(bookmark, "nothing is committed")
                else:
                    bookmark.move(offset.offset, epoch=offset.leader_epoch)
                    bookmark.committed = offset.offset
        self._found()
