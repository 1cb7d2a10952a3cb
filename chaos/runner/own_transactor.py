"""Our own client as a producer of transactions, and as a reader of what is committed.

It does what librdkafka does beside it (`foreign_transactor.py`), and one thing more: sometimes, in
the middle of a transaction, it asks for the end of the one before once more, as a request does that
was delayed on its way (KAFKA-17754). In the first dialect of transactions nothing tells which one
is meant, so there it is left out.

What our client says is believed as far as it goes, and so is judged too: after
`TransactionAbortableError` and `ProducerFencedError` nothing is committed; only
`TransactionUnknownError`, and whatever it does not name, leaves it open.

Not here: the client (`ottla.clients.producer`), what is written down (`transaction_notes.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from ottla.chaos.clock import now_s
from ottla.chaos.history import Kind, Place
from ottla.chaos.payload import encode_payload
from ottla.chaos.runner.lines import Lines
from ottla.chaos.runner.own_member import shown_of
from ottla.chaos.runner.pace import Pace
from ottla.chaos.runner.raw_member import find_coordinator
from ottla.chaos.runner.recorder import ASSIGN, LATE_END, POLL, Recorder
from ottla.chaos.runner.requests import place_of
from ottla.chaos.runner.transaction_notes import DELIVERY_MS, TRANSACTION_MS, TransactionNotes
from ottla.chaos.transactions import Fate, TransactionDraw, transactions
from ottla.chaos.workload import ProcessPlan
from ottla.clients.cluster import TRANSACTION_KEY_TYPE
from ottla.clients.connection import error_code_of
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.clients.dialects import is_second_dialect
from ottla.clients.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionUnknownError,
)
from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.client import AsyncProducer
from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition
from ottla.proto.kafka.apis import END_TXN

_STEP_S: Final = 3.0
_FLUSH_S: Final = 4.0
_END_S: Final = 9.0
_CLOSE_S: Final = 2.0
_POLL_S: Final = 0.15
_POLL_RECORDS: Final = 200
_PAUSE_S: Final = 0.2
_KINDS: Final = {State.OK: Kind.OK, State.FAILED: Kind.FAIL, State.UNKNOWN: Kind.UNKNOWN}
# What says that nothing of the transaction is committed.
_SURELY_NOT: Final = (TransactionAbortableError, ProducerFencedError)


class OwnTransactor:
    """One process, from `live` until somebody says that it is over."""

    def __init__(
        self,
        plan: ProcessPlan,
        addresses: Mapping[int, str],
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        self._plan: Final = plan
        self._bootstrap: Final = ",".join(addresses.values())
        self._recorder: Final = recorder
        self._is_over: Final = is_over
        self._notes: Final = TransactionNotes(plan, recorder)
        self._draws: Final = transactions(plan)
        # Past our client: for requests that come late.
        self._lines: Final = Lines(addresses, f"{plan.name}-late")
        # Producer id and epoch of the transaction that was committed last.
        self._before: tuple[int, int] | None = None
        self._consumer: AsyncConsumer | None = None

    async def live(self) -> None:
        pace = Pace(self._plan.per_s)
        if self._plan.reads:
            self._consumer = new_reader(self._bootstrap, self._plan.name, self._plan.group)
        try:
            while not self._is_over():
                await self._one_life(pace)
        finally:
            await self._lines.close()
            if self._consumer is not None:
                await closed(self._consumer.close())

    def _new(self) -> AsyncProducer:
        return AsyncProducer({**self._options(), "transaction.timeout.ms": TRANSACTION_MS})

    def _options(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self._bootstrap,
            "client.id": self._plan.name,
            "transactional.id": self._plan.name,
            "delivery.timeout.ms": DELIVERY_MS,
            "request.timeout.ms": 3_000,
            "metadata.max.age.ms": 5_000,
            "linger.ms": 1,
        }

    async def _one_life(self, pace: Pace) -> None:
        producer = self._new()
        self._before = None
        try:
            if await self._holds(producer):
                await self._work(producer, pace)
        finally:
            await closed(producer.close(_CLOSE_S))
            self._notes.give_up()

    async def _holds(self, producer: AsyncProducer) -> bool:
        while not self._is_over():
            try:
                await producer.init_transactions(_STEP_S)
            except OttlaError:
                await asyncio.sleep(_PAUSE_S)
            else:
                # How the one before has ended is decided by now.
                self._notes.positions = None
                return True
        return False

    async def _work(self, producer: AsyncProducer, pace: Pace) -> None:
        while not self._is_over():
            await pace.due()
            if not await self._is_placed():
                continue
            if not await self._transact(producer, next(self._draws)):
                return

    # -- one transaction -------------------------------------------------------------------------

    async def _transact(self, producer: AsyncProducer, draw: TransactionDraw) -> bool:
        """Return whether this producer may go on."""
        try:
            producer.begin()
        except OttlaError:
            return False
        self._notes.begin()
        try:
            await self._fill(producer, draw)
        except (OttlaError, TimeoutError):
            return await self._abort(producer)
        if not self._notes.is_all_sent:
            return await self._abort(producer)
        return await self._finish(producer, draw)

    async def _finish(self, producer: AsyncProducer, draw: TransactionDraw) -> bool:
        """Do what was drawn with a transaction in which all is written."""
        match draw.fate:
            case Fate.LEAVE:
                return False
            case Fate.ABORT:
                return await self._abort(producer)
            case Fate.COMMIT:
                return await self._commit(producer)

    async def _fill(self, producer: AsyncProducer, draw: TransactionDraw) -> None:
        if self._consumer is not None:
            await self._poll(self._consumer)
        half = len(draw.places) // 2
        if draw.has_late_end and self._before is not None:
            await self._write(producer, enumerate(draw.places[:half]))
            await self._end_again(*self._before)
            await self._write(producer, enumerate(draw.places[half:], half))
        else:
            await self._write(producer, enumerate(draw.places))
        if self._consumer is not None:
            # What it wrote a moment ago is there, and not for it.
            await self._poll(self._consumer)
            reached = {TopicPartition(*at): one for at, one in self._notes.reached.items()}
            await producer.send_offsets(reached, self._plan.group, _STEP_S)

    async def _write(self, producer: AsyncProducer, wanted: Iterable[tuple[int, Place]]) -> None:
        for lane, place in wanted:
            value, index = self._notes.send(lane, place)

            def on_delivery(report: Report, lane: int = lane, index: int = index) -> None:
                self._delivered(lane, index, report)

            producer.send(
                place.topic,
                encode_payload(place, value),
                partition=place.partition,
                on_delivery=on_delivery,
            )
        await producer.flush(_FLUSH_S)

    def _delivered(self, lane: int, index: int, report: Report) -> None:
        kind = _KINDS[report.state]
        if kind is not Kind.OK:
            code = None if report.error is None else report.error.code
            told = report.state.value if code is None else code.name
            self._notes.sent(lane, index, kind, error=told)
        elif report.offset is None or report.offset < 0:
            self._notes.sent(lane, index, Kind.UNKNOWN, is_kept=True)
        else:
            self._notes.sent(lane, index, Kind.OK, offset=report.offset)

    async def _commit(self, producer: AsyncProducer) -> bool:
        identity = producer.identity()
        index, end_s = self._notes.begin_end(commit=True), now_s() + _END_S
        while True:
            try:
                await producer.commit(_STEP_S)
            except TransactionUnknownError:
                if now_s() < end_s and not self._is_over():
                    await asyncio.sleep(_PAUSE_S)
                    continue
                self._notes.end(index, Kind.UNKNOWN, TransactionUnknownError.__name__)
                return False
            except OttlaError as error:
                kind = Kind.FAIL if isinstance(error, _SURELY_NOT) else Kind.UNKNOWN
                self._notes.end(index, kind, type(error).__name__)
                self._notes.positions = None
                is_open = isinstance(error, TransactionAbortableError)
                return is_open and await self._abort(producer)
            self._notes.end(index, Kind.OK)
            self._notes.committed()
            self._before = identity
            return True

    async def _abort(self, producer: AsyncProducer) -> bool:
        index = self._notes.begin_end(commit=False)
        self._notes.positions = self._before = None
        try:
            await producer.abort(_STEP_S)
        except OttlaError as error:
            self._notes.end(index, Kind.UNKNOWN, type(error).__name__)
            return False
        self._notes.end(index, Kind.OK)
        self._notes.give_up()
        return True

    async def _end_again(self, producer_id: int, epoch: int) -> None:
        """Ask once more for the end of the transaction before: it comes late."""
        name = self._plan.name
        index = self._recorder.begin(name, LATE_END, transaction=self._notes.transaction)
        fields = {
            "transactional_id": name,
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "committed": True,
        }
        kind, told = Kind.FAIL, "NOT_SENT"
        with suppress(OttlaError):
            asked = next(iter(self._lines.addresses))
            node = await find_coordinator(self._lines, asked, name, TRANSACTION_KEY_TYPE)
            if node is not None:
                line = await self._lines.to(node)
                if is_second_dialect(line.features):
                    kind, told = Kind.UNKNOWN, "NO_ANSWER"
                    answer = await line.call(END_TXN, fields, timeout_s=_STEP_S)
                    code = error_code_of(answer.error_code)
                    kind, told = Kind.FAIL if code else Kind.OK, code.name
        self._recorder.end(index, kind, error=None if kind is Kind.OK else told)

    # -- reading in it ---------------------------------------------------------------------------

    async def _is_placed(self) -> bool:
        """Return whether it is known where to read on, or nothing is read."""
        if self._consumer is None or self._notes.positions is not None:
            return True
        return await self._stand(self._consumer)

    async def _stand(self, consumer: AsyncConsumer) -> bool:
        index = self._notes.look()
        wanted = [TopicPartition(*one) for one in self._plan.reads]
        try:
            async with asyncio.timeout(_STEP_S):
                found = await consumer.committed(wanted)
                await consumer.assign(wanted)
        except (TimeoutError, OttlaError) as error:
            self._notes.not_found(index, type(error).__name__)
            return False
        offsets = {
            place_of(one): -1 if told is None else told.offset for one, told in found.items()
        }
        self._notes.found(index, offsets)
        for at, offset in (self._notes.positions or {}).items():
            await consumer.seek(TopicPartition(*at), offset)
        return True

    async def _poll(self, consumer: AsyncConsumer) -> None:
        name, transaction = self._plan.name, self._notes.transaction
        shown = await poll_committed(consumer, self._recorder, name, transaction)
        self._notes.reached.update(shown)


class OwnCommittedReader:
    """Partitions of its own, from the first record on; only what is committed."""

    def __init__(
        self, plan: ProcessPlan, bootstrap: str, recorder: Recorder, is_over: Callable[[], bool]
    ) -> None:
        self._plan: Final = plan
        self._bootstrap: Final = bootstrap
        self._recorder: Final = recorder
        self._is_over: Final = is_over

    async def live(self) -> None:
        name, pace = self._plan.name, Pace(self._plan.per_s)
        consumer = new_reader(self._bootstrap, name, "")
        try:
            await self._begin(consumer, pace)
            while not self._is_over():
                await pace.due()
                await poll_committed(consumer, self._recorder, name)
        finally:
            await closed(consumer.close())

    async def _begin(self, consumer: AsyncConsumer, pace: Pace) -> None:
        for place in self._plan.places:
            self._recorder.note(self._plan.name, ASSIGN, place=place, offset=0)
        while not self._is_over():
            await pace.due()
            with suppress(OttlaError):
                await consumer.assign([TopicPartition(*one) for one in self._plan.places])
                return


def new_reader(bootstrap: str, name: str, group: str) -> AsyncConsumer:
    return AsyncConsumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": name,
            **({"group.id": group} if group else {}),
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.wait.ms": 100,
            "metadata.max.age.ms": 5_000,
        }
    )


async def poll_committed(
    consumer: AsyncConsumer, recorder: Recorder, name: str, transaction: str | None = None
) -> dict[Place, int]:
    """Poll once, and return behind what was shown of each partition."""
    index = recorder.begin(name, POLL, is_committed=True, transaction=transaction)
    try:
        records = await consumer.consume(_POLL_RECORDS, _POLL_S)
    except OttlaError as error:
        recorder.end(index, Kind.FAIL, error=type(error).__name__)
        return {}
    shown = tuple(map(shown_of, records))
    recorder.end(index, Kind.OK, shown=shown)
    return {one.place: one.offset + 1 for one in shown}


async def closed(closing: Awaitable[None]) -> None:
    """Wait a little until something has closed; whether it did is of no importance here."""
    with suppress(TimeoutError, OttlaError):
        async with asyncio.timeout(2 * _CLOSE_S):
            await closing
