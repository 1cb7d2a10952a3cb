"""A log that keeps every promise, with faults: what a judge must find nothing wrong with.

One partition, as simple as it can be: a list of records, of which the first so many are committed.
Clients begin and end operations in any order; in between, at a moment of its own, a write is
appended or not. A leader that changes loses any part of what was not committed. Answers get lost,
late writes come long after their client has given up, readers are restarted, old records are
deleted.

`legal_run(seed)` returns the evidence of such a run, as whole as a real one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from ottla.chaos.evidence import Evidence, FinalRead, Record
from ottla.chaos.history import Kind
from tests.unit.chaos.story import HERE, Story

WRITERS: Final = ("a", "b", "c", "d")
READERS: Final = ("r", "s")
_KEYS: Final = 3


@dataclass(slots=True)
class Write:
    """A write that is on its way, from its beginning until nothing can come of it any more."""

    value: str
    acks: int
    # Where the leader has put it; None: nowhere (yet).
    offset: int | None = None


@dataclass(slots=True)
class Log:
    """The cluster, which is one list."""

    dice: Random
    is_idempotent: bool
    story: Story
    records: list[tuple[str, int]] = field(default_factory=list)
    committed: int = 0
    start: int = 0
    epoch: int = 0
    writing: dict[str, Write] = field(default_factory=dict)
    late: list[Write] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    count: int = 0

    @property
    def leader(self) -> int:
        return self.epoch % 3 + 1

    def tell_leader(self) -> None:
        isr = sorted({self.leader, self.leader % 3 + 1})
        # Not in sync, and yet it may lead next: then this run has no unclean elections.
        elr = [(self.leader + 1) % 3 + 1]
        for node in (1, 2, 3):
            self.story.obeyed(node, self.epoch, leader=self.leader, isr=isr, elr=elr)
        self.story.led(self.leader, self.epoch, isr)
        self.tell_committed()

    def tell_committed(self) -> None:
        self.story.traced(self.leader, "committed", high_watermark=self.committed)

    # -- what may happen ---------------------------------------------------------------------------

    def begin_write(self, writer: str) -> None:
        self.count += 1
        write = Write(f"{writer}-{self.count}", self.dice.choice((-1, -1, -1, 1, 0)))
        if self.is_idempotent:
            write.acks = -1
            # What comes late has a number that is not expected any more.
            self.late = [one for one in self.late if not one.value.startswith(f"{writer}-")]
        self.writing[writer] = write
        key = f"k{self.count % _KEYS}"
        self.story.begin(write.value, acks=write.acks, is_idempotent=self.is_idempotent, key=key)

    def append(self, write: Write) -> None:
        write.offset = len(self.records)
        self.records.append((write.value, self.epoch))

    def end_write(self, writer: str) -> None:
        write = self.writing.pop(writer)
        if write.offset is None:
            if self.dice.random() < 0.5:
                self.story.end(write.value, Kind.FAIL, error="NOT_ENOUGH_REPLICAS")
                return
            self.late.append(write)
        if self.may_acknowledge(write) and self.dice.random() < 0.9:
            offset = -1 if self.is_idempotent and self.dice.random() < 0.2 else write.offset
            self.story.end(write.value, Kind.OK, offset=offset, node=self.leader_of(write))
        else:
            self.story.end(write.value, Kind.UNKNOWN, error="REQUEST_TIMED_OUT")

    def may_acknowledge(self, write: Write) -> bool:
        at = write.offset
        if at is None or write.acks == 0:
            return False
        if at >= len(self.records) or self.records[at][0] != write.value:
            return False
        # Only who still leads knows that it is committed.
        return write.acks == 1 or (at < self.committed and self.records[at][1] == self.epoch)

    def leader_of(self, write: Write) -> int:
        return self.records[write.offset or 0][1] % 3 + 1

    def commit(self) -> None:
        self.committed = self.dice.randint(self.committed, len(self.records))
        self.tell_committed()

    def change_leader(self) -> None:
        del self.records[self.dice.randint(self.committed, len(self.records)) :]
        self.epoch += 1
        self.tell_leader()

    def poll(self, reader: str) -> None:
        at = max(self.positions.get(reader, 0), self.start)
        end = min(self.committed, at + self.dice.randint(0, 6))
        self.story.polled({offset: self.records[offset][0] for offset in range(at, end)}, by=reader)
        self.positions[reader] = max(at, end)

    def send_back(self, reader: str) -> None:
        self.story.did("seek", by=reader)
        self.positions[reader] = self.dice.randint(0, self.committed)

    def delete_old(self) -> None:
        self.start = self.dice.randint(self.start, self.committed)

    def come_late(self) -> None:
        if self.late:
            self.append(self.late.pop(self.dice.randrange(len(self.late))))


def legal_run(
    seed: int,
    *,
    steps: int = 200,
    is_idempotent: bool = False,
    is_compacted: bool = False,
    is_deleted: bool = False,
) -> Evidence:
    dice = Random(seed)
    policy = {"cleanup.policy": "compact"} if is_compacted else {}
    if is_deleted:
        policy = {**policy, "retention.bytes": "1000"}
    log = Log(dice, is_idempotent, Story(topics={"t": policy}))
    log.tell_leader()
    for _ in range(steps):
        _step(log, is_deleted=is_deleted)
    for writer in [*log.writing]:
        log.end_write(writer)
    log.committed = len(log.records)
    log.tell_committed()
    _finish(log, is_compacted=is_compacted)
    return log.story.evidence


def _step(log: Log, *, is_deleted: bool) -> None:
    dice = log.dice
    match dice.choices(range(7), (24, 12, 6, 1, 1, 1, 1))[0]:
        case 0:
            writer = dice.choice(WRITERS)
            write = log.writing.get(writer)
            if write is None:
                log.begin_write(writer)
            elif write.offset is None and dice.random() < 0.8:
                log.append(write)
            else:
                log.end_write(writer)
        case 1:
            log.commit()
        case 2:
            log.poll(dice.choice(READERS))
        case 3:
            log.change_leader()
        case 4:
            log.send_back(dice.choice(READERS))
        case 5:
            log.come_late()
        case _:
            if is_deleted:
                log.delete_old()


def _finish(log: Log, *, is_compacted: bool) -> None:
    """Read everything, twice, from the leader and from a replica."""
    left = [
        Record(offset, value, epoch)
        for offset, (value, epoch) in enumerate(log.records)
        if offset >= log.start
    ]
    if is_compacted:
        newest = {_key(one): one.offset for one in left}
        left = [one for one in left if newest[_key(one)] == one.offset or log.dice.random() < 0.4]
    for turn in (1, 2):
        for source in ("leader", "node-2"):
            read = FinalRead(
                place=HERE,
                source=source,
                turn=turn,
                start_offset=log.start,
                high_watermark=len(log.records),
                records=tuple(left),
            )
            log.story.ended(read)
        for node in (1, 2, 3):
            log.story.holds(
                node,
                {at: hash_of(value) for at, (value, _) in enumerate(log.records)},
                end=len(log.records),
                turn=turn,
            )


def _key(record: Record) -> str:
    return f"k{int((record.value or '-0').rpartition('-')[2]) % _KEYS}"


def hash_of(value: str) -> int:
    return sum(value.encode())
