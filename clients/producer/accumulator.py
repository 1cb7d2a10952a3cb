"""Where records wait for company: one lane per partition, batches in their order. A core.

A bus stop: a bus leaves when it is full (`batch.size`, `batch.num.messages`), or when its first
passenger has waited long enough (`linger.ms`). If the road is jammed the bus stays, and more people
may get in, up to the size of the bus (1 MiB).

A1  records of a partition leave in the order in which they came
A2  `used_bytes` is the sum over batches that have not ended; it passes `buffer.memory` only by a
    record that is larger than all of it
A3  a batch that was ever sent takes no more records
A4  a record for a topic that is not known yet waits, in order; it gets its partition when the topic
    is known

Not here: which lanes may send now, and what answers mean (`sender.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.clients.errors import BufferFullError, DeliveryFailedError, NoTopicError
from ottla.clients.producer.batch import Batch, Headers, Outcome, Report, State
from ottla.clients.producer.partitioning import Chooser, Dice, chooser_of
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT32_MAX

BATCH_BYTES_MAX: Final = 1 << 20
# The header of a batch.
BATCH_OVERHEAD: Final = 61
# All that stands around key and value in a batch of at most 1 MiB; more if people choose the times.
RECORD_OVERHEAD: Final = 22
_OWN_TIME_OVERHEAD: Final = 8
_HEADER_OVERHEAD: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """The options that the accumulator obeys."""

    batch_size: int = 16_384
    batch_num_messages: int = 10_000
    linger_ms: float = 5
    buffer_memory: int = 32 << 20
    max_request_size: int = 1 << 20
    partitioner: object = "sticky"


class Lane:
    """One partition: what waits to be sent, and what waits for an answer."""

    __slots__ = (
        "epoch",
        "in_flight",
        "is_anchored",
        "needs_reset",
        "next_sequence",
        "partition",
        "producer_id",
        "queue",
        "retry_at_ms",
        "topic",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic: Final = topic
        self.partition: Final = partition
        self.queue: Final = deque[Batch]()
        self.in_flight: Final = list[Batch]()
        self.retry_at_ms = 0.0
        # The producer's count in this partition; -1 until it has an id.
        self.producer_id = -1
        self.epoch = -1
        self.next_sequence = 0
        # Whether the broker knows the count: a batch under this id and epoch was acknowledged.
        self.is_anchored = False
        # A number was used up by a batch that is not in the log, or perhaps is not.
        self.needs_reset = False


class _Topic:
    """A topic that is known: its lanes, and what chooses among them."""

    __slots__ = ("choose", "chooser", "lanes")

    def __init__(self, chooser: Chooser) -> None:
        self.chooser: Final = chooser
        self.choose: Final = chooser.choose
        self.lanes: Final = list[Lane]()


class Accumulator:
    """All records of one producer that have not ended."""

    def __init__(self, settings: AccumulatorSettings, dice: Dice) -> None:
        self.settings: Final = settings
        self._dice: Final = dice
        self._batch_size: Final = settings.batch_size
        self._count_max: Final = settings.batch_num_messages
        self._size_max: Final = settings.max_request_size - BATCH_OVERHEAD
        self._bytes_max: Final = min(BATCH_BYTES_MAX, settings.max_request_size)
        self._memory: Final = settings.buffer_memory
        self._topics: Final = dict[str, _Topic]()
        self._waiting: Final = dict[str, tuple[Batch, list[int | None]]]()
        self._last_number = 0
        self.used_bytes = 0
        # Lanes with something to send, in the order in which they shall be looked at.
        self.busy: Final = dict[Lane, None]()
        # Batches that have not ended.
        self.live: Final = dict[Batch, None]()
        self._ended = list[Batch]()
        # Called with the outcome of a batch that is not, or perhaps not, in the log.
        self.on_failure: Callable[[Outcome], None] | None = None
        # Set by `append` when there is news for the sender; the shell takes it away.
        self.wants_attention = False

    # --- topics ---

    def knows(self, topic: str) -> bool:
        return topic in self._topics

    def partition_count(self, topic: str) -> int:
        return len(self._topics[topic].lanes)

    @property
    def topics(self) -> Sequence[str]:
        return tuple(self._topics)

    @property
    def waiting_topics(self) -> dict[str, float]:
        """Topics that records wait for, and since when."""
        return {name: batch.created_ms for name, (batch, _) in self._waiting.items()}

    def know(self, topic: str, count: int, with_leader: Sequence[int], now_ms: float) -> None:
        """Take how many partitions a topic has; what waited for that is sorted in (A4)."""
        found = self._topics.get(topic)
        if found is None:
            chooser = chooser_of(
                topic,
                self.settings.partitioner,
                dice=self._dice,
                stay_bytes=self._batch_size,
            )
            found = self._topics[topic] = _Topic(chooser)
        while len(found.lanes) < count:
            found.lanes.append(Lane(topic, len(found.lanes)))
        found.chooser.know(len(found.lanes), with_leader)
        self._sort_in(topic, now_ms)

    def give_up(self, topic: str, sentence: str, code: ErrorCode | None = None) -> None:
        """Fail the records that wait for a topic: it does not come."""
        held = self._waiting.pop(topic, None)
        if held is not None:
            self.end(held[0], Outcome(State.FAILED, sentence=sentence, code=code))

    # --- records ---

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp_ms: int,
        headers: Headers,
        on_delivery: Callable[[Report], object] | None,
        clock: Callable[[], float],
        has_own_time: bool = False,
    ) -> tuple[Batch, int]:
        """Put one record in; return its batch and its number there.

        The clock is looked at only if a new batch begins. Raises `BufferFullError`, `NoTopicError`
        for a partition that is not there, or `DeliveryFailedError` for a record that is too large;
        then nothing has changed.
        """
        size = RECORD_OVERHEAD
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if headers or has_own_time:
            size += _OWN_TIME_OVERHEAD + _size_of(headers)
        if size > self._size_max or self.used_bytes + size > self._memory:
            self._require_room(topic, size)
        known = self._topics.get(topic)
        if known is None:
            batch = self._wait(topic, partition, clock())
        else:
            batch = self._place(known, key, partition, size, clock)
        records = batch.records
        index = len(records)
        records.append((timestamp_ms, key, value, headers))
        before = batch.size
        batch.size = after = before + size
        self.used_bytes += size
        if before < self._batch_size <= after:
            self.wants_attention = True
        if on_delivery is not None:
            batch.call_back(index, on_delivery)
        return batch, index

    def _require_room(self, topic: str, size: int) -> None:
        if size > self._size_max:
            raise DeliveryFailedError(
                f"{topic}: the record takes up to {size + BATCH_OVERHEAD} bytes, and max.request."
                f"size is {self.settings.max_request_size}.",
                ErrorCode.MESSAGE_TOO_LARGE,
            )
        if self.used_bytes:
            raise BufferFullError(
                f"{self.used_bytes} bytes of records wait to be acknowledged, and buffer.memory is "
                f"{self._memory}."
            )

    def _place(
        self,
        known: _Topic,
        key: bytes | None,
        partition: int | None,
        size: int,
        clock: Callable[[], float],
    ) -> Batch:
        """Return the batch that takes a record of this size, a new one if need be."""
        if partition is None:
            partition = known.choose(key, size)
        elif not 0 <= partition < len(known.lanes):
            raise _no_partition(known.lanes[0].topic, partition, len(known.lanes))
        lane = known.lanes[partition]
        queue = lane.queue
        if queue:
            last = queue[-1]
            if (
                last.size + size <= self._bytes_max
                and len(last.records) < self._count_max
                and last.attempts == 0
            ):
                return last
        batch = self._new(lane.topic, partition, clock())
        queue.append(batch)
        self.busy[lane] = None
        return batch

    def _new(self, topic: str, partition: int, now_ms: float) -> Batch:
        self._last_number += 1
        batch = Batch(topic, partition, now_ms, self._last_number)
        batch.size = BATCH_OVERHEAD
        self.used_bytes += BATCH_OVERHEAD
        self.live[batch] = None
        # Its time begins to run; and what is before it is full.
        self.wants_attention = True
        return batch

    def _wait(self, topic: str, partition: int | None, now_ms: float) -> Batch:
        if topic not in self._waiting:
            self._waiting[topic] = (self._new(topic, -1, now_ms), [])
        batch, partitions = self._waiting[topic]
        partitions.append(partition)
        return batch

    def _sort_in(self, topic: str, now_ms: float) -> None:
        held = self._waiting.pop(topic, None)
        if held is None:
            return
        batch, partitions = held
        known = self._topics[topic]
        places = list[tuple[Batch, int]]()
        for (stamp, key, value, headers), partition in zip(batch.records, partitions, strict=True):
            size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
            size += _OWN_TIME_OVERHEAD + _size_of(headers)
            try:
                target = self._place(known, key, partition, size, lambda: now_ms)
            except NoTopicError as error:
                target = self._new(topic, -1, now_ms)
                target.records.append((stamp, key, value, headers))
                places.append((target, 0))
                self.end(target, Outcome(State.FAILED, sentence=str(error)))
                continue
            places.append((target, len(target.records)))
            target.records.append((stamp, key, value, headers))
            target.size += size
            self.used_bytes += size
        self._forget(batch)
        batch.move(places)
        self.wants_attention = True

    # --- ends ---

    def end(self, batch: Batch, outcome: Outcome) -> None:
        """End a batch, and take it off the books."""
        self._forget(batch)
        batch.end(outcome)
        self._ended.append(batch)
        if outcome.state is not State.OK and self.on_failure is not None:
            self.on_failure(outcome)

    def take_ended(self) -> list[Batch]:
        """Return the batches that have an outcome and were not returned before."""
        ended, self._ended = self._ended, []
        return ended

    def split(self, lane: Lane, batch: Batch, *, keep_numbers: bool = False) -> None:
        """Put two halves of a batch where it stood (A1), on request under its numbers."""
        others = [one for one in self.live if one is not batch]
        half = len(batch.records) // 2
        places = list[tuple[Batch, int]]()
        parts = list[Batch]()
        for records in (batch.records[:half], batch.records[half:]):
            part = self._new(batch.topic, batch.partition, batch.created_ms)
            # It stands where the whole stood.
            part.number = batch.number
            for stamp, key, value, headers in records:
                places.append((part, len(part.records)))
                part.records.append((stamp, key, value, headers))
                size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
                size += _OWN_TIME_OVERHEAD + _size_of(headers)
                part.size += size
                self.used_bytes += size
            # It takes no more: it may be too large as it is.
            part.attempts = batch.attempts
            if keep_numbers and batch.sequence is not None:
                before = half if parts else 0
                part.sequence = (batch.sequence + before) & INT32_MAX
            parts.append(part)
        for part in reversed(parts):
            self.put_back(lane, part)
        self._forget(batch)
        # The oldest come first, so that whoever looks for what is too old may stop early.
        self.live.clear()
        self.live.update(dict.fromkeys([*parts, *others]))
        batch.move(places)

    def put_back(self, lane: Lane, batch: Batch) -> None:
        """Put a batch that was sent where its number says, not always to the front (A1)."""
        at = 0
        while at < len(lane.queue) and lane.queue[at].number < batch.number:
            at += 1
        lane.queue.insert(at, batch)
        self.busy[lane] = None

    def _forget(self, batch: Batch) -> None:
        if batch in self.live:
            del self.live[batch]
            self.used_bytes -= batch.size


def _size_of(headers: Headers) -> int:
    return sum(
        len(name.encode()) + len(content or b"") + _HEADER_OVERHEAD for name, content in headers
    )


def _no_partition(topic: str, partition: int, count: int) -> NoTopicError:
    return NoTopicError(
        f"{topic}: there is no partition {partition}; it has partitions 0 to {count - 1}."
    )
