"""Finds positions that have to be looked up: by time, from the beginning or the end of a log.

L1  a bookmark is looked up for as long as it has a `lookup_time`; an answer counts only if it still
    has the same one and has not moved meanwhile
L2  what can be retried is asked again after `retry.backoff.ms`, of the leader of that moment

Not here: what is committed (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from ottla.clients import options as rows
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.positions import Bookmark, Bookmarks
from ottla.clients.consumer.record import LATEST_TIME, OffsetAndTimestamp
from ottla.clients.consumer.requests import list_offsets_fields, offsets_listed
from ottla.clients.retrying import is_retriable, is_transient
from ottla.proto.errors import ErrorCode, OttlaError, RequestError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import LIST_OFFSETS


class Locator:
    """Looks positions up in the background, and answers the same question for programs."""

    def __init__(
        self,
        cluster: ClusterClient,
        bookmarks: Bookmarks,
        *,
        found: Callable[[], None],
        failed: Callable[[OttlaError], None],
    ) -> None:
        self._cluster: Final = cluster
        self._bookmarks: Final = bookmarks
        self._found: Final = found
        self._failed: Final = failed
        value_of = cluster.options.value_of
        self._isolation: Final = int(value_of(rows.ISOLATION_LEVEL) == "read_committed")
        self._timeout_ms: Final = value_of(rows.REQUEST_TIMEOUT_MS)
        self._backoff_s: Final = value_of(rows.RETRY_BACKOFF_MS) / 1000
        self._task: asyncio.Task[None] | None = None

    def pump(self) -> None:
        """Begin to look up if something waits for it."""
        if self._task is None and any(one.lookup_time is not None for one in self._bookmarks):
            self._task = asyncio.create_task(self._locate())
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        if self._task is not None:
            task = self._task
            task.cancel()
            await asyncio.wait([task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled():
            self.pump()

    async def _locate(self) -> None:
        waiting = {
            one.partition: (one, one.turn, one.lookup_time)
            for one in self._bookmarks
            if one.lookup_time is not None
        }
        times = {partition: time for partition, (_, _, time) in waiting.items()}
        found, errors = await self.ask_once(times)
        with self._bookmarks.lock:
            for partition, offset in found.items():
                bookmark, turn, time = waiting[partition]
                if bookmark.turn == turn and bookmark.lookup_time == time:
                    await_end = offset.offset < 0
                    if await_end and time != LATEST_TIME:
                        # Nothing so late: the end is where it will come.
                        bookmark.lose(LATEST_TIME)
                    else:
                        bookmark.move(max(0, offset.offset), epoch=-1)
        for partition, code in errors.items():
            if not is_retriable(code):
                with self._bookmarks.lock:
                    waiting[partition][0].lose(None)
                self._failed(RequestError(code, f"{partition}: {code.sentence}"))
        self._found()
        if errors:
            self._cluster.refresh_soon()
            await asyncio.sleep(self._backoff_s)

    async def ask_once(
        self, times: Mapping[TopicPartition, int]
    ) -> tuple[dict[TopicPartition, OffsetAndTimestamp], dict[TopicPartition, ErrorCode]]:
        """Return what was found and what was not, and why not."""
        errors = dict[TopicPartition, ErrorCode]()
        by_node: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
        for partition, time in times.items():
            info = self._cluster.metadata.leader_of(partition.topic, partition.partition)
            if info is None:
                self._cluster.want(partition.topic)
                errors[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_node.setdefault(info.leader, {})[partition] = (time, info.leader_epoch)
        found = dict[TopicPartition, OffsetAndTimestamp]()
        answers = await asyncio.gather(
            *(self._ask_node(node, asked) for node, asked in by_node.items())
        )
        for answer in answers:
            for partition, (number, offset) in answer.items():
                code = error_code_of(number)
                if code is ErrorCode.NONE:
                    found[partition] = offset
                else:
                    errors[partition] = code
        return found, errors

    async def _ask_node(
        self, node_id: int, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, OffsetAndTimestamp]]:
        fields = list_offsets_fields(asked, self._isolation, self._timeout_ms)
        try:
            return offsets_listed(await self._cluster.call(node_id, LIST_OFFSETS, fields))
        except OttlaError as error:
            if not is_transient(error):
                raise
            nothing = OffsetAndTimestamp(-1, -1)
            return dict.fromkeys(asked, (int(ErrorCode.NETWORK_EXCEPTION), nothing))

    async def offsets_at(
        self, times: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return the offset for each time, asked until all are known, or raise `RequestError`."""
        self._cluster.want(*{partition.topic for partition in times})
        wanted = dict(times)
        result = dict[TopicPartition, OffsetAndTimestamp]()
        why = ErrorCode.LEADER_NOT_AVAILABLE
        try:
            async with asyncio.timeout(timeout_s):
                while wanted:
                    found, errors = await self.ask_once(wanted)
                    result |= found
                    for partition in found:
                        del wanted[partition]
                    for partition, why in errors.items():
                        if not is_retriable(why):
                            raise RequestError(why, f"{partition}: {why.sentence}")
                    if wanted:
                        self._cluster.refresh_soon()
                        await asyncio.sleep(self._backoff_s)
        except TimeoutError:
            told = ", ".join(map(str, wanted))
            raise RequestError(why, f"{told}: no offset within {timeout_s:g} s.") from None
        return result


def require_bookmark(bookmark: Bookmark) -> int:
    """Return the position of a bookmark that has one."""
    if bookmark.position is None:
        raise RequestError(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{bookmark.partition} has no position yet."
        )
    return bookmark.position
