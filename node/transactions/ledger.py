"""One partition of `__transaction_state` and the ids in it, coordinated here in one leader epoch.

    led ──▶ loading: read the log, wait until all of it is committed ──▶ serving ──▶ over

P1  nothing is served before everything that the log held at the beginning was read and is
    committed: what one coordinator has shown, the next one knows (rule 64a)
P2  nothing is served, and nothing written, in another epoch than the one it was loaded in
P3  who asks is answered with a yes only after what was decided is committed
P4  what is decided is passed on to be marked: by whoever decided it, or whoever loads it next

Not here: what is decided (`transaction.py`), and which ledgers there are (`coordinator.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ottla.node.clock import Clock
from ottla.node.groups.reading import OnAThread, read_until, until_committed
from ottla.node.groups.writing import Write, as_group_error, code_of, into
from ottla.node.logs import logger
from ottla.node.transactions.loading import Loaded
from ottla.node.transactions.records import encode_key, encode_value
from ottla.node.transactions.transaction import Transaction
from ottla.node.transactions.words import (
    Decision,
    NeedsId,
    Refused,
    Told,
    TransactionValue,
    WriteValue,
)
from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from ottla.replication.replica import Replica

_log = logger("transactions")

# So long whoever asks waits for what is under way, instead of asking again.
PATIENCE_S: Final = 1.0
# After a write that the log refused.
_AGAIN_S: Final = 0.1

# Given a producer id that nobody had, or None, decides.
Question = Callable[[Transaction, int | None], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a ledger needs of its node."""

    clock: Clock
    # Raises `RequestError` if another node may coordinate by now, unheard (rule 13).
    require_standing: Callable[[Replica], None]
    on_a_thread: OnAThread
    # Gives a producer id that nobody had; raises `RequestError`.
    new_id: Callable[[], Awaitable[int]]
    # Sends the markers of a transaction that is decided (P4).
    mark: Callable[[Ledger, Transaction], None]
    # Whose turn it is to read: all partitions at once would leave no time for anything else.
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class Ledger:
    """The transactional ids of one partition. `load` once; over for ever after `close`."""

    def __init__(self, replica: Replica, world: World) -> None:
        self.replica: Final = replica
        self.epoch: Final = replica.leader_epoch
        self._world: Final = world
        self.transactions: Final[dict[str, Transaction]] = {}
        # Those who wait until something has changed about an id.
        self._waiting: Final[dict[str, set[asyncio.Future[None]]]] = {}
        self.is_loaded = False
        self.is_over = False

    # ── Beginning and ending ──────────────────────────────────────────────────────────────────

    @property
    def is_led(self) -> bool:
        """Whether its partition is still led here, in the epoch it was loaded in (P2)."""
        replica = self.replica
        return not self.is_over and replica.is_leader and replica.leader_epoch == self.epoch

    def _leads(self) -> bool:
        return self.is_led

    def require(self) -> None:
        """Raise `RequestError` unless this ledger may serve now.

        Who is cut off may read its log for ever: clients are not told to wait for that.
        """
        if not self.is_led:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        try:
            self._world.require_standing(self.replica)
        except RequestError as refusal:
            raise RequestError(ErrorCode.NOT_COORDINATOR, refusal.sentence) from None
        if not self.is_loaded:
            raise RequestError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def load(self) -> None:
        """Read the log, and serve; or raise `StorageError`, `CorruptionError`, `RequestError`."""
        began_ms = self._world.clock.monotonic_ms()
        end = self.replica.log.end_offset
        async with self._world.turn:
            on_a_thread = self._world.on_a_thread
            gathered = await read_until(end, self.replica.log, on_a_thread, self._leads)
            loaded = await on_a_thread(partial(Loaded, gathered))
        if self.is_led:
            await until_committed(end, self.replica)
        if not self.is_led:
            return
        self.transactions.update(loaded.transactions)
        self.is_loaded = True
        decided = [one for one in self.transactions.values() if one.value.state.is_decided]
        for one in decided:
            self._go_on(one)
        if self.transactions or loaded.unreadable:
            _log.info(
                "transactions_loaded",
                partition=str(self.replica.partition),
                leader_epoch=self.epoch,
                ids=len(self.transactions),
                decided=len(decided),
                unreadable=loaded.unreadable,
                took_ms=self._world.clock.monotonic_ms() - began_ms,
            )

    def close(self) -> None:
        """Coordinate nothing any more."""
        self.is_over = True
        for name in tuple(self._waiting):
            self._changed(name)
        self.transactions.clear()

    # ── Asking ────────────────────────────────────────────────────────────────────────────────

    async def ask(
        self, name: str, question: Question, make: Callable[[int], Transaction] | None = None
    ) -> Told | Refused:
        """Put something to an id, and return the answer when it may be given (P3).

        One that is not there is made, with a new producer id, or refused. What is under way is
        waited for, for a moment: whoever is told "later" loses more.
        """
        until_s = asyncio.get_running_loop().time() + PATIENCE_S
        fresh: int | None = None
        try:
            while True:
                self.require()
                one = self.transactions.get(name)
                if one is None:
                    if make is None:
                        return Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
                    if fresh is None:
                        fresh = await self._world.new_id()
                        continue
                    one, fresh = self.transactions.setdefault(name, make(fresh)), None
                decision = question(one, fresh)
                if isinstance(decision, NeedsId):
                    fresh = await self._world.new_id()
                elif isinstance(decision, WriteValue):
                    return await self._written(one, decision)
                elif not self._is_late(one, decision, until_s):
                    return decision
                else:
                    await self._until_changed(name, until_s)
        except RequestError as refusal:
            return Refused(refusal.code)

    async def _written(self, one: Transaction, decision: WriteValue) -> Told | Refused:
        future: asyncio.Future[ErrorCode | None] = asyncio.get_running_loop().create_future()
        self.write(one, decision.value, into(future))
        code = await future
        return decision.answer if code is None else Refused(code)

    def _is_late(self, one: Transaction, decision: Told | Refused, until_s: float) -> bool:
        """Whether the same may be answered better in a moment."""
        is_busy = decision == Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
        under_way = one.pending is not None or one.value.state.is_decided
        return is_busy and under_way and asyncio.get_running_loop().time() < until_s

    async def _until_changed(self, name: str, until_s: float) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(name, set()).add(future)
        try:
            await asyncio.wait({future}, timeout=max(0.0, until_s - loop.time()))
        finally:
            # Whoever lost patience must not stay in the list until something changes.
            left = self._waiting.get(name, set())
            left.discard(future)
            if not left:
                self._waiting.pop(name, None)

    @property
    def waiting(self) -> int:
        """How many wait until something has changed."""
        return sum(map(len, self._waiting.values()))

    def _changed(self, name: str) -> None:
        for future in self._waiting.pop(name, ()):
            if not future.done():
                future.set_result(None)

    # ── Going on ──────────────────────────────────────────────────────────────────────────────

    def _go_on(self, one: Transaction) -> None:
        """Do what has to be done about a transaction that nobody asks for."""
        if one.value.state.is_decided and self.is_led:
            self._world.mark(self, one)

    def complete(self, one: Transaction) -> None:
        """Every partition has its marker: close the page; tried until the log takes it."""
        if not self.is_led or not one.value.state.is_decided or one.pending is not None:
            return

        decided = one.value

        def again() -> None:
            # By then it may be complete, and the next one decided, whose markers are not written.
            if one.value is decided:
                self.complete(one)

        def told(code: ErrorCode | None) -> None:
            if code is not None and one.pending is None and one.value is decided:
                asyncio.get_running_loop().call_later(_AGAIN_S, again)

        self.write(one, one.complete(self._world.clock.now_ms()), told)

    def time_out(self, most: int) -> int:
        """Abort what took too long, so many at most; return how many the log has taken."""
        if not self._may_act():
            return 0
        count, now_ms = 0, self._world.clock.now_ms()
        for one in tuple(self.transactions.values()):
            late = one.time_out(now_ms)
            if late is None:
                continue
            if count == most:
                break
            if not self.write(one, late.value, lambda code: None):
                if self._refuses_all():
                    break
                # The log may refuse this one alone, if it is too large: the others go on.
                continue
            count += 1
            _log.warning(
                "transaction_timed_out",
                transactional_id=one.transactional_id,
                producer_id=one.value.producer_id,
                timeout_ms=one.value.timeout_ms,
            )
        return count

    def expire(self, keep_ms: int) -> int:
        """Forget ids that nobody has used for long; return how many."""
        if not self._may_act():
            return 0
        now_ms = self._world.clock.now_ms()
        gone = [one for one in self.transactions.values() if one.is_expired(now_ms, keep_ms)]
        for one in gone:
            self._forget(one)
        return len(gone)

    def _may_act(self) -> bool:
        try:
            self.require()
        except RequestError:
            return False
        return True

    def _refuses_all(self) -> bool:
        """Whether the log would take nothing now, of anybody."""
        return not self._may_act() or self.replica.refusal_of_all() is not None

    def _forget(self, one: Transaction) -> None:
        name = one.transactional_id

        def apply() -> None:
            one.pending = None
            if self.transactions.get(name) is one:
                del self.transactions[name]
            self._changed(name)

        one.begin(one.value)
        if self._write(name, None, apply, lambda code: None) is not None:
            one.give_up()

    # ── The log ───────────────────────────────────────────────────────────────────────────────

    def write(
        self,
        one: Transaction,
        value: TransactionValue,
        told: Callable[[ErrorCode | None], None],
    ) -> bool:
        """Write what an id is from now on; `told` once, with None when it is committed.

        If that cannot be said, the id takes no other transition before the log has the last word.
        Returns whether it is in the log.
        """
        name = one.transactional_id
        one.begin(value)

        def apply() -> None:
            one.settle()
            self._changed(name)
            self._go_on(one)

        refusal = self._write(name, encode_value(value), apply, told)
        if refusal is None:
            return True
        one.give_up()
        if one.is_new and self.transactions.get(name) is one:
            del self.transactions[name]
        self._changed(name)
        # Last: whoever is told may write again, and the id must be free for that.
        told(refusal)
        return False

    def _write(
        self,
        name: str,
        data: bytes | None,
        apply: Callable[[], None],
        told: Callable[[ErrorCode | None], None],
    ) -> ErrorCode | None:
        """Return why it is not in the log, and nobody is told; None if it is."""
        replica = self.replica
        try:
            end = self._append(name, data)
        except (RequestError, StorageError) as error:
            return as_group_error(code_of(error))

        def again(write: Write) -> None:
            if self.is_led:
                self._told_of(write, replica.when_committed(end, write, is_patient=True))

        write = Write(apply, told, partial(self._world.require_standing, replica), again)
        write.wait()
        self._told_of(write, replica.when_committed(end, write))
        return None

    def _told_of(self, write: Write, outcome: ErrorCode | None) -> None:
        if outcome is ErrorCode.NONE:
            write.reached()
        elif outcome is not None:
            write.failed(RequestError(outcome))

    def _append(self, name: str, data: bytes | None) -> Offset:
        """Return where the log ends with this record; raises `RequestError`, `StorageError`."""
        self.require()
        code = self.replica.refusal_of_all()
        if code is not None:
            raise RequestError(code)
        wall_ms = self._world.clock.now_ms()
        batch = build_batch([Record(0, wall_ms, encode_key(name), data)])
        (appended,) = self.replica.append((batch,), now_ms=wall_ms)
        if isinstance(appended, RequestError):
            raise RequestError(appended.code, appended.sentence)
        return Offset(appended.last_offset + 1)
