"""One transactional id: every transition of it.

A notary. Somebody lays things on the table, one after another, and what lies there is nobody's yet.
"Sold" or "not sold" is entered in the book first, and from then on it is so, whoever dies. Then
each thing gets its label, and the page is closed.

    Empty, Complete… ──add──▶ Ongoing ──commit──▶ PrepareCommit ──all marked──▶ CompleteCommit
                                 │
                                 └──abort, successor, time-out──▶ PrepareAbort ──▶ CompleteAbort
    Empty, Complete… ──init──▶ Empty

The rules are Kafka's for transaction.version 2 (KIP-890), and for older clients those of before.
What is kept for a successor is KIP-939's. Time is an argument, the time of day: it is in the log.

T1  what is decided stays decided: PrepareCommit leads to CompleteCommit and nowhere else, and
    PrepareAbort to CompleteAbort
T2  an id and epoch that was fenced changes nothing any more: epochs of a producer id only grow
T3  one transition at a time: while one is being written, nobody begins another
T4  a transaction is complete when every partition of it has its marker, not before
T5  a transaction that waits for its decision for ever (two phases) is not aborted by time, nor by a
    successor that keeps it

Not here: writing the log (`ledger.py`), markers on their way (`markers.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from ottla.node.transactions.words import (
    EPOCH_MAX,
    FOR_EVER_MS,
    NEW_CLIENT,
    OLD_CLIENT,
    Decision,
    Init,
    NeedsId,
    Place,
    Refused,
    State,
    Told,
    TransactionValue,
    WriteValue,
)
from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

_BUSY: Final = Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
_FENCED: Final = Refused(ErrorCode.PRODUCER_FENCED)
_OTHER_ID: Final = Refused(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_WRONG_STATE: Final = Refused(ErrorCode.INVALID_TXN_STATE)
NO_TWO_PHASES: Final = Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def is_exhausted(epoch: int) -> bool:
    """Whether a producer id has no further epoch to give: the last one is for fencing."""
    return epoch >= EPOCH_MAX - 1


class Transaction:
    """A transactional id and its transaction. Belongs to one thread."""

    __slots__ = ("pending", "transactional_id", "unmarked", "value")

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id: Final = transactional_id
        # As the log has it, committed.
        self.value = value
        # On its way to the log (T3).
        self.pending: TransactionValue | None = None
        # Partitions of a decided transaction that may lack their marker.
        self.unmarked: set[Place] = set(value.partitions) if value.state.is_decided else set()

    @classmethod
    def new(
        cls, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Return one that the log does not know: it has no epoch yet."""
        value = TransactionValue(
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
        return cls(transactional_id, value)

    @property
    def is_new(self) -> bool:
        """Whether nothing of it was ever written."""
        return self.value.producer_epoch == NO_PRODUCER_EPOCH

    # ── The door ──────────────────────────────────────────────────────────────────────────────

    def begin(self, value: TransactionValue) -> None:
        """Take note that this is in the log, and not committed yet."""
        ensure(self.pending is None, "one transition at a time", id=self.transactional_id)
        before = self.value.state
        ensure(
            not before.is_decided or (value.state.is_complete and not self.unmarked),
            "what is decided is completed, when every partition has its marker",
            id=self.transactional_id,
        )
        ensure(
            not before.is_decided or before.is_commit == value.state.is_commit,
            "what is decided stays decided",
            id=self.transactional_id,
        )
        self.pending = value

    def settle(self) -> None:
        """What was begun is committed."""
        ensure(self.pending is not None, "something was begun", id=self.transactional_id)
        if self.pending is not None:
            self.value, self.pending = self.pending, None
            self.unmarked = set(self.value.partitions) if self.value.state.is_decided else set()

    def give_up(self) -> None:
        """What was begun was refused, and is not in the log."""
        self.pending = None

    def marked(self, places: Iterable[Place]) -> bool:
        """These partitions have their marker; return whether all have."""
        self.unmarked.difference_update(places)
        return not self.unmarked

    # ── Holding the id ────────────────────────────────────────────────────────────────────────

    def init(self, wish: Init, now_ms: int, fresh: int | None = None) -> Decision:
        """Give the id to a producer; `fresh` is a producer id that nobody had."""
        value = self.value
        if self.pending is not None:
            return _BUSY
        if wish.only_kept and not (wish.keeps_prepared and self._waits):
            return NO_TWO_PHASES
        if wish.expected is not None and not self._may_go_on(*wish.expected):
            return _FENCED
        if value.state.is_decided:
            return _BUSY
        if value.state is State.ONGOING:
            if wish.expected is not None and not self._may_end(wish, wish.expected):
                return _FENCED
            if wish.keeps_prepared:
                return self._keep(wish, now_ms, fresh)
            # The producer asks again; when the abort is complete, its epoch is a new one.
            return WriteValue(self._fenced(now_ms), _BUSY)
        return self._given(wish, now_ms, fresh)

    def _may_end(self, wish: Init, expected: tuple[int, int]) -> bool:
        """Whether who says that it had this id and epoch may end or keep what is open now (T2).

        Somebody who was fenced, or whose request comes late, must not: here we are stricter than
        Kafka. To keep it, one may name the transaction itself as well as who holds it.
        """
        value = self.value
        is_named = expected == (value.producer_id, value.producer_epoch)
        return expected == value.holder or (wish.keeps_prepared and is_named)

    @property
    def _waits(self) -> bool:
        """Whether a transaction is open that nothing but a decision ends (T5)."""
        return self.value.state is State.ONGOING and self.value.timeout_ms == FOR_EVER_MS

    def _may_go_on(self, producer_id: int, epoch: int) -> bool:
        value = self.value
        if self.is_new or producer_id in (value.producer_id, value.holder[0]):
            return True
        # Asked twice: the answer with the new id was lost.
        return producer_id == value.previous_producer_id and is_exhausted(epoch)

    def _given(self, wish: Init, now_ms: int, fresh: int | None) -> Decision:
        value = self.value
        producer_id, epoch = value.producer_id, value.producer_epoch
        expected = None if wish.expected is None else wish.expected[1]
        last: int
        if expected not in (None, epoch) and not self.is_new:
            if expected != value.last_producer_epoch or expected == NO_PRODUCER_EPOCH:
                return _FENCED
            # It asked before, and did not hear the answer.
            last = value.last_producer_epoch
        else:
            last = NO_PRODUCER_EPOCH if expected is None else epoch
            if is_exhausted(epoch):
                if fresh is None:
                    return NeedsId()
                producer_id, epoch = fresh, 0
            else:
                epoch += 1
        given = self._next(
            state=State.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=wish.timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIMESTAMP,
            updated_ms=now_ms,
        )
        return WriteValue(given, Told(producer_id, epoch))

    def _keep(self, wish: Init, now_ms: int, fresh: int | None) -> Decision:
        """Let a successor hold the id, and leave the open transaction to it (T5)."""
        value = self.value
        producer_id, epoch = value.holder
        # Room for the epoch that ends it, too.
        if is_exhausted(epoch + 2):
            if fresh is None:
                return NeedsId()
            producer_id, epoch = fresh, -1
        kept = self._next(
            next_producer_id=producer_id,
            next_producer_epoch=epoch + 1,
            timeout_ms=wish.timeout_ms,
            updated_ms=now_ms,
        )
        ongoing = value.producer_id, value.producer_epoch
        return WriteValue(kept, Told(producer_id, epoch + 1, ongoing))

    # ── What belongs to it ────────────────────────────────────────────────────────────────────

    def add(
        self, producer_id: int, epoch: int, places: frozenset[Place], now_ms: int, version: int
    ) -> Decision:
        """Take partitions into the transaction, which begins with the first."""
        refusal = self._writer_refusal(producer_id, epoch)
        if refusal is not None:
            return refusal
        value = self.value
        if self.pending is not None or value.state.is_decided:
            return _BUSY
        is_ongoing = value.state is State.ONGOING
        if is_ongoing and places <= value.partitions:
            return Told()
        added = self._next(
            state=State.ONGOING,
            partitions=value.partitions | places,
            started_ms=value.started_ms if is_ongoing else now_ms,
            updated_ms=now_ms,
            client_version=version,
        )
        return WriteValue(added, Told())

    def verify(
        self, producer_id: int, epoch: int, places: Iterable[Place]
    ) -> Refused | dict[Place, ErrorCode]:
        """Return for each partition whether it belongs to the transaction.

        What is on its way to the log does not count, in either direction: the partition's leader
        looks again when it appends (rule 64b).
        """
        refusal = self._writer_refusal(producer_id, epoch)
        if refusal is not None:
            return refusal
        if self.value.state.is_decided:
            return _BUSY
        known = self.value.partitions
        return {
            place: ErrorCode.NONE if place in known else ErrorCode.TRANSACTION_ABORTABLE
            for place in places
        }

    def _writer_refusal(self, producer_id: int, epoch: int) -> Refused | None:
        value = self.value
        if value.is_kept:
            # It was prepared, so nobody adds to it; who holds it decides it first.
            return _WRONG_STATE if (producer_id, epoch) == value.holder else _FENCED
        # While what is decided gets its markers, the next one belongs to who was told so already.
        holder = value.holder
        if self.is_new or producer_id != holder[0]:
            return _OTHER_ID
        return None if epoch == holder[1] else _FENCED

    # ── How it ends ───────────────────────────────────────────────────────────────────────────

    def end(
        self,
        producer_id: int,
        epoch: int,
        now_ms: int,
        *,
        is_commit: bool,
        version: int = OLD_CLIENT,
        fresh: int | None = None,
    ) -> Decision:
        """Decide it, on the word of its producer."""
        if self.is_new:
            return _OTHER_ID
        is_new_client = version >= NEW_CLIENT
        is_retry = is_new_client and self._is_retry(producer_id, epoch)
        refusal = self._ender_refusal(producer_id, epoch, is_retry=is_retry)
        if refusal is not None:
            return refusal
        if self.pending is not None:
            return _BUSY
        state = self.value.state
        if state is State.ONGOING:
            return self._decide(now_ms, is_commit=is_commit, version=version, fresh=fresh)
        if state.is_decided:
            # Who has the new epoch already means its next transaction, and is too early.
            is_next = is_new_client and not is_retry
            return _BUSY if is_next or state.is_commit == is_commit else _WRONG_STATE
        if not is_new_client:
            is_known = state.is_complete and state.is_commit == is_commit
            return Told() if is_known else _WRONG_STATE
        if is_retry:
            return Told(*self.value.holder) if state.is_commit == is_commit else _WRONG_STATE
        if is_commit:
            return _WRONG_STATE
        # A transaction without a partition is aborted, for the sake of the epoch.
        return self._decide(now_ms, is_commit=False, version=version, fresh=fresh)

    def _is_retry(self, producer_id: int, epoch: int) -> bool:
        """Whether this is what the producer was before its last transaction was decided."""
        value = self.value
        if value.client_version < NEW_CLIENT:
            # Whoever ended it kept its epoch. The one before is that of somebody it has fenced, who
            # would be told to go on as its successor (T2).
            return False
        if value.state.is_decided and value.next_producer_epoch > 0:
            return (producer_id, epoch + 1) == value.holder
        if not (value.state.is_decided or value.state.is_complete):
            return False
        # Who ends the last transaction of a producer id is given another one. If none was given,
        # the last epoch is that of a successor who has fenced it (T2).
        is_fenced = epoch + 1 == EPOCH_MAX and value.next_producer_id == NO_PRODUCER_ID
        is_next = (producer_id, epoch + 1) == (value.producer_id, value.producer_epoch)
        if value.state.is_decided or is_next:
            return is_next and not is_fenced
        is_last = epoch == EPOCH_MAX - 1 and value.producer_epoch == 0
        return is_last and producer_id == value.previous_producer_id

    def _ender_refusal(self, producer_id: int, epoch: int, *, is_retry: bool) -> Refused | None:
        value = self.value
        if is_retry:
            return None
        holder = value.holder
        if value.state.is_decided:
            # A new client holds the next epoch already; Kafka takes it for a stranger until all is
            # marked, and nothing speaks for that. The epoch of the markers is that of an old
            # client, which is the holder then, or of one whose transaction was taken over.
            if (producer_id, epoch) == holder:
                return None
            ids = {holder[0], value.producer_id}
            return _FENCED if producer_id in ids else _OTHER_ID
        if producer_id != holder[0]:
            return _OTHER_ID
        return None if epoch == holder[1] else _FENCED

    def _decide(self, now_ms: int, *, is_commit: bool, version: int, fresh: int | None) -> Decision:
        value = self.value
        is_new_client = version >= NEW_CLIENT
        epoch, next_id = value.producer_epoch, value.next_producer_id
        next_epoch, last = value.next_producer_epoch, value.last_producer_epoch
        if is_new_client:
            last = value.holder[1]
            if value.is_kept:
                next_epoch += 1
            elif is_exhausted(epoch):
                if fresh is None:
                    return NeedsId()
                next_id, next_epoch = fresh, 0
            epoch = min(epoch + 1, EPOCH_MAX)
        decided = self._next(
            state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            producer_epoch=epoch,
            next_producer_id=next_id,
            next_producer_epoch=next_epoch,
            last_producer_epoch=last,
            started_ms=value.started_ms if value.state is State.ONGOING else now_ms,
            partitions=value.partitions if value.state is State.ONGOING else frozenset(),
            updated_ms=now_ms,
            client_version=version,
        )
        return WriteValue(decided, Told(*decided.holder) if is_new_client else Told())

    def _fenced(self, now_ms: int) -> TransactionValue:
        """Return the abort that nobody who wrote so far has a part in (T2).

        Two epochs further, as Kafka's: one would be what the producer itself gets by ending it, and
        a producer that is late would take the abort for its own.
        """
        value = self.value
        next_epoch = value.next_producer_epoch
        if value.is_kept:
            next_epoch = min(next_epoch + 2, EPOCH_MAX)
        return self._next(
            state=State.PREPARE_ABORT,
            producer_epoch=min(value.producer_epoch + 2, EPOCH_MAX),
            next_producer_epoch=next_epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            updated_ms=now_ms,
            client_version=NEW_CLIENT,
        )

    def complete(self, now_ms: int) -> TransactionValue:
        """Return what is to be written when every partition has its marker (T4)."""
        value = self.value
        ensure(value.state.is_decided and not self.unmarked, "every partition has its marker")
        producer_id, epoch = value.holder
        is_commit = value.state is State.PREPARE_COMMIT
        return self._next(
            state=State.COMPLETE_COMMIT if is_commit else State.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=frozenset(),
            updated_ms=now_ms,
        )

    # ── Time ──────────────────────────────────────────────────────────────────────────────────

    def time_out(self, now_ms: int) -> WriteValue | None:
        """Return the abort of a transaction that took too long, or None (T5)."""
        value = self.value
        if self.pending is not None or value.state is not State.ONGOING:
            return None
        if value.timeout_ms == FOR_EVER_MS or value.started_ms + value.timeout_ms > now_ms:
            return None
        return WriteValue(self._fenced(now_ms), Told())

    def is_expired(self, now_ms: int, keep_ms: int) -> bool:
        """Whether nobody has used the id for so long that it may be forgotten."""
        value = self.value
        if self.pending is not None or self.is_new:
            return False
        is_idle = value.state is State.EMPTY or value.state.is_complete
        return is_idle and value.updated_ms + keep_ms <= now_ms

    def _next(self, **changes: Any) -> TransactionValue:
        known = {"previous_producer_id": self.value.producer_id, **changes}
        return replace(self.value, **known)
