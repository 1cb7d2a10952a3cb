"""A produce that waits: for its batches to be held here, or to be committed, or for its time.

Not here: appending, and what is waited for (`produce.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.node.kafka.slot import Slot
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.proto.kafka.framing import RequestHead
from ottla.proto.kafka.produce import PartitionAnswer
from ottla.proto.kafka.uuids import UUID
from ottla.replication.replica import Replica

if TYPE_CHECKING:
    from ottla.node.kafka.produce import Produce

# Name below version 13, id from then on, and the answers of its partitions.
TopicAnswer = tuple[str | None, UUID | None, list[PartitionAnswer]]

NO_OFFSET: Final = -1


class Waiting:
    """A produce that waits for its partitions."""

    __slots__ = ("_answers", "_call_off", "_head", "_is_whole", "_missing", "_slot", "produce")

    def __init__(
        self,
        produce: Produce,
        slot: Slot,
        head: RequestHead,
        answers: list[TopicAnswer],
        timeout_ms: int | None,
    ) -> None:
        self.produce: Final = produce
        self._slot: Final = slot
        self._head: Final = head
        self._answers: Final = answers
        # Partitions that have not answered, by their place in the answers.
        self._missing: dict[tuple[int, int], PartitionWaiter] = {}
        # Every partition was looked at: whoever is missing now is all there is to wait for.
        self._is_whole = False
        produce.metrics.waiting_produces += 1
        slot.waits_us = produce.now_us()
        self._call_off: Callable[[], object] | None = None
        if timeout_ms is not None:
            # Also a time-out of nothing lets what is already done be told.
            self._call_off = produce.deadlines.add(self, timeout_ms)

    def expect(
        self, place: tuple[int, int], replica: Replica, end_offset: Offset
    ) -> PartitionWaiter:
        waiter = PartitionWaiter(self, place, replica, end_offset)
        self._missing[place] = waiter
        return waiter

    def settle(self, place: tuple[int, int], error: RequestError | None) -> None:
        if self._missing.pop(place, None) is None:
            return
        if error is not None:
            topic, index = place
            answers = self._answers[topic][2]
            answers[index] = refused(answers[index].index, error)
        if self._is_whole and not self._missing:
            self._finish()

    def seal(self) -> None:
        """Nobody else will be expected. Some may have come already, while the others were asked."""
        self._is_whole = True
        if not self._missing:
            self._finish()

    def _finish(self) -> None:
        self.produce.metrics.waiting_produces -= 1
        call_off, self._call_off = self._call_off, None
        if call_off is not None:
            # Forgotten, too: it holds this object, and a circle of both is left to the collector.
            call_off()
        self.produce.answer(self._slot, self._head, self._answers)

    def time_is_up(self) -> None:
        """Say so for what is held here and not committed. Our own disk is always waited for."""
        self._call_off = None
        for waiter in tuple(self._missing.values()):
            waiter.give_up()


class PartitionWaiter:
    """One partition of a waiting produce. Told once; the replica may keep it for longer."""

    __slots__ = ("_end_offset", "_place", "_replica", "_waiting")

    def __init__(
        self, waiting: Waiting, place: tuple[int, int], replica: Replica, end_offset: Offset
    ) -> None:
        self._waiting: Waiting | None = waiting
        self._place: Final = place
        self._replica: Final = replica
        self._end_offset: Final = end_offset

    def reached(self) -> None:
        if self._waiting is None:
            return
        try:
            self._waiting.produce.require_standing(self._replica)
        except RequestError as refusal:
            self.settle(refusal)
        else:
            self.settle(None)

    def failed(self, error: StorageError | RequestError) -> None:
        self.settle(as_request_error(error))

    def settle(self, error: RequestError | None) -> None:
        # What is never committed is waited for until another one leads: the client is gone then.
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.settle(self._place, error)

    def refusal_of_all(self) -> ErrorCode | None:
        return self._replica.refusal_of_all()

    def give_up(self) -> None:
        late = _LateWaiter(self)
        if self._replica.when_held(self._end_offset, late):
            late.reached()


class _LateWaiter:
    """A partition whose time is up: told as soon as this replica holds it (U1).

    If it is committed by then, that is told instead.
    """

    __slots__ = ("_waiter",)

    def __init__(self, waiter: PartitionWaiter) -> None:
        self._waiter: Final = waiter

    def reached(self) -> None:
        if self._waiter.refusal_of_all() is ErrorCode.NOT_ENOUGH_REPLICAS:
            code, why = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, "too few are in sync by now"
        else:
            code, why = ErrorCode.REQUEST_TIMED_OUT, "that it is committed was not seen in time"
        self._waiter.settle(RequestError(code, f"The batch is written here; {why}."))

    def failed(self, error: StorageError | RequestError) -> None:
        self._waiter.failed(error)


def refused(index: int, error: RequestError, start_offset: int = NO_OFFSET) -> PartitionAnswer:
    return PartitionAnswer(
        index, int(error.code), NO_OFFSET, NO_TIMESTAMP, start_offset, message=error.sentence
    )


def as_request_error(error: StorageError | RequestError) -> RequestError:
    if isinstance(error, RequestError):
        return error
    return RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
