"""The transactions of `Producer` and `AsyncProducer`, as programs use them.

    with producer.transaction():
        producer.send("orders", b"one")
        producer.send_offsets(consumer.positions(), consumer.group_metadata())

Leaving the block commits; an exception that leaves it aborts, and goes on. What is read with
`isolation.level=read_committed` holds all of it or nothing.

Not here: how it is done (`transacting.py`), and what may be done when (`transactions.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from ottla.clients.consumer.record import OffsetAndMetadata
from ottla.clients.errors import TransactionStateError
from ottla.clients.producer.engine import Engine
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.producer.transacting import Group, Transacting
from ottla.clients.producer.transactions import Phase
from ottla.proto.errors import ConfigError
from ottla.proto.ids import TopicPartition

R = TypeVar("R")
Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]


class _Transactional(ABC):
    """What both do without waiting for anybody."""

    @abstractmethod
    def _engine_at_work(self) -> Engine: ...

    def begin(self) -> None:
        """Begin a transaction; nobody is asked yet."""
        engine = self._engine_at_work()
        core = _transacting(engine).core
        with engine.lock:
            core.begin()

    def identity(self) -> tuple[int, int]:
        """Return the producer id and epoch by which brokers know it now; −1 before it is known."""
        core = _transacting(self._engine_at_work()).core
        return core.producer_id, core.epoch

    def _needs_init(self) -> bool:
        return _transacting(self._engine_at_work()).core.phase is Phase.NEW

    def _can_abort(self) -> bool:
        return _transacting(self._engine_at_work()).core.has_open


class AsyncTransactional(_Transactional):
    """Transactions on an event loop. Times are in seconds; without one, max.block.ms."""

    async def init_transactions(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the other
        *,
        keep_prepared: bool = False,
    ) -> PreparedTransaction | None:
        """Take over the transactional id: once, before the first transaction.

        Whoever had it before is fenced, and what it had open is aborted. With `keep_prepared` a
        prepared transaction stays, and is returned: `complete`, `commit` or `abort` decides it.
        """
        work = _transacting(self._engine_at_work())
        return await work.init(timeout, keep_prepared=keep_prepared)

    async def send_offsets(
        self,
        offsets: Offsets,
        group: Group,
        timeout: float | None = None,  # noqa: ASYNC109 - as the other
    ) -> None:
        """Commit a group's offsets with the transaction: the *next* ones to be read.

        A consumer's `group_metadata()` says for whom; they are refused if its group went on without
        it. A plain group id is for who reads without being a member.
        """
        work = _transacting(self._engine_at_work())
        await work.send_offsets(_whole(offsets), _group(group), timeout)

    async def commit(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the other
        """Flush, and commit: all of it will be read, from a moment later on.

        Raises `TransactionAbortableError` if something of it was not written: then abort. After
        `TransactionUnknownError`, commit again.
        """
        await _transacting(self._engine_at_work()).end(timeout, commit=True)

    async def abort(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the other
        """Abort: nothing of it will be given to readers that ask for what is committed."""
        await _transacting(self._engine_at_work()).end(timeout, commit=False)

    async def prepare(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - as the other
    ) -> PreparedTransaction | None:
        """Flush, and keep the transaction until somebody decides; None if it is empty.

        Its name can be written down (`str`) and given to `Admin.complete_transaction`, by anybody,
        at any time. Needs transaction.two.phase.commit.enable=true.
        """
        return await _transacting(self._engine_at_work()).prepare(timeout)

    async def complete(
        self,
        prepared: PreparedTransaction,
        timeout: float | None = None,  # noqa: ASYNC109 - as the other
    ) -> bool:
        """Commit the prepared transaction if it is this one, else abort it; return which."""
        return await _transacting(self._engine_at_work()).complete(prepared, timeout)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, and commit it at the end of the block; abort on an exception."""
        if self._needs_init():
            await self.init_transactions()
        self.begin()
        try:
            yield
            await self.commit()
        except BaseException:
            if self._can_abort():
                await self.abort()
            raise


class Transactional(_Transactional):
    """Transactions for threads. Times are in seconds; without one, max.block.ms."""

    @abstractmethod
    def _wait_for(self, work: Coroutine[Any, Any, R]) -> R: ...

    def init_transactions(
        self, timeout: float | None = None, *, keep_prepared: bool = False
    ) -> PreparedTransaction | None:
        """Take over the transactional id: once, before the first transaction.

        Whoever had it before is fenced, and what it had open is aborted. With `keep_prepared` a
        prepared transaction stays, and is returned: `complete`, `commit` or `abort` decides it.
        """
        work = _transacting(self._engine_at_work())
        return self._wait_for(work.init(timeout, keep_prepared=keep_prepared))

    def send_offsets(self, offsets: Offsets, group: Group, timeout: float | None = None) -> None:
        """Commit a group's offsets with the transaction: the *next* ones to be read.

        A consumer's `group_metadata()` says for whom; they are refused if its group went on without
        it. A plain group id is for who reads without being a member.
        """
        work = _transacting(self._engine_at_work())
        self._wait_for(work.send_offsets(_whole(offsets), _group(group), timeout))

    def commit(self, timeout: float | None = None) -> None:
        """Flush, and commit: all of it will be read, from a moment later on.

        Raises `TransactionAbortableError` if something of it was not written: then abort. After
        `TransactionUnknownError`, commit again.
        """
        self._wait_for(_transacting(self._engine_at_work()).end(timeout, commit=True))

    def abort(self, timeout: float | None = None) -> None:
        """Abort: nothing of it will be given to readers that ask for what is committed."""
        self._wait_for(_transacting(self._engine_at_work()).end(timeout, commit=False))

    def prepare(self, timeout: float | None = None) -> PreparedTransaction | None:
        """Flush, and keep the transaction until somebody decides; None if it is empty.

        Its name can be written down (`str`) and given to `Admin.complete_transaction`, by anybody,
        at any time. Needs transaction.two.phase.commit.enable=true.
        """
        return self._wait_for(_transacting(self._engine_at_work()).prepare(timeout))

    def complete(self, prepared: PreparedTransaction, timeout: float | None = None) -> bool:
        """Commit the prepared transaction if it is this one, else abort it; return which."""
        return self._wait_for(_transacting(self._engine_at_work()).complete(prepared, timeout))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end of the block; abort on an exception."""
        if self._needs_init():
            self.init_transactions()
        self.begin()
        try:
            yield
            self.commit()
        except BaseException:
            if self._can_abort():
                self.abort()
            raise


def _transacting(engine: Engine) -> Transacting:
    if engine.transacting is None:
        raise TransactionStateError("a producer without transactional.id has no transactions.")
    return engine.transacting


def _group(group: Group) -> Group:
    if not (group if isinstance(group, str) else group.group_id):
        raise ConfigError("offsets are committed for a group: the consumer needs a group.id.")
    return group


def _whole(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    whole = {
        one: OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        for one, offset in offsets.items()
    }
    for partition, offset in whole.items():
        if offset.offset < 0:
            raise ConfigError(f"{partition}: an offset is 0 or more, not {offset.offset}.")
    return whole
