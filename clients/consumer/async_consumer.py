"""The consumer for asyncio: subscribe or assign, then poll, consume or iterate.

    async with AsyncConsumer({"bootstrap.servers": "localhost:9092", "group.id": "g"}) as consumer:
        await consumer.subscribe("orders")
        async for record in consumer:
            …

U1  a record that was given out counts as processed when the program comes for more, commits or
    closes, unless it leaves `with` by an exception; only what is processed is committed by itself
U2  an error that the program has to know of is raised by the next poll, once
U3  a record that cannot be deserialized is logged, counted, told to `on_error` and passed over;
    with `strict=True` it is raised, once what comes before it is given out, and the next poll goes
    on behind it

Not for two tasks at once: one polls, others may commit, seek and pause.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Self

from ottla.clients import options as rows
from ottla.clients.clock import now_ms
from ottla.clients.cluster import ClusterClient
from ottla.clients.consumer.absent import Absent
from ottla.clients.consumer.assignors import assignors_of
from ottla.clients.consumer.committing import Committer
from ottla.clients.consumer.coordinator import Coordinator
from ottla.clients.consumer.errors import ConsumerError
from ottla.clients.consumer.fetching import Fetcher
from ottla.clients.consumer.group import GroupMember, Hooks
from ottla.clients.consumer.handout import Handout
from ottla.clients.consumer.listener import Notify, RebalanceListener, call
from ottla.clients.consumer.locating import Locator, require_bookmark
from ottla.clients.consumer.membership import Membership
from ottla.clients.consumer.positioning import Positioner
from ottla.clients.consumer.positions import Bookmark, Bookmarks, Lock
from ottla.clients.consumer.reading import Reading
from ottla.clients.consumer.record import (
    EARLIEST_TIME,
    LATEST_TIME,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
)
from ottla.clients.consumer.subscribing import Wanted, wanted_of
from ottla.clients.metadata import PartitionInfo
from ottla.clients.options import Role, read_options
from ottla.proto.errors import ConfigError, ErrorCode, OttlaError
from ottla.proto.ids import TopicPartition

LOG: Final = logging.getLogger("ottla.clients.consumer")
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], OttlaError | None], object]


class AsyncConsumer(Handout):
    """Reads topics, alone or as a member of a group; closed once, also as a context manager."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        on_error: Callable[[OttlaError], object] | None = None,
        strict: bool = False,
        lock: Lock | None = None,
        notify: Notify | None = None,
    ) -> None:
        self.options: Final = read_options(Role.CONSUMER, config)
        value_of = self.options.value_of
        self._cluster: Final = ClusterClient(self.options)
        metrics = self._cluster.metrics
        super().__init__(
            Bookmarks(check_crcs=value_of(rows.CHECK_CRCS), lock=lock),
            Reading(self.options, metrics, on_error=on_error, strict=strict),
            metrics,
        )
        self._notify: Final = notify or call
        self._timeout_s: Final = value_of(rows.DEFAULT_API_TIMEOUT_MS) / 1000
        self.max_poll_records: Final = value_of(rows.MAX_POLL_RECORDS)
        self._group_id: Final = value_of(rows.GROUP_ID)
        self._fetcher: Final = Fetcher(
            self._cluster,
            self.bookmarks,
            arrived=self._news,
            lost=self._lost,
            failed=self._failed,
        )
        self._locator: Final = Locator(
            self._cluster, self.bookmarks, found=self._located, failed=self._failed
        )
        self._coordinator: Final = (
            Coordinator(self._cluster, self._group_id) if self._group_id else None
        )
        self._committer: Final = Committer(
            self.options, self.bookmarks, self._coordinator, self._metrics
        )
        self._positioner: Final = Positioner(
            self._cluster,
            self.bookmarks,
            self._committer,
            self._locator,
            failed=self._failed,
            found=self._located,
        )
        self._wanted = Wanted()
        self._absent: Final = Absent()
        self._listener: RebalanceListener | None = None
        self._arrival: Final = asyncio.Event()
        self._cluster.listeners.append(self._metadata_changed)

    # --- life ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the cluster; every other call does it too. Raises `BootstrapError`."""
        self._require_open()
        await self._cluster.start(self._timeout_s)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(is_done=kind is None)

    async def close(self, *, is_done: bool = True) -> None:
        """Commit what is processed if that is done by itself, leave the group, end everything.

        Who has not done with the records given out last says so, and they come again. Leaving
        `async with` by an exception says it.
        """
        if self._is_closed:
            return
        if is_done:
            with self.bookmarks.lock:
                self.bookmarks.came_back()
        await self._positioner.close()
        await self._leave("the consumer was closed")
        self._is_closed = True
        await self._committer.close()
        await self._fetcher.close()
        await self._locator.close()
        if self._coordinator is not None:
            await self._coordinator.close()
        await self._cluster.close()
        self._arrival.set()

    # --- what to read -------------------------------------------------------------------------

    async def subscribe(
        self, topics: str | Iterable[str], listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics as a member of the group, or all that match "^pattern".

        Replaces the subscription before it; an empty list is `unsubscribe`.
        """
        self._require_open()
        if self._coordinator is None:
            raise ConfigError("group.id is needed to subscribe; without a group, use assign.")
        wanted = wanted_of(topics)
        if not wanted:
            await self.unsubscribe()
            return
        if self.member is None and self.bookmarks.all:
            await self.unsubscribe()
        await self._cluster.start(self._timeout_s)
        self._listener = listener
        self._cluster.want_all(wanted=wanted.pattern is not None)
        self._cluster.want(*wanted.names)
        self._wanted = wanted
        if wanted.pattern is not None:
            await self._cluster.refresh()
        if self.member is None:
            self.member = self._new_member()
            self.member.start()
            self._committer.start(self.member)
        else:
            self.member.subscription_changed()

    async def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        self._require_open()
        with self.bookmarks.lock:
            self.bookmarks.came_back()
        await self._leave("the consumer has unsubscribed")

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without a share of anybody's. With a group.id, offsets are its."""
        self._require_open()
        wanted = list(dict.fromkeys(partitions))
        if self.member is not None:
            await self._leave("the consumer was assigned partitions by hand")
        await self._cluster.start(self._timeout_s)
        self._cluster.want(*{one.topic for one in wanted})
        with self.bookmarks.lock:
            self.bookmarks.came_back()
        await self._committer.commit_processed(self._timeout_s)
        with self.bookmarks.lock:
            self.bookmarks.remove([one for one in self.bookmarks.all if one not in wanted])
            new = self.bookmarks.add(wanted)
        self._committer.start(None)
        self._positioner.begin(new)

    def assignment(self) -> set[TopicPartition]:
        with self.bookmarks.lock:
            return set(self.bookmarks.all)

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to; those that match, for a pattern."""
        return set(self._subscribed())

    # --- records ------------------------------------------------------------------------------

    async def poll(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - Kafka's name
    ) -> Record | None:
        """Return the next record, or None if none came in time. None waits for one."""
        record = self.next_here(self.pump)
        if record is not None:
            return record
        records = await self.consume(1, timeout)
        return records[0] if records else None

    async def consume(
        self,
        n: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - Kafka's name
    ) -> list[Record]:
        """Return up to n records as soon as there is one, or none if none came in time.

        Without n, at most `max.poll.records`.
        """
        count = self.max_poll_records if n is None else n
        deadline_ms = None if timeout is None else now_ms() + 1000 * timeout
        self._require_wish()
        member = self.member
        if member is not None:
            member.inside += 1
        try:
            while True:
                self._require_open()
                self._arrival.clear()
                records = self.take(count)
                if records:
                    return records
                left_s = None if deadline_ms is None else (deadline_ms - now_ms()) / 1000
                if left_s is not None and left_s <= 0:
                    return []
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._arrival.wait()
        finally:
            if member is not None:
                member.inside -= 1
                member.last_poll_ms = now_ms()

    def take(self, count: int) -> list[Record]:
        """Return what is here, without waiting; on the event loop only."""
        member = self.member
        with self.bookmarks.lock:
            self.bookmarks.came_back()
            if member is not None:
                member.entered()
            self.errors.raise_next()
            if member is not None and member.wants_quiet:
                return []
            records = self.read(count)
        self.pump()
        return records

    def pump(self) -> None:
        self._fetcher.pump()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        record = await self.poll()
        if record is None:
            raise StopAsyncIteration
        return record

    # --- positions ----------------------------------------------------------------------------

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset."""
        if offset < 0:
            raise ConsumerError(f"{partition}: an offset is 0 or more, not {offset}.")
        with self.bookmarks.lock:
            self.bookmarks.of(partition).move(offset)
        self.pump()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on at the first record kept, of these or of all partitions."""
        await self.seek_to_time(EARLIEST_TIME, partitions)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with what is written from now on, of these or of all partitions."""
        await self.seek_to_time(LATEST_TIME, partitions)

    async def seek_to_time(
        self, timestamp_ms: int, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Go on at the first record of this time or later; at the end if there is none.

        Returns when the offsets are known, so that what is written later is not missed.
        """
        wanted = list(self.bookmarks.all if partitions is None else partitions)
        with self.bookmarks.lock:
            for one in wanted:
                self.bookmarks.of(one).lose(timestamp_ms)
        self._locator.pump()
        for one in wanted:
            await self.position(one)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be given out, waited for if need be."""
        bookmark = self.bookmarks.of(partition)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s):
                while bookmark.position is None:
                    if bookmark.lookup_time is None:
                        self.errors.raise_next()
                    self._arrival.clear()
                    await self._arrival.wait()
                    self._require_open()
        return require_bookmark(bookmark)

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing out of these until `resume`; membership is not touched."""
        with self.bookmarks.lock:
            for one in partitions:
                self.bookmarks.of(one).paused = True

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self.bookmarks.lock:
            for one in partitions:
                self.bookmarks.of(one).paused = False
        self._news()
        self.pump()

    def paused(self) -> set[TopicPartition]:
        with self.bookmarks.lock:
            return {one.partition for one in self.bookmarks if one.paused}

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each time or later; None where there is none so late."""
        await self.start()
        found = await self._locator.offsets_at(times, self._timeout_s)
        return {one: offset if offset.offset >= 0 else None for one, offset in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        return await self._offsets_at(partitions, EARLIEST_TIME)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks: offsets of the next records to be written."""
        return await self._offsets_at(partitions, LATEST_TIME)

    async def _offsets_at(
        self, partitions: Iterable[TopicPartition], time: int
    ) -> dict[TopicPartition, int]:
        await self.start()
        found = await self._locator.offsets_at(dict.fromkeys(partitions, time), self._timeout_s)
        return {one: offset.offset for one, offset in found.items()}

    # --- commits ------------------------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets | None = None,
        asynchronous: bool = False,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit these offsets, or the positions of all partitions.

        Synchronous: tries again what can be tried again, and raises `CommitError`. Asynchronous:
        tries once, and tells the callback.
        """
        self._require_open()
        await self._committer.commit(offsets, self._timeout_s, asynchronous, callback)

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where there is nothing."""
        await self.start()
        return await self._committer.committed(partitions, self._timeout_s)

    # --- looking ------------------------------------------------------------------------------

    async def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic, or raise `NoTopicError`."""
        self._require_open()
        return (await self._cluster.topic(topic, self._timeout_s)).partitions

    def metrics(self) -> dict[str, float]:
        """Return what this consumer counted so far, and how far it lags behind."""
        with self.bookmarks.lock:
            self.count_polled()
            lags = {one.partition: one.lag for one in self.bookmarks}
            bytes_waiting = self.bookmarks.bytes_waiting
        known = [lag for lag in lags.values() if lag is not None]
        self._metrics.set("lag.max", max(known, default=0))
        self._metrics.set("buffered.bytes", bytes_waiting)
        self._metrics.set("partitions", len(lags))
        told = self._metrics.snapshot()
        return told | {f"lag.{one}": lag for one, lag in lags.items() if lag is not None}

    def group_metadata(self) -> GroupMetadata:
        """Return as whom this consumer holds its partitions, for `Producer.send_offsets`."""
        return GroupMetadata(*(self.member.core.holder() if self.member else (self._group_id,)))

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where the program stands in each partition: what it has not been given yet."""
        with self.bookmarks.lock:
            return self.bookmarks.positions()

    # --- inside -------------------------------------------------------------------------------

    def _new_member(self) -> GroupMember:
        value_of = self.options.value_of
        strategies = value_of(rows.ASSIGNMENT_STRATEGY)
        core = Membership(
            group_id=self._group_id,
            instance_id=value_of(rows.GROUP_INSTANCE_ID) or None,
            assignors=assignors_of(strategies),
            session_timeout_ms=value_of(rows.SESSION_TIMEOUT_MS),
            rebalance_timeout_ms=value_of(rows.MAX_POLL_INTERVAL_MS),
            rack=value_of(rows.CLIENT_RACK) or None,
        )
        hooks = Hooks(
            topics=self._subscribed,
            commit=lambda: self._committer.commit_before_revocation(),
            assigned=lambda partitions: self._tell("assigned", partitions),
            revoked=lambda partitions: self._tell("revoked", partitions),
            lost=lambda partitions: self._tell("lost", partitions),
            begin=self._positioner.begin,
            changed=self._news,
            failed=self._failed,
        )
        assert self._coordinator is not None
        return GroupMember(self._cluster, self._coordinator, core, self.bookmarks, hooks)

    async def _leave(self, reason: str) -> None:
        member, self.member = self.member, None
        if member is not None:
            await member.stop(reason)
        elif self.bookmarks.all:
            await self._committer.commit_processed(self._timeout_s)
        with self.bookmarks.lock:
            self.bookmarks.remove(list(self.bookmarks.all))
        self._committer.stop()
        self._wanted = Wanted()

    def _subscribed(self) -> frozenset[str]:
        internal_too = not self.options.value_of(rows.EXCLUDE_INTERNAL_TOPICS)
        return self._wanted.topics(self._cluster.metadata.topics, internal_too=internal_too)

    async def _tell(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        if self._listener is None:
            return
        method = getattr(self._listener, f"on_partitions_{what}")
        try:
            await self._notify(method, partitions)
        except Exception:
            # It is the program's code: a mistake in it must not take the member down.
            LOG.exception("the rebalance listener failed in on_partitions_%s", what)

    def _lost(self, bookmark: Bookmark, code: ErrorCode, parted_at: int | None) -> None:
        self._positioner.lost(bookmark, code, parted_at)

    def _located(self) -> None:
        self._locator.pump()
        self._news()
        self.pump()

    def _metadata_changed(self) -> None:
        for one in self._absent.news(self._cluster.metadata, self._wanted.names, self.bookmarks):
            LOG.warning("%s", one)
        if self.member is not None:
            self.member.metadata_changed()
        self._fetcher.metadata_changed()

    def _failed(self, error: OttlaError) -> None:
        LOG.info("the next poll is to raise: %s", error)
        self.errors.append(error)
        self._news()

    def _news(self) -> None:
        self._arrival.set()
