"""Reads one range of offsets of one partition from its leader, whoever that is at the moment.

One fetch is under way while the bytes of the one before are made into columns.

N1  a range is read to its end, or an error says why not: no record of it is left out silently
N2  with `failOnDataLoss=false` what is gone is passed over with a warning, and nothing else is
N3  at most two answers are held: the one that is read and the one that is coming
N4  nothing new within `kafkaConsumer.pollTimeoutMs` is an error; who leads may change meanwhile.
    What its leader still has is late and not lost, whatever `failOnDataLoss` says: a transaction
    that is open holds it back, or nobody leads
N5  records are those of the topic that was planned, by its id: another one of the same name is a
    loss

Not here: which ranges there are (`planning.py`), Arrow (`arrow.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final, NamedTuple

from ottla.clients import options as rows
from ottla.clients.cluster import ClusterClient
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.decoding import scan
from ottla.clients.consumer.errors import FetchError
from ottla.clients.consumer.record import EARLIEST_TIME, LATEST_TIME
from ottla.clients.consumer.requests import (
    FETCH_IDS_FROM,
    Ask,
    fetch_fields,
    list_offsets_fields,
    offsets_listed,
)
from ottla.clients.errors import NoTopicError
from ottla.clients.loop_thread import LoopThread
from ottla.clients.metadata import PartitionInfo, TopicInfo
from ottla.clients.retrying import Backoff, is_retriable, is_transient
from ottla.clients.spark.columns import Columns, read_columns
from ottla.clients.spark.errors import ReadLateError, data_loss
from ottla.clients.spark.options import SourceOptions
from ottla.clients.spark.ranges import OffsetRange
from ottla.proto.errors import ErrorCode, OttlaError
from ottla.proto.kafka.apis import FETCH, LIST_OFFSETS
from ottla.proto.kafka.message import Message
from ottla.proto.kafka.uuids import UUID, ZERO_UUID

LOG: Final = logging.getLogger("ottla.spark")
_UNCOMMITTED: Final = 0
_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


class _Fetched(NamedTuple):
    """An answer with records in it."""

    data: memoryview
    position: int
    # Where the next fetch goes on.
    next_offset: int
    aborted: tuple[tuple[int, int], ...]


class _LostError(Exception):
    """What was to be read is not there."""

    def __init__(self, sentence: str, *, go_on_at: int | None) -> None:
        super().__init__(sentence)
        # None: nothing of this partition can be read any more.
        self.go_on_at: Final = go_on_at


class RangeReader:
    """One range, read once, from first to last."""

    def __init__(self, options: SourceOptions, wanted: OffsetRange) -> None:
        self._options: Final = options
        self._wanted: Final = wanted
        self._where: Final = wanted.partition
        self._client: Final = options.consumer_options()
        value_of = self._client.value_of
        self._check_crcs: Final = value_of(rows.CHECK_CRCS)
        self._isolation: Final = int(value_of(rows.ISOLATION_LEVEL) == "read_committed")
        self._poll_s: Final = options.poll_timeout_ms / 1000
        self._cluster: ClusterClient | None = None
        self._topic_id: UUID | None = None

    def columns(self) -> Iterator[Columns]:
        """Yield all records of the range, in order."""
        thread = LoopThread("ottla-spark-read")
        try:
            yield from self._read(thread)
        finally:
            if self._cluster is not None:
                thread.run(self._cluster.close())
            thread.stop()

    def _read(self, thread: LoopThread) -> Iterator[Columns]:
        position, end = self._wanted.start, self._wanted.end
        coming: Future[_Fetched] | None = None
        while position < end:
            if coming is None:
                coming = self._begin(thread, position)
            try:
                fetched = coming.result()
            except _LostError as lost:
                position = self._after_loss(lost, position)
                coming = None
                continue
            after = fetched.next_offset
            coming = self._begin(thread, after) if after < end else None
            yield from read_columns(
                fetched.data,
                self._where,
                fetched.position,
                end,
                with_headers=self._options.include_headers,
                check_crcs=self._check_crcs,
                aborted=fetched.aborted,
            )
            position = after

    def _begin(self, thread: LoopThread, position: int) -> Future[_Fetched]:
        return asyncio.run_coroutine_threadsafe(self._fetch(position), thread.loop)

    def _after_loss(self, lost: _LostError, position: int) -> int:
        """Return where to go on, or raise `DataLossError` (N2)."""
        if self._options.fail_on_data_loss:
            raise data_loss(str(lost)) from None
        LOG.warning("%s", lost)
        end = self._wanted.end
        if lost.go_on_at is None or lost.go_on_at <= position:
            return end
        return min(lost.go_on_at, end)

    # --- on the event loop ---

    async def _fetch(self, position: int) -> _Fetched:
        """Return the next records, asked for until they come; or raise."""
        cluster = await self._started()
        backoff = Backoff(
            self._client.value_of(rows.RETRY_BACKOFF_MS),
            self._client.value_of(rows.RETRY_BACKOFF_MAX_MS),
        )
        why = "its leader has nothing there"
        try:
            async with asyncio.timeout(self._poll_s):
                while True:
                    leader = cluster.metadata.leader_of(self._where.topic, self._where.partition)
                    if leader is None:
                        why = "it has no leader"
                        await self._look_again(cluster, backoff, position)
                        continue
                    try:
                        fetched = await self._fetch_once(cluster, leader, position)
                    except OttlaError as error:
                        if not _may_retry(error):
                            raise
                        why = str(error)
                        await self._look_again(cluster, backoff, position)
                        continue
                    if fetched is not None:
                        return fetched
        except TimeoutError:
            raise await self._late_or_lost(cluster, position, why) from None

    async def _late_or_lost(
        self, cluster: ClusterClient, position: int, why: str
    ) -> _LostError | ReadLateError:
        """Return what it means that nothing came in time (N4)."""
        sentence = (
            f"{self._where}: nothing came from offset {position} on within {self._poll_s:g} s, and "
            f"records up to {self._wanted.end} were expected: {why}."
        )
        leader = cluster.metadata.leader_of(self._where.topic, self._where.partition)
        try:
            if leader is None:
                return ReadLateError(sentence)
            high = await self._listed(cluster, leader, LATEST_TIME, isolation=_UNCOMMITTED)
        except OttlaError as error:
            return ReadLateError(f"{sentence} And then: {error}")
        if position >= high:
            return _LostError(f"{sentence} The log ends at {high}.", go_on_at=None)
        return ReadLateError(f"{sentence} The log ends at {high}, so it is there.")

    async def _started(self) -> ClusterClient:
        if self._cluster is None:
            self._cluster = ClusterClient(self._client)
        if self._topic_id is None:
            allowed_s = self._client.value_of(rows.DEFAULT_API_TIMEOUT_MS) / 1000
            try:
                topic = await self._cluster.topic(self._where.topic, allowed_s)
            except NoTopicError as error:
                raise self._gone() from error
            planned = self._wanted.topic_id
            self._topic_id = topic.topic_id if planned == ZERO_UUID else planned
        return self._cluster

    async def _look_again(self, cluster: ClusterClient, backoff: Backoff, position: int) -> None:
        await asyncio.sleep(backoff.failed() / 1000)
        await cluster.refresh()
        found = cluster.metadata.topic(self._where.topic)
        code = cluster.metadata.errors.get(self._where.topic)
        if found is None and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise self._gone()
        if self._is_another(found):
            raise self._made_anew(position)

    def _is_another(self, found: TopicInfo | None) -> bool:
        return found is not None and found.topic_id not in (self._topic_id, ZERO_UUID)

    def _made_anew(self, position: int) -> _LostError:
        return _LostError(
            f"{self._where}: the topic was deleted and made anew while offset {position} was "
            "to be read.",
            go_on_at=None,
        )

    def _gone(self) -> _LostError:
        wanted = self._wanted
        return _LostError(
            f"{self._where}: the topic is gone, and records from {wanted.start} to {wanted.end} "
            "were to be read.",
            go_on_at=None,
        )

    async def _fetch_once(
        self, cluster: ClusterClient, leader: PartitionInfo, position: int
    ) -> _Fetched | None:
        """Return what the leader has there; None if it waited in vain."""
        connection = await cluster.connection(leader.leader)
        version = connection.version_of(FETCH)
        topic_id = self._topic_id or ZERO_UUID
        if topic_id == ZERO_UUID:
            version = min(version, FETCH_IDS_FROM - 1)
        elif version < FETCH_IDS_FROM and self._is_another(
            cluster.metadata.topic(self._where.topic)
        ):
            # Asked by name, this leader would answer for the other topic (N5).
            raise self._made_anew(position)
        value_of = self._client.value_of
        largest = value_of(rows.MAX_PARTITION_FETCH_BYTES)
        wait_ms = value_of(rows.FETCH_MAX_WAIT_MS)
        fields = fetch_fields(
            [Ask(self._where, topic_id, position, leader.leader_epoch, -1)],
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max(largest, 1),
            partition_max_bytes=largest,
            isolation_level=self._isolation,
            rack=value_of(rows.CLIENT_RACK),
        )
        timeout_s = (value_of(rows.REQUEST_TIMEOUT_MS) + wait_ms) / 1000
        answer = await connection.call(FETCH, fields, version, timeout_s=timeout_s)
        return await self._taken(cluster, leader, position, answer)

    async def _taken(
        self, cluster: ClusterClient, leader: PartitionInfo, position: int, answer: Message
    ) -> _Fetched | None:
        code = error_code_of(answer.get("error_code", 0))
        if code is not ErrorCode.NONE:
            raise FetchError(self._where, code)
        ((told,),) = [topic.partitions for topic in answer.responses]
        code = error_code_of(told.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise await self._out_of_range(cluster, leader, position)
        if code is not ErrorCode.NONE:
            raise FetchError(self._where, code)
        data = told.records
        if data is None or not len(data):
            return None
        view = memoryview(data)
        next_offset, _ = scan(view, position)
        aborted = tuple(
            (each.producer_id, each.first_offset) for each in told.get("aborted_transactions") or ()
        )
        # A batch that is cut off at the very beginning is told by whoever reads it.
        return _Fetched(view, position, max(next_offset, position + 1), aborted)

    async def _out_of_range(
        self, cluster: ClusterClient, leader: PartitionInfo, position: int
    ) -> _LostError:
        """Return what is there instead."""
        low = await self._listed(cluster, leader, EARLIEST_TIME)
        high = await self._listed(cluster, leader, LATEST_TIME)
        return _LostError(
            f"{self._where}: records from {position} to {self._wanted.end} were to be read, and "
            f"the log has those from {low} to {high}.",
            go_on_at=low if low > position else None,
        )

    async def _listed(
        self,
        cluster: ClusterClient,
        leader: PartitionInfo,
        time: int,
        *,
        isolation: int | None = None,
    ) -> int:
        timeout_ms = self._client.value_of(rows.REQUEST_TIMEOUT_MS)
        asked = {self._where: (time, leader.leader_epoch)}
        level = self._isolation if isolation is None else isolation
        fields = list_offsets_fields(asked, level, timeout_ms)
        answer = await cluster.call(leader.leader, LIST_OFFSETS, fields)
        number, found = offsets_listed(answer)[self._where]
        code = error_code_of(number)
        if code is not ErrorCode.NONE:
            raise FetchError(self._where, code)
        return found.offset


def _may_retry(error: OttlaError) -> bool:
    if isinstance(error, FetchError):
        return is_retriable(error.code) or error.code in _GONE
    return is_transient(error)
