"""What is known of a transactional id, what is asked of it, and what it answers.

Not here: the transitions (`transaction.py`), and Kafka's requests (`node/kafka`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import INT32_MAX, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

# A partition: the name of its topic, and its number.
Place = tuple[str, int]

# Of a producer epoch, as on the wire.
EPOCH_MAX: Final = 2**15 - 1
# The time-out of a transaction that waits for its decision for as long as it takes (KIP-939).
FOR_EVER_MS: Final = INT32_MAX
# How a client ends transactions: with the epoch it began with, or by a new one each time (KIP-890).
OLD_CLIENT: Final = 0
NEW_CLIENT: Final = 2


class State(Enum):
    """How far a transaction is, in Kafka's words and numbers."""

    EMPTY = 0, "Empty"
    ONGOING = 1, "Ongoing"
    PREPARE_COMMIT = 2, "PrepareCommit"
    PREPARE_ABORT = 3, "PrepareAbort"
    COMPLETE_COMMIT = 4, "CompleteCommit"
    COMPLETE_ABORT = 5, "CompleteAbort"

    @property
    def number(self) -> int:
        return self.value[0]

    @property
    def word(self) -> str:
        return self.value[1]

    @property
    def is_decided(self) -> bool:
        """Whether it has been decided, and not every partition has its marker."""
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_commit(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    @property
    def is_complete(self) -> bool:
        return self in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


STATES_BY_NUMBER: Final = {state.number: state for state in State}
STATES_BY_WORD: Final = {state.word: state for state in State}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """All that is known of a transactional id, as the log has it."""

    # Who writes; the markers of a transaction that is decided carry these too.
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[Place] = frozenset()
    # Times of day.
    updated_ms: int
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    # Who goes on when the transaction is complete; -1: the same.
    next_producer_id: int = NO_PRODUCER_ID
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_version: int = OLD_CLIENT
    # The epoch that the producer knew before its last one: then it has asked twice. Not in the log.
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    @property
    def holder(self) -> tuple[int, int]:
        """Return id and epoch of who goes on: the producer, unless another one has been named."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return self.producer_id, self.producer_epoch
        return self.next_producer_id, max(0, self.next_producer_epoch)

    @property
    def is_kept(self) -> bool:
        """Whether a successor has taken the transaction over, and not decided it yet."""
        return self.state is State.ONGOING and self.next_producer_id != NO_PRODUCER_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Init:
    """A producer wants to hold a transactional id."""

    timeout_ms: int
    # Id and epoch that it had, if it goes on after an error.
    expected: tuple[int, int] | None = None
    # An open transaction is not aborted, but taken over (KIP-939).
    keeps_prepared: bool = False
    # Two phases are off: nothing is begun, but what waits for its decision can get one.
    only_kept: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The answer is an error."""

    code: ErrorCode


@dataclass(frozen=True, slots=True)
class Told:
    """The answer is yes, with what the producer is from now on."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    # Of the transaction that was kept.
    ongoing: tuple[int, int] = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class WriteValue:
    """Write this to the log, and give the answer when it is committed."""

    value: TransactionValue
    answer: Told | Refused


@dataclass(frozen=True, slots=True)
class NeedsId:
    """Nothing is decided without a new producer id: ask again with one."""


Decision = Refused | Told | WriteValue | NeedsId
