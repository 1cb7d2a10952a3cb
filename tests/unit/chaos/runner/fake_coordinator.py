"""One transactional id that decides as a node does, and clients of it that need no network.

    coordinator = FakeCoordinator("tp1")
    coordinator.troubles += [Trouble.LOST_ANSWER]
    producer, operator = FakeProducer(coordinator), FakeAdmin(coordinator)

What is decided follows from the real core (`ottla.node.transactions.transaction`), so that a rule
which is undone there is undone here; every partition has its marker at once. A second passes with
every question.

Not here: records, and who reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import Any, Final

from ottla.clients.errors import TransactionError, TransactionUnknownError, UnreachableError
from ottla.clients.producer.batch import Report, State
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import (
    FOR_EVER_MS,
    NEW_CLIENT,
    Decision,
    Init,
    Refused,
    Told,
    TransactionValue,
    WriteValue,
)
from ottla.node.transactions.words import State as TransactionState
from ottla.proto.errors import ErrorCode, RequestError

_BUSY: Final = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
_STEP_MS: Final = 1_000
_ENOUGH: Final = 10


class Trouble(Enum):
    """What may become of a question."""

    NOT_SENT = "not sent"
    LOST_QUESTION = "lost question"
    # It is done, and nobody hears of it.
    LOST_ANSWER = "lost answer"


class FakeCoordinator:
    """All that is known of one id."""

    def __init__(self, name: str) -> None:
        self.one: Final = Transaction.new(name, 7, FOR_EVER_MS, 0)
        self.now_ms = 0
        # Of the next questions, one each; None: nothing is wrong with it.
        self.troubles: Final = list[Trouble | None]()
        # How each transaction has ended, by the name that others know it by.
        self.ended: Final = dict[str, bool]()
        self.offsets: Final = count(0)

    @property
    def open_name(self) -> str | None:
        """Return the name of the transaction that is open."""
        value = self.one.value
        is_open = value.state is TransactionState.ONGOING
        name = self.one.transactional_id
        given = PreparedTransaction(name, value.producer_id, value.producer_epoch)
        return str(given) if is_open else None

    def ask(self, question: Callable[[Transaction], Decision], *, is_end: bool = False) -> Told:
        self.now_ms += _STEP_MS
        late = self.one.time_out(self.now_ms)
        if late is not None:
            self._write(late.value)
        trouble = self.troubles.pop(0) if self.troubles else None
        if trouble is Trouble.NOT_SENT:
            raise UnreachableError("a test has cut the line.")
        lost = TransactionUnknownError if is_end else TransactionError
        if trouble is Trouble.LOST_QUESTION:
            raise lost("a test has lost the question.")
        told = self._answer(question)
        if trouble is Trouble.LOST_ANSWER:
            raise lost("a test has lost the answer.")
        return told

    def _answer(self, question: Callable[[Transaction], Decision]) -> Told:
        for _ in range(_ENOUGH):
            decision = question(self.one)
            if isinstance(decision, WriteValue):
                self._write(decision.value)
                decision = decision.answer
            if isinstance(decision, Told):
                return decision
            if isinstance(decision, Refused) and decision != _BUSY:
                raise RequestError(decision.code)
        raise AssertionError("it is busy for ever")

    def _write(self, value: TransactionValue) -> None:
        name = self.open_name
        self.one.begin(value)
        self.one.settle()
        if value.state.is_decided:
            if name is not None:
                self.ended[name] = value.state.is_commit
            self.one.marked(value.partitions)
            self.one.begin(self.one.complete(self.now_ms))
            self.one.settle()

    def init(self, *, keeps: bool, expected: tuple[int, int] | None = None) -> Told:
        wish = Init(timeout_ms=FOR_EVER_MS, expected=expected, keeps_prepared=keeps)
        return self.ask(lambda one: one.init(wish, self.now_ms))

    def end(self, producer_id: int, epoch: int, *, is_commit: bool) -> Told:
        return self.ask(
            lambda one: one.end(
                producer_id, epoch, self.now_ms, is_commit=is_commit, version=NEW_CLIENT
            ),
            is_end=True,
        )


class FakeProducer:
    """As much of `AsyncProducer` as a process needs that lives on transactions."""

    def __init__(self, coordinator: FakeCoordinator) -> None:
        self._coordinator: Final = coordinator
        self._identity = (-1, -1)
        self._is_open = False
        # What this instance has done, in order.
        self.calls: Final = list[str]()

    async def init_transactions(
        self, timeout_s: float, *, keep_prepared: bool = False
    ) -> PreparedTransaction | None:
        told = self._coordinator.init(keeps=keep_prepared)
        self._identity = told.producer_id, told.producer_epoch
        name = self._coordinator.one.transactional_id
        return None if told.ongoing[0] < 0 else PreparedTransaction(name, *told.ongoing)

    def begin(self) -> None:
        self._is_open = True

    def send(
        self, topic: str, value: bytes, *, partition: int, on_delivery: Callable[[Report], None]
    ) -> None:
        places = frozenset({(topic, partition)})
        asked = self._identity
        try:
            self._coordinator.ask(
                lambda one: one.add(*asked, places, self._coordinator.now_ms, NEW_CLIENT)
            )
        except TransactionError:
            on_delivery(Report(State.UNKNOWN, topic, partition, None, 0, None))
        except (RequestError, UnreachableError):
            on_delivery(Report(State.FAILED, topic, partition, None, 0, None))
        else:
            offset = next(self._coordinator.offsets)
            on_delivery(Report(State.OK, topic, partition, offset, 0, None))

    async def flush(self, timeout_s: float) -> None: ...

    def identity(self) -> tuple[int, int]:
        return self._identity

    async def prepare(self, timeout_s: float) -> PreparedTransaction:
        self.calls.append("prepare")
        self._is_open = False
        return PreparedTransaction(self._coordinator.one.transactional_id, *self._identity)

    async def commit(self, timeout_s: float) -> None:
        self._end(is_commit=True)

    async def abort(self, timeout_s: float) -> None:
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        self.calls.append("commit" if is_commit else "abort")
        told = self._coordinator.end(*self._identity, is_commit=is_commit)
        self._identity, self._is_open = (told.producer_id, told.producer_epoch), False

    async def close(self, timeout_s: float) -> None:
        if self._is_open:
            self.calls.append("hang up")


class FakeAdmin:
    """As much of `AsyncAdmin` as an operator needs who decides what is prepared."""

    def __init__(self, coordinator: FakeCoordinator) -> None:
        self._coordinator: Final = coordinator

    async def complete_transaction(
        self, prepared: PreparedTransaction, *, commit: bool, take_over: bool = False
    ) -> None:
        named = prepared.producer_id, prepared.epoch
        try:
            self._coordinator.end(*named, is_commit=commit)
        except RequestError as refusal:
            is_open = self._coordinator.open_name == str(prepared)
            if not (take_over and is_open and refusal.code is ErrorCode.PRODUCER_FENCED):
                raise
            told = self._coordinator.init(keeps=True, expected=named)
            self._coordinator.end(told.producer_id, told.producer_epoch, is_commit=commit)

    async def close(self) -> None: ...


def no_answer(*_: Any, **__: Any) -> Any:
    """Stand in for a question that nobody ever answers."""
    raise TransactionUnknownError("a test lets nobody answer.")
