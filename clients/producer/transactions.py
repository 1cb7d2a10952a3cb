"""Transactions of one producer: what may be done now, and what each answer means. A core.

Writing with a pencil: records go into the log at once, and readers who ask for what is certain
(`isolation.level=read_committed`) see them when the coordinator has gone over them in ink
(commit), or never (abort).

    NEW ──init──▶ READY ──begin──▶ OPEN ──commit──▶ COMMITTING ──▶ READY
                                    │ └──prepare──▶ PREPARED ──commit, abort──▶ …
                                    ├────abort────▶ ABORTING ────▶ READY
                                    └─(a failure)─▶ BROKEN ──abort──▶ ABORTING
    from anywhere: FATAL, for good

T1  a record is sent only in an open transaction, or while one that commits is flushed
T2  a transaction of which a record or an offset was not taken can only be aborted
T3  once the coordinator was asked to commit, nothing else may be asked for: asking again is
    harmless, because it knows the transaction by its producer id and epoch. Before that, while
    records are flushed, it can still be aborted
T4  "not committed" is said only if no attempt to commit may have been taken: after an attempt
    without an answer even a refusal leaves it open (`TransactionUnknownError`)
T5  a prepared transaction is kept, whatever becomes of the producer: it is decided by whoever has
    its name. So a refusal to end it says that somebody else has: never that it was aborted

The two dialects of transactions are told apart in `clients/dialects.py`.

Not here: sockets and clocks (`transacting.py`); what goes out when (`sender.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NoReturn

from ottla.clients.errors import (
    ProducerFencedError,
    TransactionAbortableError,
    TransactionError,
    TransactionFailedError,
    TransactionStateError,
    TransactionUnknownError,
)
from ottla.clients.producer.prepared import PreparedTransaction
from ottla.clients.producer.verdicts import SURELY_NOT_ENDED, Step, Verdict, judge
from ottla.proto.errors import ErrorCode, ensure
from ottla.proto.ids import TopicPartition

_E: Final = ErrorCode


class Phase(StrEnum):
    """Where a producer is in its transactions."""

    NEW = "not initialised: call init_transactions first"
    READY = "between two transactions: call begin first"
    OPEN = "in a transaction"
    BROKEN = "in a transaction that can only be aborted"
    PREPARED = "in a prepared transaction, which waits for commit or abort"
    COMMITTING = "in a transaction that is being committed: call commit again"
    ABORTING = "in a transaction that is being aborted: call abort again"
    FATAL = "of no use any more"


class Transactions:
    """The transactions of one producer, one after another, for as long as it lives."""

    def __init__(self, transactional_id: str, *, is_two_phase: bool = False) -> None:
        self.transactional_id: Final = transactional_id
        # Whether the coordinator lets a transaction wait for as long as it takes (KIP-939).
        self.is_two_phase: Final = is_two_phase
        self.phase = Phase.NEW
        self.is_second_dialect = False
        self.producer_id = -1
        self.epoch = -1
        # The transaction that was prepared before this producer came, if it was to be kept.
        self.found: PreparedTransaction | None = None
        # First dialect: partitions that the coordinator has taken, and those yet to be told.
        self._added: Final = set[TopicPartition]()
        self._wanted: Final = dict[TopicPartition, None]()
        # Whether the coordinator, or a partition, may know of this transaction. If not, it ends
        # without a word to anybody.
        self.has_begun = False
        # Why it is broken, or of no use any more.
        self._error: TransactionError | None = None
        # The sequence numbers of a partition have a gap: another epoch is needed.
        self._needs_epoch = False
        # Whether an attempt to end it may have been taken (T4).
        self._is_in_doubt = False
        # Whether an attempt to end it is under way, or in doubt (T3).
        self._is_asked = False
        # Whether others may decide it (T5).
        self._is_kept = False

    # --- looking ---

    @property
    def needs_epoch(self) -> bool:
        """Whether the abort is complete but for a new epoch, by InitProducerId."""
        return self._needs_epoch and self.phase is Phase.ABORTING and not self.has_begun

    @property
    def is_broken(self) -> bool:
        """Whether nothing of what waits to be sent may be sent any more."""
        return self.phase in (Phase.BROKEN, Phase.ABORTING, Phase.FATAL)

    @property
    def has_open(self) -> bool:
        """Whether there is a transaction that closing the producer should abort."""
        return self.phase in (Phase.OPEN, Phase.BROKEN, Phase.ABORTING) or self._may_turn_back

    @property
    def _may_turn_back(self) -> bool:
        """Whether it was decided to commit, and the coordinator has not heard of that (T3)."""
        return self.phase is Phase.COMMITTING and not self._is_asked and not self._is_kept

    @property
    def prepared(self) -> PreparedTransaction:
        return PreparedTransaction(self.transactional_id, self.producer_id, self.epoch)

    def require_open(self) -> None:
        """Raise unless records and offsets may join a transaction (T1)."""
        if self.phase is not Phase.OPEN:
            self._refuse("something cannot be sent in a transaction")

    def may_write(self, topic: str, partition: int) -> bool:
        """Whether a batch may go there now (T1)."""
        if self.phase not in (Phase.OPEN, Phase.COMMITTING):
            return False
        return self.is_second_dialect or TopicPartition(topic, partition) in self._added

    @property
    def to_add(self) -> list[TopicPartition]:
        """The partitions that the coordinator has to be told of, in the first dialect."""
        return [] if self.is_broken else list(self._wanted)

    def want(self, topic: str, partition: int) -> None:
        """Take that a batch waits for this partition; in the first dialect it has to be added."""
        if self.phase not in (Phase.OPEN, Phase.COMMITTING):
            return
        where = TopicPartition(topic, partition)
        if not self.is_second_dialect and where not in self._added:
            self._wanted[where] = None

    def writing(self) -> None:
        """Take that records leave: a leader may tell the coordinator of the transaction."""
        self.has_begun = True

    # --- the life of a producer ---

    def require_new(self) -> None:
        if self.phase is not Phase.NEW:
            self._refuse("a producer is initialised once")

    def initialised(
        self,
        producer_id: int,
        epoch: int,
        *,
        is_second_dialect: bool,
        found: tuple[int, int] | None = None,
    ) -> None:
        """Take the identity that the coordinator gave, and the transaction that it kept."""
        ensure(
            self.phase is Phase.NEW or self.needs_epoch, "nothing is open", phase=self.phase.name
        )
        self._take_identity(producer_id, epoch)
        self.is_second_dialect = is_second_dialect
        self._begin_anew()
        if found is None:
            self.phase = Phase.READY
        else:
            self.found = PreparedTransaction(self.transactional_id, *found)
            self.phase = Phase.PREPARED
            self.has_begun = self._is_kept = True

    def begin(self) -> None:
        if self.phase is not Phase.READY:
            self._refuse("a transaction cannot begin")
        self._begin_anew()
        self.phase = Phase.OPEN

    def adding(self) -> list[TopicPartition]:
        """Return the partitions to tell of; the coordinator may know of them from here on."""
        wanted = self.to_add
        self.has_begun = self.has_begun or bool(wanted)
        return wanted

    def added(self, codes: Mapping[TopicPartition, ErrorCode]) -> Verdict:
        """Take what the coordinator said of partitions; return what follows for the rest."""
        worst = Verdict.DONE
        for where, code in codes.items():
            verdict = judge(Step.ADD_PARTITIONS, code)
            if verdict is Verdict.DONE:
                self._wanted.pop(where, None)
                self._added.add(where)
            elif verdict > worst:
                worst = verdict
                self._judged(verdict, Step.ADD_PARTITIONS, code, str(where))
        return worst

    def offsets_begun(self) -> None:
        """Take that a group's coordinator may hear of this transaction from here on."""
        self.require_open()
        self.has_begun = True

    def answered(self, step: Step, code: ErrorCode, what: str = "") -> Verdict:
        """Take an answer other than that to an end; return what follows."""
        verdict = judge(step, code)
        self._judged(verdict, step, code, what)
        return verdict

    def record_failed(self, code: ErrorCode | None, sentence: str) -> None:
        """Take that a record of the transaction is not in the log, or perhaps is not (T2)."""
        self._needs_epoch = True
        verdict = Verdict.ABORT if code is None else judge(Step.PRODUCE, code)
        if verdict in (Verdict.FENCED, Verdict.FATAL):
            self._judged(verdict, Step.PRODUCE, code or _E.UNKNOWN_SERVER_ERROR, "")
        else:
            self.broke(sentence, code)

    def broke(self, sentence: str, code: ErrorCode | None = None) -> None:
        """Take that something of the transaction is lost (T2)."""
        if self.phase in (Phase.OPEN, Phase.COMMITTING) and not self._is_in_doubt:
            self.phase = Phase.BROKEN
            self._error = TransactionAbortableError(
                f"the transaction of {self.transactional_id} must be aborted: {sentence}", code
            )

    def _judged(self, verdict: Verdict, step: Step, code: ErrorCode, what: str) -> None:
        told = f"{what + ': ' if what else ''}{code.sentence} ({step.value}: {code.name})"
        if verdict is Verdict.ABORT:
            self.broke(told, code)
        elif verdict is Verdict.FENCED:
            self._end_for_good(ProducerFencedError(self.transactional_id, code))
        elif verdict is Verdict.FATAL:
            self._end_for_good(
                TransactionFailedError(
                    f"the producer {self.transactional_id} cannot go on: {told}", code
                )
            )

    def _end_for_good(self, error: TransactionError) -> None:
        if self.phase is not Phase.FATAL:
            self.phase = Phase.FATAL
            self._error = error

    # --- ends ---

    def require_two_phase(self) -> None:
        if not self.is_two_phase:
            raise TransactionStateError(
                "prepare needs transaction.two.phase.commit.enable=true: without it the coordinator"
                " aborts what it hears nothing of for transaction.timeout.ms."
            )

    def is_prepared(self, prepared: PreparedTransaction) -> bool:
        """Whether this is the transaction that waits; raise if none does."""
        if self.phase is not Phase.PREPARED:
            self._refuse("there is nothing to complete")
        return prepared == (self.found or self.prepared)

    def prepare(self) -> PreparedTransaction | None:
        """Keep the transaction until somebody decides; everything in it was acknowledged (T5).

        None if it is empty: then there is nothing to decide, and it has ended.
        """
        self.require_two_phase()
        self.require_open()
        self._is_kept = self.has_begun
        self.phase = Phase.PREPARED if self.has_begun else Phase.READY
        return self.prepared if self.has_begun else None

    def begin_end(self, *, commit: bool) -> None:
        """Decide; asking for the same again is allowed, asking for the other is not (T3)."""
        wanted = Phase.COMMITTING if commit else Phase.ABORTING
        allowed = {Phase.OPEN, Phase.PREPARED, wanted}
        if not commit:
            allowed |= {Phase.BROKEN, *([Phase.COMMITTING] if self._may_turn_back else [])}
        if self.phase not in allowed:
            self._refuse("commit" if commit else "abort")
        self.phase = wanted
        self._wanted.clear()

    def end_asked(self) -> None:
        """Take that the coordinator is being asked to end the transaction."""
        self._is_asked = True

    def end_given_up(self) -> None:
        """Take that it is not asked any more, for now."""
        self._is_asked = self._is_in_doubt

    def end_lost(self) -> None:
        """Take that an attempt to end the transaction got no answer (T4)."""
        self._is_in_doubt = True

    def end_answered(self, code: ErrorCode, producer_id: int = -1, epoch: int = -1) -> Verdict:
        """Take the answer to EndTxn; return whether to ask again. Raises if it was refused."""
        verdict = judge(Step.END, code)
        if code is _E.INVALID_TXN_STATE and self.phase is Phase.ABORTING and not self._is_kept:
            # There is nothing to abort. A new epoch makes sure that nothing of it comes later.
            self._needs_epoch = True
            self.ended()
            return Verdict.DONE
        if verdict is Verdict.DONE:
            if self.is_second_dialect and producer_id >= 0:
                self._take_identity(producer_id, epoch)
                self._needs_epoch = False
            self.ended()
        elif verdict in (Verdict.AGAIN, Verdict.ELSEWHERE):
            self._is_in_doubt |= code not in SURELY_NOT_ENDED
        else:
            self._refused_end(verdict, code)
        return verdict

    def _refused_end(self, verdict: Verdict, code: ErrorCode) -> NoReturn:
        is_commit = self.phase is Phase.COMMITTING
        if self._is_kept and verdict in (Verdict.FENCED, Verdict.FATAL):
            self._end_for_good(self._decided_elsewhere(code))
        elif is_commit and self._is_in_doubt:
            self._end_for_good(
                TransactionUnknownError(
                    f"an attempt to commit the transaction of {self.transactional_id} got no "
                    f"answer, and the next one: {code.sentence} ({code.name}) Whether it is "
                    "committed is not known.",
                    code,
                )
            )
        elif is_commit and verdict is Verdict.ABORT:
            self.phase = Phase.OPEN
        self._judged(verdict, Step.END, code, "")
        self.raise_error()

    def _decided_elsewhere(self, code: ErrorCode) -> TransactionError:
        name = f"the prepared transaction of {self.transactional_id}"
        if code is _E.INVALID_TXN_STATE and not self._is_in_doubt:
            done = "aborted" if self.phase is Phase.COMMITTING else "committed"
            return TransactionFailedError(
                f"{name} was decided the other way: somebody who has its name has {done} it. This "
                "producer can only be closed.",
                code,
            )
        return TransactionUnknownError(
            f"{name} cannot be ended any more: {code.sentence} ({code.name}) How it was decided is "
            "not known here.",
            code,
        )

    def ended(self) -> None:
        """Take that the transaction has ended as it was decided."""
        ensure(self.phase in (Phase.COMMITTING, Phase.ABORTING), "it ends", phase=self.phase.name)
        self._begin_anew()
        if not self._needs_epoch:
            self.phase = Phase.READY

    def end_unknown(self, waited_s: float, why: str) -> TransactionUnknownError:
        """Return what is told when the time is up; the decision stands, and may be repeated."""
        verb = "commit" if self.phase is Phase.COMMITTING else "abort"
        known = "may or may not have happened" if self._is_in_doubt else "has not happened yet"
        return TransactionUnknownError(
            f"the {verb} of the transaction of {self.transactional_id} {known}: no answer within "
            f"{waited_s:g} s ({why}). Call {verb} again to find out."
        )

    def raise_error(self) -> NoReturn:
        """Raise why the transaction, or the producer, cannot go on."""
        if self._error is None:
            self._refuse("that")
        raise self._error

    def _take_identity(self, producer_id: int, epoch: int) -> None:
        ensure(producer_id >= 0 and epoch >= 0, "an identity was given")
        self.producer_id, self.epoch = producer_id, epoch
        self._needs_epoch = False

    def _begin_anew(self) -> None:
        self._added.clear()
        self._wanted.clear()
        self.has_begun = self._is_in_doubt = self._is_asked = self._is_kept = False
        self._error = None
        self.found = None

    def _refuse(self, what: str) -> NoReturn:
        if self._error is not None and self.phase in (Phase.BROKEN, Phase.FATAL):
            raise self._error
        raise TransactionStateError(
            f"{what}: the producer {self.transactional_id} is {self.phase.value}."
        )
