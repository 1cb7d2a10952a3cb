"""Fetches ahead of the program: one question at a time to each broker, on a connection of its own.

A broker answers the questions of a connection one after another, and a fetch may wait half a second
for records: a commit or a heartbeat behind it would wait too. So fetches have their own.

H1  a broker has at most one fetch of ours at a time, about all partitions that want one
H2  bytes that wait to be given out, and bytes asked for, are together at most `fetch.max.bytes`. A
    chunk keeps at most twice its own bytes. Who can give nothing out always asks for a little: a
    small bound, or a partition that is paused, must not stop the others
H3  an answer is believed only for partitions whose bookmark has not moved since (`turn`)
H4  after an error the partition rests for `retry.backoff.ms`, or until the metadata changes
H5  a partition that moved, was cut or ran out of its log is told to `lost`, with the reason

Not here: where to begin (`locating.py`), giving out (`positions.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from ottla.clients import options as rows
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import Connection, error_code_of
from ottla.clients.consumer.decoding import AbortedFilter, scan
from ottla.clients.consumer.errors import FetchError
from ottla.clients.consumer.positions import CHUNKS_MAX, Bookmark, Bookmarks, Chunk
from ottla.clients.consumer.requests import FETCH_IDS_FROM, Ask, fetch_fields
from ottla.clients.metadata import PartitionInfo, endpoints_of
from ottla.clients.retrying import is_retriable
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import FETCH
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

# While something of a broker may not be asked for because its buffer is full, the others are asked
# with little patience: it must be asked for again as soon as there is room.
_SHORT_WAIT_MS: Final = 20
_ANSWER_SLACK_BYTES: Final = 1 << 20


class _Asked(NamedTuple):
    """A partition in a fetch that is under way."""

    bookmark: Bookmark
    turn: int
    ask: Ask


class Fetcher:
    """Keeps the buffers full; `pump` whenever something may have changed, `close` once."""

    def __init__(
        self,
        cluster: ClusterClient,
        bookmarks: Bookmarks,
        *,
        arrived: Callable[[], None],
        lost: Callable[[Bookmark, ErrorCode, int | None], None],
        failed: Callable[[OttlaError], None],
    ) -> None:
        self._cluster: Final = cluster
        self._bookmarks: Final = bookmarks
        self._arrived: Final = arrived
        # A bookmark, why, and where the logs part if that is known.
        self._lost: Final = lost
        self._failed: Final = failed
        value_of = cluster.options.value_of
        self._max_wait_ms: Final = value_of(rows.FETCH_MAX_WAIT_MS)
        self._min_bytes: Final = value_of(rows.FETCH_MIN_BYTES)
        self._max_bytes: Final = value_of(rows.FETCH_MAX_BYTES)
        self._partition_max_bytes: Final = value_of(rows.MAX_PARTITION_FETCH_BYTES)
        self._isolation: Final = int(value_of(rows.ISOLATION_LEVEL) == "read_committed")
        self._rack: Final = value_of(rows.CLIENT_RACK)
        self._backoff_s: Final = value_of(rows.RETRY_BACKOFF_MS) / 1000
        self._timeout_s: Final = (value_of(rows.REQUEST_TIMEOUT_MS) + self._max_wait_ms) / 1000
        self._busy: Final = dict[int, asyncio.Task[None]]()
        self._connections: Final = dict[int, Connection]()
        self._resting: Final = set[TopicPartition]()
        self._asked_bytes = 0
        self._is_closed = False

    def pump(self) -> None:
        """Ask whoever is free for what is wanted; on the event loop only."""
        if self._is_closed:
            return
        # The program's thread may be taking records from the same bookmarks.
        with self._bookmarks.lock:
            self._pump()

    def _pump(self) -> None:
        wanted, full = self._wanted()
        for node_id, found in wanted.items():
            room = self._max_bytes - self._asked_bytes - self._bookmarks.bytes_waiting
            if node_id in self._busy:
                continue
            if room <= 0 and (self._asked_bytes or self._bookmarks.has_records):  # H2
                continue
            wait_ms = self._max_wait_ms
            if node_id in full:
                wait_ms = min(wait_ms, _SHORT_WAIT_MS)
            budget = max(1, min(room, len(found) * self._partition_max_bytes))
            self._begin(node_id, found, wait_ms, budget)

    def _wanted(self) -> tuple[dict[int, list[tuple[Bookmark, PartitionInfo]]], set[int]]:
        """Return what to ask which broker for, and the brokers of partitions that are full."""
        wanted: dict[int, list[tuple[Bookmark, PartitionInfo]]] = {}
        full = set[int]()
        for bookmark in tuple(self._bookmarks):
            if bookmark.position is None or bookmark.paused or bookmark.is_fetching:
                continue
            where = bookmark.partition
            info = self._cluster.metadata.leader_of(where.topic, where.partition)
            if info is None:
                self._cluster.refresh_soon()
            elif len(bookmark.chunks) >= CHUNKS_MAX:
                full.add(info.leader)
            elif bookmark.wants_fetch and where not in self._resting:
                wanted.setdefault(info.leader, []).append((bookmark, info))
        return wanted, full

    def metadata_changed(self) -> None:
        self._resting.clear()
        self.pump()

    async def close(self) -> None:
        self._is_closed = True
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    def _begin(
        self, node_id: int, found: list[tuple[Bookmark, PartitionInfo]], wait_ms: int, budget: int
    ) -> None:
        asked = []
        for bookmark, info in found:
            topic = self._cluster.metadata.topic(bookmark.partition.topic)
            topic_id = ZERO_UUID if topic is None else topic.topic_id
            ask = Ask(
                bookmark.partition,
                topic_id,
                bookmark.fetch_offset,
                info.leader_epoch,
                bookmark.fetch_epoch,
            )
            bookmark.is_fetching = True
            asked.append(_Asked(bookmark, bookmark.turn, ask))
        self._asked_bytes += budget
        task = asyncio.create_task(self._fetch(node_id, asked, wait_ms, budget))
        self._busy[node_id] = task
        task.add_done_callback(lambda _: self._ended(node_id, budget))

    def _ended(self, node_id: int, budget: int) -> None:
        self._busy.pop(node_id, None)
        self._asked_bytes -= budget
        self.pump()

    async def _fetch(self, node_id: int, asked: list[_Asked], wait_ms: int, budget: int) -> None:
        try:
            answer = await self._ask(node_id, asked, wait_ms, budget)
        except OttlaError:
            # Broken, unreachable or silent: somebody else may lead by now.
            self._cluster.metrics.count("fetch.failures")
            self._cluster.refresh_soon()
            self._rest([one.bookmark for one in asked])
            return
        finally:
            for one in asked:
                if one.bookmark.turn == one.turn:
                    one.bookmark.is_fetching = False
        self._cluster.metrics.count("fetch.requests")
        with self._bookmarks.lock:
            self._take(answer, asked)
        self._arrived()

    async def _ask(self, node_id: int, asked: list[_Asked], wait_ms: int, budget: int) -> Message:
        connection = await self._connection(node_id)
        version = connection.version_of(FETCH)
        if any(one.ask.topic_id == ZERO_UUID for one in asked):
            version = min(version, FETCH_IDS_FROM - 1)
        fields = fetch_fields(
            [one.ask for one in asked],
            max_wait_ms=wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=budget,
            partition_max_bytes=self._partition_max_bytes,
            isolation_level=self._isolation,
            rack=self._rack,
        )
        return await connection.call(FETCH, fields, version, timeout_s=self._timeout_s)

    async def _connection(self, node_id: int) -> Connection:
        found = self._connections.get(node_id)
        broker = self._cluster.metadata.broker(node_id)
        if found is not None and not found.is_closed:
            if broker is None or broker.address == found.address:
                return found
            found.abort()
        # The shared connection tells, with its back-off, whether the broker can be reached at all.
        shared = await self._cluster.connection(node_id)
        opened = await self._cluster.peers.open(shared.address)
        self._connections[node_id] = opened
        return opened

    def _take(self, answer: Message, asked: list[_Asked]) -> None:
        code = error_code_of(answer.get("error_code", 0))
        if code is not ErrorCode.NONE:
            self._rest([one.bookmark for one in asked])
            return
        by_name = {(one.ask.partition.topic, one.ask.partition.partition): one for one in asked}
        by_id = {(one.ask.topic_id, one.ask.partition.partition): one for one in asked}
        for topic in answer.responses:
            name: str | None = topic.get("topic")
            topic_id: UUID | None = topic.get("topic_id")
            for told in topic.partitions:
                index = told.partition_index
                one = (
                    by_name.get((name, index))
                    if name is not None
                    else by_id.get((topic_id or ZERO_UUID, index))
                )
                if one is not None and one.bookmark.turn == one.turn:
                    self._take_partition(one, told, answer)

    def _take_partition(self, one: _Asked, told: Message, answer: Message) -> None:
        bookmark = one.bookmark
        code = error_code_of(told.error_code)
        if code is not ErrorCode.NONE:
            self._refused(bookmark, code, told, answer)
            return
        diverging = told.get("diverging_epoch")
        if diverging is not None and diverging.epoch >= 0:
            self._lost(bookmark, ErrorCode.FENCED_LEADER_EPOCH, max(0, diverging.end_offset))
            return
        bookmark.high_watermark = told.high_watermark
        bookmark.start_offset = told.get("log_start_offset", -1)
        data = told.records
        if data is None or not len(data):
            return
        view = kept(memoryview(data))
        end, epoch = scan(view, one.ask.offset)
        aborted = [
            (each.producer_id, each.first_offset) for each in told.get("aborted_transactions") or ()
        ]
        chunk = Chunk(view, AbortedFilter(aborted) if aborted else None)
        if bookmark.fetched(chunk, one.turn):
            bookmark.fetch_offset = end
            if epoch >= 0:
                bookmark.fetch_epoch = epoch
            self._cluster.metrics.count("fetch.bytes", len(view))

    def _refused(self, bookmark: Bookmark, code: ErrorCode, told: Message, answer: Message) -> None:
        where = bookmark.partition
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._lost(bookmark, code, None)
            return
        if not is_retriable(code):
            self._failed(FetchError(where, code))
            self._rest([bookmark])
            return
        self._cluster.metrics.count("fetch.moved")
        leader = told.get("current_leader")
        if leader is not None and leader.leader_id >= 0:
            endpoints = endpoints_of(answer)
            if self._cluster.hint(
                where.topic, where.partition, leader.leader_id, leader.leader_epoch, endpoints
            ):
                return
        self._cluster.refresh_soon()
        self._rest([bookmark])

    def _rest(self, bookmarks: list[Bookmark]) -> None:
        """Leave these alone for a moment (H4)."""
        resting = {bookmark.partition for bookmark in bookmarks}
        self._resting.update(resting)

        def over() -> None:
            self._resting.difference_update(resting)
            self.pump()

        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(self._backoff_s, over)


def kept(view: memoryview) -> memoryview:
    """Return these bytes, on their own if they would keep many others of an answer (H2)."""
    whole = memoryview(view.obj).nbytes
    return memoryview(bytes(view)) if 2 * len(view) < whole else view
