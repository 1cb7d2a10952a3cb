"""librdkafka as a member of a group, in a thread of its own.

The library tries a commit again by itself, so what it reports in the end is believed only if it is
success: an attempt before a refusal may have been taken.

Not here: members that send once (`raw_member.py`, `own_member.py`).

M1  it commits only what it was shown, of partitions that it has not been told to let go
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place
from ottla.chaos.runner.foreign import QUICK, ForeignClient, consumed
from ottla.chaos.runner.own_member import LATE_MS, SESSION_MS, STRATEGY
from ottla.chaos.runner.recorder import COMMIT, COMMITTED, LEAVE, OWNS, POLL, SUBSCRIBE
from ottla.chaos.workload import Ending, Life, lives

_POLL_S: Final = 0.2
_ANSWER_S: Final = 8.0
_COMMIT_AFTER: Final = 3


class ForeignMember(ForeignClient):
    """One process of the history; every life is a new instance of the library."""

    # Partitions that are owned, that are new, and how far each was read.
    _owned: set[Place]
    _new: set[Place]
    _positions: dict[Place, int]
    _committed: dict[Place, int]
    _is_told: bool

    def _live(self) -> None:
        for life in lives(self.plan):
            if self._over.is_set():
                return
            self._one_life(life)

    def _one_life(self, life: Life) -> None:
        self._owned, self._new, self._positions, self._committed = set(), set(), {}, {}
        self._is_told = True
        name, group = self.plan.name, self.plan.group
        consumer = self._consumer()
        self._recorder.note(name, SUBSCRIBE, value=group)
        try:
            consumer.subscribe(
                sorted({place.topic for place in self.plan.places}),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            self._read(consumer, now_s() + life.seconds)
            if life.ending is Ending.HANG:
                # Without a poll for so long the library leaves the group by itself. What it would
                # commit after that counts as somebody's from outside, and a group that is empty by
                # then takes it.
                self._over.wait(1.3 * LATE_MS / 1000)
            else:
                self._commit(consumer)
        finally:
            index = self._recorder.begin(name, LEAVE, value=group)
            consumer.close()
            self._recorder.end(index, Kind.OK)

    def _consumer(self) -> Any:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self.plan.name,
                "group.id": self.plan.group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": STRATEGY,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "max.poll.interval.ms": LATE_MS,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                **QUICK,
            }
        )

    # -- rebalances: told by the library, in the middle of a poll ---------------------------------

    def _on_assign(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        places = {Place(one.topic, one.partition) for one in partitions}
        self._owned |= places
        self._new |= places
        self._is_told = False

    def _on_revoke(self, consumer: Any, partitions: Sequence[TopicPartition]) -> None:
        for one in partitions:
            place = Place(one.topic, one.partition)
            self._owned.discard(place)
            self._new.discard(place)
            self._positions.pop(place, None)
            self._committed.pop(place, None)

    # -- working ---------------------------------------------------------------------------------

    def _read(self, consumer: Any, end_s: float) -> None:
        polls = 0
        while not self._over.is_set() and now_s() < end_s:
            self._poll(consumer)
            if not self._is_told:
                self._is_told = True
                self._tell(consumer)
            polls += 1
            if polls % _COMMIT_AFTER == 0:
                self._commit(consumer)
            self._over.wait(1.0 / self.plan.per_s)

    def _poll(self, consumer: Any) -> None:
        index = self._recorder.begin(self.plan.name, POLL)
        shown, errors = consumed(consumer, _POLL_S)
        kind = Kind.FAIL if errors and not shown else Kind.OK
        moved = tuple(sorted(self._new.intersection(one.place for one in shown)))
        told = "+".join(sorted(errors)) or None
        self._recorder.end(index, kind, shown=tuple(shown), error=told, rebalanced=moved)
        self._new.difference_update(moved)
        # What it has let go in the same poll is not its any more.
        self._positions.update(
            {one.place: one.offset + 1 for one in shown if one.place in self._owned}
        )

    def _tell(self, consumer: Any) -> None:
        """Write down what is owned, and where the group stands there."""
        owned = tuple(sorted(self._owned))
        self._recorder.note(self.plan.name, OWNS, value=self.plan.group, rebalanced=owned)
        if not owned:
            return
        index = self._recorder.begin(self.plan.name, COMMITTED, value=self.plan.group)
        try:
            found = consumer.committed([TopicPartition(*one) for one in owned], _ANSWER_S)
        except KafkaException as error:
            self._recorder.end(index, Kind.FAIL, error=error.args[0].name())
            return
        if any(one.error is not None for one in found):
            self._recorder.end(index, Kind.FAIL, error="PARTLY")
            return
        # Below 0 the library says that there is none.
        offsets = tuple((Place(one.topic, one.partition), max(-1, one.offset)) for one in found)
        self._recorder.end(index, Kind.OK, offsets=offsets)

    def _commit(self, consumer: Any) -> None:
        offsets = {
            place: offset
            for place, offset in self._positions.items()
            if offset > self._committed.get(place, 0)
        }
        if not offsets:
            return
        index = self._recorder.begin(
            self.plan.name,
            COMMIT,
            value=self.plan.group,
            offsets=tuple(sorted(offsets.items())),
            # The library does not say how often it sent it.
            attempts=0,
        )
        wanted = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            done = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._recorder.end(index, Kind.UNKNOWN, error=error.args[0].name())
            return
        bad = sorted({one.error.name() for one in done if one.error is not None})
        kind = Kind.UNKNOWN if bad else Kind.OK
        self._recorder.end(index, kind, error="+".join(bad) or None)
        if kind is Kind.OK:
            self._committed.update(offsets)
