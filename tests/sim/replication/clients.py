"""Clients: producers that try again and producers that do not, and readers.

A produce does at the broker what the real one does (`node/kafka/produce.py`): rule 13, the minimum,
the append, the wait. What its outcome proves is judged here as a checker must: an error that comes
before the append says that nothing happened; any other says nothing at all (rule 27).

Readers need no code of their own: whatever lies below a high watermark counts as read (`truth.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from ottla.replication.replica import Replica
from tests.builders import NOW_MS
from tests.sim.replication.network import CLIENT
from tests.sim.replication.truth import VALUE_BYTES, fail

if TYPE_CHECKING:
    from tests.sim.replication.broker import BrokerProcess
    from tests.sim.replication.world import World

ALL, ONE, NONE = -1, 1, 0
TIMEOUT_MS = 150
RETRIES_MAX = 12
# (what came of it, where it is, whether nothing was appended)
Answer = Callable[[ErrorCode, int, bool], None]


class Request:
    """One produce at one broker, until it is answered."""

    __slots__ = (
        "acks", "answer", "broker", "epoch", "is_done", "offset", "replica", "value",
    )  # fmt: skip

    def __init__(
        self, broker: BrokerProcess, replica: Replica, value: int, acks: int, answer: Answer
    ) -> None:
        self.broker = broker
        self.replica = replica
        self.value = value
        self.acks = acks
        self.answer = answer
        self.epoch = replica.leader_epoch
        self.offset = -1
        self.is_done = False

    def begin(self, batch: bytes) -> None:
        broker, replica = self.broker, self.replica
        truth = broker.world.truth
        if not broker.may_serve(replica):
            self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.acks == ALL and (code := replica.refusal_of_all()) is not None:
            self._refuse(code)
            return
        before = replica.log.end_offset
        truth.expected = (replica.leader_epoch, before, self.value)
        try:
            (placed,) = replica.append([batch], now_ms=NOW_MS + broker.now_ms)
        except RequestError as error:
            self._refuse(error.code)
            return
        except StorageError:
            self._finish(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        if isinstance(placed, RequestError):
            if replica.log.end_offset != before:
                fail("I7", f"{self.value} was refused, and the log has grown")
            self._refuse(placed.code)
            return
        self.offset = placed.first_offset
        if not placed.is_duplicate:
            truth.appended(broker, replica, placed.first_offset, self.value)
        self._wait(Offset(placed.last_offset + 1))

    def _wait(self, end: Offset) -> None:
        if self.acks == ALL:
            code = self.replica.when_committed(end, self)
            if code is ErrorCode.NONE:
                self.reached()
            elif code is not None:
                self._finish(code)
        elif self.acks == ONE:
            if self.replica.when_held(end, self):
                self.reached()
        else:
            self._finish(ErrorCode.NONE)
        if not self.is_done:
            self.broker.after(TIMEOUT_MS, "time out", self._time_out)

    def reached(self) -> None:
        if self.is_done:
            return
        replica, truth = self.replica, self.broker.world.truth
        if not self.broker.may_serve(replica):
            self._finish(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if self.acks == ALL:
            if replica.leader_epoch != self.epoch:
                fail("I4", f"{self.value} is acknowledged in another epoch than its own")
            truth.acknowledge_all(self.broker, replica, self.offset, self.value)
        else:
            truth.acknowledge_one(self.broker, replica, self.offset)
        self._finish(ErrorCode.NONE)

    def failed(self, error: StorageError | RequestError) -> None:
        code = error.code if isinstance(error, RequestError) else ErrorCode.KAFKA_STORAGE_ERROR
        self._finish(code)

    def _time_out(self) -> None:
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, code: ErrorCode) -> None:
        if not self.is_done:
            self.is_done = True
            self.answer(code, self.offset, False)

    def _refuse(self, code: ErrorCode) -> None:
        if not self.is_done:
            self.is_done = True
            self.answer(code, -1, True)


class Producer:
    """Writes one batch after another to one partition, and tries again if it is idempotent."""

    def __init__(self, world: World, number: int, acks: int, *, is_idempotent: bool) -> None:
        self.world = world
        self.number = number
        self.acks = acks
        self.is_idempotent = is_idempotent
        self.index = number % world.climate.partitions
        self.epoch = 0
        self.sequence = 0
        self.acknowledged = 0
        self._value = 0
        self._batch = b""
        self._count = 1
        self._tries = 0
        self._attempt = 0
        # The last offset that anybody was told of with acks=all when this write began (I9).
        self._after = -1
        self._is_certain = True

    def begin(self) -> None:
        self._next()

    def _next(self) -> None:
        if not self.world.is_writing:
            return
        delay_ms = 1
        if not self.world.network.is_calm:
            delay_ms += int(self.world.dice.random() * 2 * self.world.climate.write_ms)
        self.world.schedule.after(delay_ms, "write", self._write)

    def _write(self) -> None:
        world = self.world
        if world.quiet_from_ms <= world.schedule.now_ms < world.quiet_until_ms:
            self._next()
            return
        self._value = world.next_value()
        # Several records to a batch, now and then: offsets and batches are not the same.
        self._count = 3 if world.dice.random() < 0.15 else 1
        value = b"%0*d" % (VALUE_BYTES, self._value)
        records = [Record(n, NOW_MS, None, value, ()) for n in range(self._count)]
        self._batch = build_batch(
            records,
            producer_id=self.number if self.is_idempotent else -1,
            producer_epoch=self.epoch if self.is_idempotent else -1,
            base_sequence=self.sequence if self.is_idempotent else -1,
        )
        self._tries = 0
        self._is_certain = True
        self._after = world.last_acknowledged[self.index]
        self._send()

    def _send(self) -> None:
        world = self.world
        self._tries += 1
        self._attempt += 1
        attempt, value, batch = self._attempt, self._value, self._batch
        broker = self._whom()
        if broker is None:
            self._answered(attempt, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, True)
            return

        def answer(code: ErrorCode, offset: int, is_refused: bool) -> None:
            def arrive(delay_ms: int) -> None:
                told = lambda: self._answered(attempt, code, offset, is_refused)  # noqa: E731
                world.schedule.after(delay_ms, "told", told)

            world.network.post(broker.node_id, CLIENT, arrive)

        def take() -> None:
            replica = broker.replicas.get(self.index)
            if replica is None or not replica.is_leader or not world.is_writing:
                answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, True)
            else:
                Request(broker, replica, value, self.acks, answer).begin(batch)

        def arrive(delay_ms: int) -> None:
            broker.after(delay_ms, "produce", take)

        # A connection keeps one request from coming twice or late.
        if not world.network.happens(world.climate.drop):
            arrive(world.network.delay_ms())
        # Longer than the broker waits: nobody knows then.
        world.schedule.after(
            2 * TIMEOUT_MS,
            "give up",
            lambda: self._answered(attempt, ErrorCode.REQUEST_TIMED_OUT, -1, False),
        )

    def _whom(self) -> BrokerProcess | None:
        """Whoever believes that it leads, mostly; old leaders have clients too."""
        leading = [
            broker
            for broker in self.world.brokers.values()
            if broker.is_up
            and self.index in broker.replicas
            and broker.replicas[self.index].is_leader
        ]
        return self.world.dice.choice(leading) if leading else None

    def _answered(self, attempt: int, code: ErrorCode, offset: int, is_refused: bool) -> None:
        if attempt != self._attempt:
            return
        self._attempt += 1
        world = self.world
        # The next sequence is only known to be wrong where the first attempt says so.
        self._is_certain = self._is_certain and is_refused
        if code is ErrorCode.NONE:
            self._succeed(offset)
        elif self.is_idempotent and self._tries < RETRIES_MAX and self._may_retry(code):
            world.schedule.after(1 + int(world.dice.random() * 30), "again", self._send)
            return
        else:
            if self._is_certain:
                world.truth.refused.add(self._value)
            if self.is_idempotent and not (self._is_certain and self._may_retry(code)):
                # Nobody knows whether it is there: begin anew, so that it cannot be doubled.
                self.epoch, self.sequence = self.epoch + 1, 0
        self._next()

    @staticmethod
    def _may_retry(code: ErrorCode) -> bool:
        return code in {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.KAFKA_STORAGE_ERROR,
        }

    def _succeed(self, offset: int) -> None:
        world = self.world
        if self.is_idempotent:
            self.sequence += self._count
        self.acknowledged += 1
        if self.acks != ALL:
            return
        if offset <= self._after and world.truth.committed[self.index].era < 0:
            fail("I9", f"{self._value} is at {offset}, not after {self._after}")
        world.last_acknowledged[self.index] = max(world.last_acknowledged[self.index], offset)
        world.acknowledged(self.index)
