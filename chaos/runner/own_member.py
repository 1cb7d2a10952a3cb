"""A member of a group with our own client: it subscribes, reads, commits, leaves or is late.

The client joins, heartbeats and finds its coordinator by itself; what it is shown and what became
of each commit is written down here. Commits are asynchronous ones of the client, which are sent
once, and are waited for.

Not here: the client (`ottla.clients.consumer`).

M1  it commits only what it was shown, of partitions that it has not been told to let go
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place, Shown
from ottla.chaos.outcomes import commit_outcome
from ottla.chaos.payload import decode_payload
from ottla.chaos.runner.pace import Pace, nothing_for
from ottla.chaos.runner.recorder import COMMIT, COMMITTED, LEAVE, OWNS, POLL, SUBSCRIBE, Recorder
from ottla.chaos.runner.requests import place_of
from ottla.chaos.workload import Ending, Life, ProcessPlan, lives
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.consumer.errors import CommitError
from ottla.clients.consumer.listener import RebalanceListener
from ottla.clients.consumer.record import Record
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition

SESSION_MS: Final = 6_000
LATE_MS: Final = 6_500
STRATEGY: Final = "cooperative-sticky"
_POLL_S: Final = 0.2
_POLL_RECORDS: Final = 500
_ANSWER_S: Final = 8.0
_CLOSE_S: Final = 10.0
_COMMIT_AFTER: Final = 3
# The client tells its program by raising; beside that it logs, which nobody reads here.
logging.getLogger("ottla.clients").setLevel(logging.CRITICAL)


class _Hand(RebalanceListener):
    """What a member owns, and what it has not written down of that yet."""

    def __init__(self) -> None:
        self.consumer: AsyncConsumer | None = None
        # Generation, where it is known, and partitions; one for each rebalance.
        self.told: Final = list[tuple[int | None, tuple[Place, ...]]]()
        self.new: Final = set[Place]()
        self.positions: Final = dict[Place, int]()

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        assert self.consumer is not None
        owned = tuple(sorted(place_of(one) for one in self.consumer.assignment()))
        generation = self.consumer.group_metadata()[1]
        # A member that is out of its group by now does not know which generation gave it these.
        self.told.append((generation if generation >= 0 else None, owned))
        self.new.update(place_of(one) for one in partitions)

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            self.positions.pop(place_of(one), None)
            self.new.discard(place_of(one))


class OwnMember:
    """One process, from `live` until somebody says that it is over."""

    def __init__(
        self,
        plan: ProcessPlan,
        bootstrap: str,
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        self._plan: Final = plan
        self._bootstrap: Final = bootstrap
        self._recorder: Final = recorder
        self._is_over: Final = is_over
        self._hand = _Hand()
        self._committed: Final = dict[Place, int]()
        self._polls = 0

    async def live(self) -> None:
        pace = Pace(self._plan.per_s)
        for life in lives(self._plan):
            if self._is_over():
                return
            await self._one_life(life, pace)

    async def _one_life(self, life: Life, pace: Pace) -> None:
        name, group = self._plan.name, self._plan.group
        self._hand = _Hand()
        self._committed.clear()
        consumer = self._hand.consumer = self._new()
        end_s = now_s() + life.seconds
        self._recorder.note(name, SUBSCRIBE, value=group)
        try:
            if not await self._subscribed(consumer, pace):
                return
            while not self._is_over() and now_s() < end_s:
                await pace.due()
                await self._turn(consumer)
            if life.ending is Ending.HANG and not self._is_over():
                await self._be_late(consumer)
            else:
                await self._commit(consumer)
        finally:
            index = self._recorder.begin(name, LEAVE, value=group)
            kind = Kind.OK
            try:
                async with asyncio.timeout(_CLOSE_S):
                    await consumer.close()
            except (TimeoutError, OttlaError):
                kind = Kind.UNKNOWN
            self._recorder.end(index, kind)

    def _new(self) -> AsyncConsumer:
        return AsyncConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self._plan.name,
                "group.id": self._plan.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": STRATEGY,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "max.poll.interval.ms": LATE_MS,
                "fetch.max.wait.ms": 100,
                "metadata.max.age.ms": 5_000,
            }
        )

    async def _subscribed(self, consumer: AsyncConsumer, pace: Pace) -> bool:
        topics = sorted({place.topic for place in self._plan.places})
        while not self._is_over():
            await pace.due()
            try:
                await consumer.subscribe(topics, self._hand)
            except OttlaError:
                continue
            return True
        return False

    async def _turn(self, consumer: AsyncConsumer) -> None:
        await self._poll(consumer)
        await self._tell_rebalances(consumer)
        self._polls += 1
        if self._polls % _COMMIT_AFTER == 0:
            await self._commit(consumer)

    async def _poll(self, consumer: AsyncConsumer) -> None:
        index = self._recorder.begin(self._plan.name, POLL)
        try:
            records = await consumer.consume(_POLL_RECORDS, _POLL_S)
        except OttlaError as error:
            self._recorder.end(index, Kind.FAIL, error=type(error).__name__)
            return
        shown = tuple(map(shown_of, records))
        moved = tuple(sorted(self._hand.new.intersection(one.place for one in shown)))
        self._recorder.end(index, Kind.OK, shown=shown, rebalanced=moved)
        self._hand.new.difference_update(moved)
        self._hand.positions.update({one.place: one.offset + 1 for one in shown})

    async def _tell_rebalances(self, consumer: AsyncConsumer) -> None:
        """Write down what was owned in which generation, and where the group stands there."""
        told = [*self._hand.told]
        self._hand.told.clear()
        for generation, owned in told:
            self._recorder.note(
                self._plan.name,
                OWNS,
                value=self._plan.group,
                generation=generation,
                rebalanced=owned,
            )
        if told and told[-1][1]:
            await self._look(consumer, told[-1][1])

    async def _look(self, consumer: AsyncConsumer, places: Sequence[Place]) -> None:
        index = self._recorder.begin(self._plan.name, COMMITTED, value=self._plan.group)
        try:
            async with asyncio.timeout(_ANSWER_S):
                found = await consumer.committed([TopicPartition(*one) for one in places])
        except (TimeoutError, OttlaError) as error:
            self._recorder.end(index, Kind.FAIL, error=type(error).__name__)
            return
        offsets = tuple(
            (place_of(one), -1 if told is None else told.offset) for one, told in found.items()
        )
        self._recorder.end(index, Kind.OK, offsets=offsets)

    async def _commit(self, consumer: AsyncConsumer, *, everything: bool = False) -> None:
        offsets = {
            place: offset
            for place, offset in self._hand.positions.items()
            if everything or offset > self._committed.get(place, 0)
        }
        if not offsets:
            return
        index = self._recorder.begin(
            self._plan.name,
            COMMIT,
            value=self._plan.group,
            # What the commit will say, which may be newer than what partitions are held by.
            generation=consumer.member.core.member.generation if consumer.member else -1,
            offsets=tuple(sorted(offsets.items())),
        )
        answer: asyncio.Future[OttlaError | None] = asyncio.get_running_loop().create_future()

        def told(_: object, error: OttlaError | None) -> None:
            if not answer.done():
                answer.set_result(error)

        wanted = {TopicPartition(*at): one for at, one in offsets.items()}
        try:
            await consumer.commit(wanted, asynchronous=True, callback=told)
            async with asyncio.timeout(_ANSWER_S):
                error = await answer
        except TimeoutError:
            # It is on its way, or still looks for a coordinator.
            self._recorder.end(index, Kind.UNKNOWN, error="TIMED_OUT")
            return
        kind = outcome_of_commit(error)
        self._recorder.end(index, kind, error=None if error is None else _name_of(error))
        if kind is Kind.OK:
            self._committed.update(offsets)

    async def _be_late(self, consumer: AsyncConsumer) -> None:
        """Come back too late, and commit what it knows."""
        await nothing_for(1.3 * LATE_MS / 1000, self._is_over)
        await self._commit(consumer, everything=True)


def outcome_of_commit(error: OttlaError | None) -> Kind:
    """Return what a commit that the client has sent once has come to."""
    if error is None:
        return Kind.OK
    code = error.code if isinstance(error, CommitError) else None
    return Kind.UNKNOWN if code is None else commit_outcome([code])


def _name_of(error: OttlaError) -> str:
    code = error.code if isinstance(error, CommitError) else None
    return type(error).__name__ if code is None else code.name


def shown_of(record: Record) -> Shown:
    place = Place(record.topic, record.partition)
    value = record.value
    payload = bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None
    return Shown(place, record.offset, decode_payload(place, payload), record.leader_epoch)
