"""The consumer for plain Python: the same, on a loop in a thread of its own.

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "g"}) as consumer:
        consumer.subscribe("orders")
        for record in consumer:
            …

Heartbeats, fetches and commits by itself go on in that thread while the program works.

W1  records that are here are given out without a word to the other thread; the lock of the
    bookmarks is what both hold
W2  listeners and callbacks of commits are called on the program's thread, inside poll, consume,
    commit, unsubscribe or close. They may use the consumer
W3  one thread of the program uses a consumer
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import queue
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

from ottla.clients.consumer.async_consumer import AsyncConsumer, CommitCallback, Offsets
from ottla.clients.consumer.listener import RebalanceListener
from ottla.clients.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Record,
)
from ottla.clients.errors import ClientClosedError
from ottla.clients.loop_thread import LoopThread
from ottla.clients.metadata import PartitionInfo
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition

R = TypeVar("R")


class Consumer:
    """Reads topics, alone or as a member of a group; closed once, also as a context manager."""

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        on_error: Callable[[OttlaError], object] | None = None,
        strict: bool = False,
    ) -> None:
        self._lock: Final = threading.RLock()
        # What the other thread wants to be done on this one (W2).
        self._chores: Final = queue.SimpleQueue[Callable[[], object]]()
        make = functools.partial(
            AsyncConsumer,
            config,
            on_error=on_error,
            strict=strict,
            lock=self._lock,
            notify=self._notify,
        )
        # An option that is wrong is told before there is a thread.
        self._async: Final = make()
        self._next_here: Final = self._async.next_here
        self._thread: Final = LoopThread("ottla-consumer")
        self._wants_more: Final = functools.partial(self._thread.call_soon, self._async.pump)
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(is_done=kind is None)

    def close(self, *, is_done: bool = True) -> None:
        """Commit what is processed if that is done by itself, leave the group, end everything.

        Who has not done with the records given out last says so, and they come again. Leaving
        `with` by an exception says it.
        """
        if self._is_closed:
            return
        try:
            # A listener may still commit while partitions go.
            self._run(self._async.close(is_done=is_done))
            self._do_chores()
        finally:
            self._is_closed = True
            self._thread.stop()

    # --- what to read -------------------------------------------------------------------------

    def subscribe(
        self, topics: str | Iterable[str], listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics as a member of the group, or all that match "^pattern".

        Replaces the subscription before it; an empty list is `unsubscribe`.
        """
        names = topics if isinstance(topics, str) else list(topics)
        self._run_open(self._async.subscribe(names, listener))

    def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        self._run_open(self._async.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without a share of anybody's. With a group.id, offsets are its."""
        self._run_open(self._async.assign(list(partitions)))

    def assignment(self) -> set[TopicPartition]:
        return self._async.assignment()

    def subscription(self) -> set[str]:
        """Return the topics that are subscribed to; those that match, for a pattern."""
        return self._async.subscription()

    # --- records ------------------------------------------------------------------------------

    def poll(self, timeout: float | None = None) -> Record | None:
        """Return the next record, or None if none came in time. None waits for one."""
        if self._chores.empty():
            record = self._next_here(self._wants_more)
            if record is not None:
                return record
        records = self._run_open(self._async.consume(1, timeout))
        return records[0] if records else None

    def consume(self, n: int | None = None, timeout: float | None = None) -> list[Record]:
        """Return up to n records as soon as there is one, or none if none came in time.

        Without n, at most `max.poll.records`.
        """
        if self._chores.empty():
            count = self._async.max_poll_records if n is None else n
            records = self._async.take_here(count, self._wants_more)
            if records:
                return records
        return self._run_open(self._async.consume(n, timeout))

    def __iter__(self) -> Iterator[Record]:
        while not self._is_closed:
            record = self.poll()
            if record is None:
                return
            yield record

    # --- positions ----------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at this offset."""
        self._run_open(self._async.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on at the first record kept, of these or of all partitions."""
        self._run_open(self._async.seek_to_beginning(_list(partitions)))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with what is written from now on, of these or of all partitions."""
        self._run_open(self._async.seek_to_end(_list(partitions)))

    def seek_to_time(
        self, timestamp_ms: int, partitions: Iterable[TopicPartition] | None = None
    ) -> None:
        """Go on at the first record of this time or later; at the end if there is none."""
        self._run_open(self._async.seek_to_time(timestamp_ms, _list(partitions)))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be given out, waited for if need be."""
        return self._run_open(self._async.position(partition))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing out of these until `resume`; membership is not touched."""
        self._run_open(self._async.pause(list(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._run_open(self._async.resume(list(partitions)))

    def paused(self) -> set[TopicPartition]:
        return self._async.paused()

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each time or later; None where there is none so late."""
        return self._run_open(self._async.offsets_for_times(times))

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._run_open(self._async.beginning_offsets(list(partitions)))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the high watermarks: offsets of the next records to be written."""
        return self._run_open(self._async.end_offsets(list(partitions)))

    # --- commits ------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Offsets | None = None,
        asynchronous: bool = False,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit these offsets, or the positions of all partitions.

        Synchronous: tries again what can be tried again, and raises `CommitError`. Asynchronous:
        tries once, and tells the callback in a later call (W2).
        """
        told = None if callback is None else functools.partial(self._later, callback)
        self._run_open(self._async.commit(offsets, asynchronous, told))
        self._do_chores()

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed; None where there is nothing."""
        return self._run_open(self._async.committed(list(partitions)))

    # --- looking ------------------------------------------------------------------------------

    def partitions_for(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return the partitions of a topic, or raise `NoTopicError`."""
        return self._run_open(self._async.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """Return what this consumer counted so far, and how far it lags behind."""
        return self._async.metrics()

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where the program stands in each partition: what it has not been given yet."""
        return self._async.positions()

    def group_metadata(self) -> GroupMetadata:
        """Return as whom this consumer holds its partitions, for `Producer.send_offsets`."""
        return self._async.group_metadata()

    # --- between the threads ------------------------------------------------------------------

    def _run_open(self, work: Coroutine[Any, Any, R]) -> R:
        if self._is_closed:
            work.close()
            raise ClientClosedError("the consumer is closed.")
        return self._run(work)

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        """Return what the coroutine returns, doing chores of the other thread meanwhile (W2)."""
        future = asyncio.run_coroutine_threadsafe(work, self._thread.loop)
        future.add_done_callback(self._wake)
        try:
            while not future.done():
                self._chores.get()()
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _wake(self, _: concurrent.futures.Future[Any]) -> None:
        self._chores.put(_nothing)

    def _do_chores(self) -> None:
        while not self._chores.empty():
            self._chores.get()()

    def _later(self, callback: CommitCallback, *outcome: Any) -> None:
        self._chores.put(functools.partial(callback, *outcome))

    async def _notify(
        self,
        method: Callable[[Sequence[TopicPartition]], object],
        partitions: Sequence[TopicPartition],
    ) -> None:
        """Have a listener called on the program's thread, and wait until it has returned."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def tell(error: BaseException | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        def chore() -> None:
            error: BaseException | None = None
            try:
                method(partitions)
            except Exception as failure:  # noqa: BLE001 - it is raised where the member waits
                error = failure
            loop.call_soon_threadsafe(tell, error)

        self._chores.put(chore)
        await done


def _nothing() -> None:
    return None


def _list(partitions: Iterable[TopicPartition] | None) -> list[TopicPartition] | None:
    return None if partitions is None else list(partitions)
