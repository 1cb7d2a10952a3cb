"""librdkafka as a producer of transactions, in a thread of its own.

It begins a transaction, sometimes reads in it what is committed, writes, hands over the offsets of
what it has read, and ends it as its plan says; or it walks away from it. When the library says that
it is of no use any more, another instance takes over the transactional id.

What the library says of a commit is believed if it is success. Any other answer may come after an
attempt that was taken: then nobody knows. A transaction that was never asked to be committed is
surely aborted, whatever became of its abort.

The library does not always keep its own time-outs: librdkafka 2.16 was seen to wait for ever in
`send_offsets_to_transaction` when a node had been away. So every step is done by a thread that can
be left behind, with the instance that is stuck.

Not here: our own client (`own_transactor.py`), what is written down (`transaction_notes.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place
from ottla.chaos.payload import encode_payload
from ottla.chaos.runner.foreign import (
    QUICK,
    ForeignClient,
    consumed,
    hear,
    is_fatal,
    kind_of,
    let_go,
)
from ottla.chaos.runner.raw_producer import NOT_SENT
from ottla.chaos.runner.recorder import ASSIGN, POLL, Recorder
from ottla.chaos.runner.transaction_notes import DELIVERY_MS, TRANSACTION_MS, TransactionNotes
from ottla.chaos.transactions import Fate, TransactionDraw, transactions
from ottla.chaos.workload import ProcessPlan

_STEP_S: Final = 3.0
# A step that takes longer than this is stuck in the library.
_STUCK_S: Final = 6.0
_FLUSH_S: Final = 6.0
# How long it asks for the end of a transaction.
_END_S: Final = 12.0
_POLL_S: Final = 0.15
_PAUSE_S: Final = 0.2
_STUCK: Final = "STUCK"


class StuckError(Exception):
    """A call into the library does not come back, in spite of its time-out."""


class ForeignTransactor(ForeignClient):
    """One process, and a lane for each record of a transaction."""

    def __init__(self, plan: ProcessPlan, bootstrap: str, recorder: Recorder) -> None:
        super().__init__(plan, bootstrap, recorder)
        self._notes: Final = TransactionNotes(plan, recorder)
        self._consumer: Any = None

    def _live(self) -> None:
        draws = transactions(self.plan)
        if self.plan.reads:
            self._consumer = new_reader(self._bootstrap, self.plan.name, self.plan.group)
        try:
            while not self._over.is_set():
                producer = self._new()
                if self._holds(producer):
                    self._work(producer, partial(next, draws))
                let_go(producer)
                self._notes.give_up()
        finally:
            if self._consumer is not None:
                self._consumer.close()

    def _new(self) -> Any:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self.plan.name,
                "transactional.id": self.plan.name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "message.timeout.ms": DELIVERY_MS,
                "linger.ms": 1,
                **QUICK,
            }
        )

    def _holds(self, producer: Any) -> bool:
        """Take over the transactional id; return whether that came to something."""
        while not self._over.is_set():
            try:
                within(producer.init_transactions, _STEP_S)
            except StuckError:
                return False
            except KafkaException as error:
                self._over.wait(_PAUSE_S)
                if not error.args[0].retriable():
                    return False
            else:
                # How the one before has ended is decided by now.
                self._notes.positions = None
                return True
        return False

    def _work(self, producer: Any, draw: Callable[[], TransactionDraw]) -> None:
        while not self._over.wait(1.0 / self.plan.per_s):
            if self.plan.reads and self._notes.positions is None and not self._stand():
                continue
            if not self._transact(producer, draw()):
                return

    # -- one transaction -------------------------------------------------------------------------

    def _transact(self, producer: Any, draw: TransactionDraw) -> bool:
        """Return whether this producer may go on."""
        try:
            producer.begin_transaction()
        except KafkaException:
            return False
        self._notes.begin()
        try:
            is_whole = self._fill(producer, draw)
        except KafkaException as error:
            if is_fatal(error):
                return False
            is_whole = False
        except StuckError:
            return False
        if not is_whole:
            return self._abort(producer)
        match draw.fate:
            case Fate.LEAVE:
                return False
            case Fate.ABORT:
                return self._abort(producer)
            case Fate.COMMIT:
                return self._commit(producer)

    def _fill(self, producer: Any, draw: TransactionDraw) -> bool:
        """Return whether everything of it is acknowledged."""
        if self._consumer is not None:
            self._poll()
        for lane, place in enumerate(draw.places):
            self._send(producer, lane, place)
        hear(producer, _FLUSH_S)
        if not self._notes.is_all_sent:
            return False
        if self._consumer is not None:
            # What it wrote a moment ago is there, and not for it.
            self._poll()
            offsets = [TopicPartition(*at, one) for at, one in self._notes.reached.items()]
            whose = self._consumer.consumer_group_metadata()
            within(producer.send_offsets_to_transaction, offsets, whose, _STEP_S)
        return True

    def _send(self, producer: Any, lane: int, place: Place) -> None:
        value, index = self._notes.send(lane, place)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None:
                self._notes.sent(lane, index, kind_of(error.code()), error=error.name())
            elif offset is None or offset < 0:
                self._notes.sent(lane, index, Kind.UNKNOWN, is_kept=True)
            else:
                self._notes.sent(lane, index, Kind.OK, offset=offset)

        try:
            producer.produce(
                place.topic,
                encode_payload(place, value),
                partition=place.partition,
                on_delivery=on_delivery,
            )
        except (BufferError, KafkaException):
            self._notes.sent(lane, index, Kind.FAIL, error=NOT_SENT)

    def _commit(self, producer: Any) -> bool:
        index, end_s = self._notes.begin_end(commit=True), now_s() + _END_S
        while True:
            try:
                within(producer.commit_transaction, _STEP_S)
            except StuckError:
                self._notes.end(index, Kind.UNKNOWN, _STUCK)
                return False
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable() and now_s() < end_s and not self._over.is_set():
                    continue
                self._notes.end(index, Kind.UNKNOWN, error.name())
                self._notes.positions = None
                return bool(error.txn_requires_abort()) and self._abort(producer)
            self._notes.end(index, Kind.OK)
            self._notes.committed()
            return True

    def _abort(self, producer: Any) -> bool:
        index, end_s = self._notes.begin_end(commit=False), now_s() + _END_S
        self._notes.positions = None
        while True:
            try:
                within(producer.abort_transaction, _STEP_S)
            except StuckError:
                self._notes.end(index, Kind.UNKNOWN, _STUCK)
                return False
            except KafkaException as failure:
                error = failure.args[0]
                if error.retriable() and now_s() < end_s and not self._over.is_set():
                    continue
                self._notes.end(index, Kind.UNKNOWN, error.name())
                return False
            self._notes.end(index, Kind.OK)
            self._notes.give_up()
            return True

    # -- reading in it ---------------------------------------------------------------------------

    def _stand(self) -> bool:
        """Read on where the group has committed; return whether somebody said where."""
        index = self._notes.look()
        try:
            found = self._consumer.committed(
                [TopicPartition(*one) for one in self.plan.reads], _STEP_S
            )
        except KafkaException as error:
            self._notes.not_found(index, error.args[0].name())
            return False
        if any(one.error is not None for one in found):
            self._notes.not_found(index, "PARTLY")
            return False
        offsets = {Place(one.topic, one.partition): max(-1, one.offset) for one in found}
        self._notes.found(index, offsets)
        positions = self._notes.positions or {}
        self._consumer.assign([TopicPartition(*at, one) for at, one in positions.items()])
        return True

    def _poll(self) -> None:
        shown = poll_committed(
            self._consumer, self._recorder, self.plan.name, _POLL_S, self._notes.transaction
        )
        self._notes.reached.update(shown)


class ForeignCommittedReader(ForeignClient):
    """Partitions of its own, from the first record on; only what is committed."""

    def _live(self) -> None:
        name = self.plan.name
        consumer = new_reader(self._bootstrap, name, name)
        try:
            for place in self.plan.places:
                self._recorder.note(name, ASSIGN, place=place, offset=0)
            consumer.assign([TopicPartition(*place, 0) for place in self.plan.places])
            while not self._over.wait(1.0 / self.plan.per_s):
                poll_committed(consumer, self._recorder, name, _POLL_S)
        finally:
            consumer.close()


def within(step: Callable[..., object], *args: object, stuck_s: float = _STUCK_S) -> None:
    """Do a step, and raise what it raises; or `StuckError`, and leave it to itself."""
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def run() -> None:
        try:
            step(*args)
        except BaseException as error:  # noqa: BLE001  (raised by whoever waits)
            ended.put(error)
        else:
            ended.put(None)

    threading.Thread(target=run, name="step", daemon=True).start()
    try:
        error = ended.get(timeout=stuck_s)
    except Empty:
        raise StuckError from None
    if error is not None:
        raise error


def new_reader(bootstrap: str, name: str, group: str) -> Any:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            **QUICK,
        }
    )


def poll_committed(
    consumer: Any, recorder: Recorder, name: str, wait_s: float, transaction: str | None = None
) -> dict[Place, int]:
    """Poll once, and return behind what was shown of each partition."""
    index = recorder.begin(name, POLL, is_committed=True, transaction=transaction)
    shown, errors = consumed(consumer, wait_s)
    kind = Kind.FAIL if errors and not shown else Kind.OK
    recorder.end(index, kind, shown=tuple(shown), error="+".join(sorted(errors)) or None)
    return {one.place: one.offset + 1 for one in shown}
