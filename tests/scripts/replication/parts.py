"""What the small world of copies is made of: records, copies, and what is on its way."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.controller.image import PartitionInfo
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import FIRST_OFFSET, BrokerId, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd, EpochHistory
from ottla.replication.follower import FollowerCore
from ottla.replication.leader import IsrProposal, LeaderCore
from ottla.replication.progress import FetchClaim


class Record(NamedTuple):
    """One record, which is also a batch."""

    epoch: LeaderEpoch
    value: str

    def __str__(self) -> str:
        return f"{self.value}:{self.epoch}"


class Request(NamedTuple):
    """A fetch on its way to a leader."""

    leader: BrokerId | None
    broker_epoch: int
    claim: FetchClaim


class Answer(NamedTuple):
    """The answer to a fetch, on its way back."""

    claim: FetchClaim
    verdict: EpochEnd | ErrorCode | None
    records: tuple[Record, ...] = ()
    high_watermark: Offset = FIRST_OFFSET
    start_offset: Offset = FIRST_OFFSET
    end_offset: Offset = FIRST_OFFSET


@dataclass(slots=True)
class Letter:
    """A proposal on its way to the controller, and the answer once there is one."""

    sender: int
    broker_epoch: int
    proposal: IsrProposal
    # The leader still waits for it.
    is_awaited: bool = True
    code: ErrorCode | None = None


@dataclass(slots=True)
class Waiter:
    """Somebody who waits for acks=all."""

    epoch: LeaderEpoch
    end_offset: Offset
    value: str


@dataclass(slots=True)
class Copy:
    """One replica: its disk, and, while its broker is up, what it is about."""

    number: int
    log: list[Record] = field(default_factory=list)
    epochs: EpochHistory = field(default_factory=EpochHistory)
    synced: int = 0
    high_watermark: Offset = FIRST_OFFSET
    is_fsync: bool = True
    is_up: bool = True
    # Drawn anew when the machine loses power.
    boot: int = 1
    # How many disks it has lost.
    disk: int = 0
    broker_epoch: int = -1
    partition: PartitionInfo | None = None
    leader: LeaderCore | None = None
    follower: FollowerCore | None = None
    requests: deque[Request] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    waiters: list[Waiter] = field(default_factory=list)

    @property
    def end(self) -> Offset:
        return Offset(len(self.log))

    @property
    def held(self) -> Offset:
        return Offset(self.synced if self.is_fsync else len(self.log))

    @property
    def kept(self) -> list[Record]:
        """What is left if the worst happens that the topic's durability covers."""
        return self.log[: self.held]

    def take(self, record: Record) -> None:
        if record.epoch > self.epochs.latest:
            self.epochs.assign(record.epoch, self.end)
        self.log.append(record)

    def cut(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_end(self.end)
        self.synced = len(self.log)
