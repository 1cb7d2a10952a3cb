"""Our own client in two phases: what one instance has prepared somebody else decides, later.

A transaction is begun, filled and prepared, and then its producer is gone: what it has prepared is
known to others by its name alone. Some time later, and maybe after restarts that only keep it, it
is decided: by a successor, which holds the same transactional id and has kept it, or by an operator
as `ottla transactions commit` and `abort` do. If nobody could say whether that was done, a
successor looks, and decides what it finds open.

Gone is a producer that hangs up. With something prepared our client says nothing to anybody when it
is closed, so that for a node this is the same as the death of its process. What is open and was not
prepared is aborted by the successor: in two phases nothing has a time-out.

Not here: the client (`ottla.clients.producer`), what is drawn (`chaos/transactions.py`).

Q1  all who decide a transaction want the same
Q2  what is left when the writers have stopped `settle` decides, or it leaves an operation that
    did not succeed
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.chaos.history import Kind
from ottla.chaos.runner.own_transactor import OwnTransactor, closed
from ottla.chaos.runner.pace import Pace, nothing_for
from ottla.chaos.runner.recorder import Recorder
from ottla.chaos.transactions import Fate, TransactionDraw, decisions
from ottla.chaos.workload import ProcessPlan
from ottla.clients.admin.client import AsyncAdmin
from ottla.clients.errors import NotSentError
from ottla.clients.producer.client import AsyncProducer
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.proto.errors import OttlaError

FINAL: Final = "final"
_STEP_S: Final = 3.0
_BLOCK_MS: Final = 5_000
# An operator who soon gives up: of a decision that was asked for, nobody knows what became then.
_OPERATOR_S: Final = 2.0
_OPERATOR_MS: Final = 1_500
_PAUSE_S: Final = 0.2
T = TypeVar("T")


@dataclass(slots=True)
class _Waiting:
    """A transaction that is prepared, and what is still to be done about it."""

    prepared: PreparedTransaction
    is_commit: bool
    is_by_operator: bool
    # Before each restart that only keeps it, and before the decision.
    waits_s: list[float]


class OwnPreparer(OwnTransactor):
    """One process, from `live` until somebody says that it is over; then `settle`."""

    def __init__(
        self,
        plan: ProcessPlan,
        addresses: Mapping[int, str],
        recorder: Recorder,
        is_over: Callable[[], bool],
    ) -> None:
        super().__init__(plan, addresses, recorder, is_over)
        self._operator: Final = f"{plan.name}.operator"
        self._decisions: Final = decisions(plan)
        self._waiting: _Waiting | None = None
        # What the last one who held the id found open.
        self._found: PreparedTransaction | None = None
        self._is_settled = False

    def _new(self) -> AsyncProducer:
        # Nobody to be reached: that is told soon, and another one tries.
        told = {"transaction.two.phase.commit.enable": True, "max.block.ms": _BLOCK_MS}
        return AsyncProducer({**self._options(), **told})

    def _new_admin(self) -> AsyncAdmin:
        return AsyncAdmin(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": self._operator,
                "request.timeout.ms": _OPERATOR_MS,
                "default.api.timeout.ms": _OPERATOR_MS,
            }
        )

    # -- one life after another ------------------------------------------------------------------

    async def _one_life(self, pace: Pace) -> None:
        """Live as a producer; if something is prepared, do the next thing about it first."""
        waiting = self._waiting
        if waiting is not None:
            await nothing_for(waiting.waits_s[0], self._is_over)
            if self._is_over():
                return
            if len(waiting.waits_s) > 1:
                await self._restart(waiting)
                return
            if waiting.is_by_operator:
                await self._ask_operator(waiting)
                return
        await super()._one_life(pace)

    async def _restart(self, waiting: _Waiting) -> None:
        """Come back, keep what is prepared, and be gone again."""
        producer = self._new()
        try:
            if await self._keep(producer):
                waiting.waits_s.pop(0)
        finally:
            await closed(producer.close(0))

    async def _keep(self, producer: AsyncProducer) -> bool:
        """Hold the id, and keep what is open; return whether somebody answered."""
        waiting = self._waiting
        index = self._notes.begin_keep(is_waiting=waiting is not None)
        try:
            found = await producer.init_transactions(_STEP_S, keep_prepared=True)
        except OttlaError as error:
            self._notes.end(index, Kind.UNKNOWN, type(error).__name__)
            await asyncio.sleep(_PAUSE_S)
            return False
        self._notes.kept(index, None if found is None else str(found))
        self._found = found
        if waiting is not None and found != waiting.prepared:
            # Somebody's decision was taken, or it was not kept: what is written down tells which.
            self._forget()
        return True

    def _forget(self) -> None:
        self._waiting = None
        self._notes.positions = None

    async def _holds(self, producer: AsyncProducer) -> bool:
        while not self._is_over():
            if await self._keep(producer):
                return await self._end_what_was_found(producer)
        return False

    async def _end_what_was_found(self, producer: AsyncProducer) -> bool:
        """Return whether this producer may go on."""
        waiting = self._waiting
        if self._found is None:
            self._notes.positions = None
            return True
        if waiting is None:
            # Nobody has prepared it, and nothing else will end it.
            return await self._abort(producer)
        # If this comes to nothing, the next one need not wait.
        waiting.waits_s = [_PAUSE_S]
        end = self._commit if waiting.is_commit else self._abort
        is_done = await end(producer)
        if is_done:
            self._waiting = None
        return is_done

    # -- one transaction -------------------------------------------------------------------------

    async def _finish(self, producer: AsyncProducer, draw: TransactionDraw) -> bool:
        if draw.fate is not Fate.COMMIT:
            return await super()._finish(producer, draw)
        decision, index = next(self._decisions), self._notes.begin_prepare()
        try:
            prepared = await producer.prepare(_STEP_S)
        except (OttlaError, TimeoutError) as error:
            self._notes.end(index, Kind.FAIL, type(error).__name__)
            return await self._abort(producer)
        if prepared is None:
            # As the client sees it, nothing was written.
            self._notes.end(index, Kind.FAIL, "EMPTY")
            return True
        self._notes.prepared(index, str(prepared))
        self._waiting = _Waiting(
            prepared, decision.is_commit, decision.is_by_operator, [*decision.waits_s]
        )
        return False

    async def _ask_operator(self, waiting: _Waiting) -> None:
        """Let an operator decide; if nobody knows what came of that, a successor will look."""
        waiting.is_by_operator, waiting.waits_s = False, [_PAUSE_S]
        is_commit, told = waiting.is_commit, None
        index = self._notes.begin_end(commit=is_commit, by=self._operator)
        admin = self._new_admin()
        try:
            async with asyncio.timeout(_OPERATOR_S):
                await admin.complete_transaction(waiting.prepared, commit=is_commit, take_over=True)
            kind = Kind.OK
            self._forget()
        except (OttlaError, TimeoutError) as error:
            kind = Kind.FAIL if isinstance(error, NotSentError) else Kind.UNKNOWN
            told = type(error).__name__
        finally:
            await closed(admin.close())
        self._notes.end(index, kind, told)

    # -- the end ---------------------------------------------------------------------------------

    async def settle(self, deadline_s: float) -> None:
        """Decide what is left, when the writers have stopped and everything is mended (Q2)."""
        if self._is_settled:
            return
        self._is_settled, waiting = True, self._waiting
        producer, by = self._new(), f"{self._plan.name}.{FINAL}"
        index = self._notes.begin_keep(is_waiting=waiting is not None, by=by, phase=FINAL)
        try:
            async with asyncio.timeout(deadline_s):
                found = await _insist(
                    lambda: producer.init_transactions(_STEP_S, keep_prepared=True)
                )
                self._notes.kept(index, None if found is None else str(found))
                if found is not None:
                    is_commit = False
                    if waiting is not None and found == waiting.prepared:
                        is_commit = waiting.is_commit
                    index = self._notes.begin_end(commit=is_commit, by=by, phase=FINAL)
                    end = producer.commit if is_commit else producer.abort
                    await _insist(lambda: end(_STEP_S))
                    self._notes.end(index, Kind.OK)
        except TimeoutError:
            self._notes.end(index, Kind.UNKNOWN, TimeoutError.__name__)
        finally:
            await closed(producer.close(0))


async def _insist(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step until it succeeds; whoever waits has a deadline."""
    while True:
        try:
            return await step()
        except OttlaError:
            await asyncio.sleep(_PAUSE_S)
