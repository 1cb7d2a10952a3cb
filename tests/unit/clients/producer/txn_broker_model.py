"""A naive cluster with one coordinator of transactions, in both dialects, as Kafka describes them.

The same object is coordinator and leader of all partitions, knows no time and keeps everything in
lists. Markers are written by `tick`, not at once: until then the next transaction has to wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from ottla.proto.errors import ErrorCode

E = ErrorCode


class Txn(Enum):
    """The states of a coordinator that matter here."""

    EMPTY = auto()
    ONGOING = auto()
    ENDING = auto()
    ENDED = auto()


@dataclass
class Written:
    """A batch of a transaction, or the marker of its end."""

    epoch: int
    values: list[bytes]
    # None: records; else whether the marker commits.
    commits: bool | None = None


@dataclass
class Log:
    """One partition, with what it knows of the one producer."""

    entries: list[Written] = field(default_factory=list)
    epoch: int = -1
    # Sequence number that comes next, and the batches by theirs.
    next_sequence: int = 0
    batches: dict[tuple[int, int], int] = field(default_factory=dict)

    def committed(self) -> list[bytes]:
        """Return what a reader of committed records is given."""
        found, waiting = list[bytes](), list[bytes]()
        for entry in self.entries:
            if entry.commits is None:
                waiting += entry.values
            else:
                found += waiting if entry.commits else []
                waiting = []
        return found


class Cluster:
    """One transactional id, its coordinator, and some partitions."""

    PRODUCER_ID = 7

    def __init__(self, partitions: int, *, second: bool) -> None:
        self.second = second
        self.logs = [Log() for _ in range(partitions)]
        self.epoch = -1
        self.state = Txn.EMPTY
        self.members = set[int]()
        self.result = False

    # --- the coordinator ---

    def init(self, epoch: int) -> tuple[ErrorCode, int]:
        if epoch >= 0 and epoch != self.epoch:
            return E.PRODUCER_FENCED, -1
        if self.state is Txn.ENDING:
            return E.CONCURRENT_TRANSACTIONS, -1
        if self.state is Txn.ONGOING:
            self._decide(commit=False, bump=True)
            return E.CONCURRENT_TRANSACTIONS, -1
        self.epoch += 1
        self.state = Txn.EMPTY
        return E.NONE, self.epoch

    def add(self, epoch: int, partitions: list[int]) -> ErrorCode:
        if epoch != self.epoch:
            return E.PRODUCER_FENCED
        if self.state is Txn.ENDING:
            return E.CONCURRENT_TRANSACTIONS
        self.state = Txn.ONGOING
        self.members |= set(partitions)
        return E.NONE

    def end(self, epoch: int, *, commit: bool) -> tuple[ErrorCode, int]:
        """Return the code, and in the second dialect the next epoch."""
        is_repeat = self.second and epoch == self.epoch - 1 and self.state is not Txn.ONGOING
        if epoch != self.epoch and not is_repeat:
            return E.PRODUCER_FENCED, -1
        if self.second and self.state is Txn.ENDING and not is_repeat:
            # The next transaction cannot have begun. Kafka takes who has its epoch for a stranger.
            return E.PRODUCER_FENCED, -1
        if self.state is Txn.ONGOING:
            self._decide(commit=commit, bump=self.second)
            return E.NONE, self.epoch
        if self.state is Txn.EMPTY or (self.second and not is_repeat):
            if commit or not self.second:
                return E.INVALID_TXN_STATE, -1
            self._decide(commit=False, bump=True)
            return E.NONE, self.epoch
        if self.result is not commit:
            return E.INVALID_TXN_STATE, -1
        if self.state is Txn.ENDING:
            return E.CONCURRENT_TRANSACTIONS, -1
        return E.NONE, self.epoch

    def time_out(self) -> None:
        """Abort what is open, as after transaction.timeout.ms."""
        if self.state is Txn.ONGOING:
            self._decide(commit=False, bump=True)

    def tick(self) -> None:
        """Write the markers of what was decided."""
        if self.state is not Txn.ENDING:
            return
        for number in sorted(self.members):
            log = self.logs[number]
            log.entries.append(Written(self.epoch, [], self.result))
            if self.epoch > log.epoch:
                log.epoch, log.next_sequence = self.epoch, 0
        self.members.clear()
        self.state = Txn.ENDED

    def _decide(self, *, commit: bool, bump: bool) -> None:
        self.state, self.result = Txn.ENDING, commit
        if bump:
            self.epoch += 1

    # --- the leaders ---

    def produce(self, number: int, epoch: int, sequence: int, values: list[bytes]) -> ErrorCode:
        log = self.logs[number]
        if (epoch, sequence) in log.batches:
            return E.NONE
        if epoch < log.epoch:
            return E.INVALID_PRODUCER_EPOCH
        if epoch != self.epoch:
            return E.INVALID_PRODUCER_EPOCH
        if self.state is Txn.ENDING:
            return E.CONCURRENT_TRANSACTIONS
        if number not in self.members:
            if not self.second:
                return E.TRANSACTION_ABORTABLE
            self.state = Txn.ONGOING
            self.members.add(number)
        if epoch > log.epoch:
            log.epoch, log.next_sequence = epoch, 0
        if sequence != log.next_sequence:
            return E.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.next_sequence += len(values)
        log.batches[epoch, sequence] = len(log.entries)
        log.entries.append(Written(epoch, values))
        return E.NONE
