"""Where a consumer stands in each of its partitions, and what of it has been fetched and not given
out. One object per partition, one door per change.

A reader with several books open: a bookmark in each (position), the pages torn out and not yet read
(chunks), and a slip in those laid aside (paused). Whoever moves a bookmark throws the torn-out
pages away.

N1  records are given out in order of offsets, each once between two seeks
N2  the position is the offset after the last record given out. The *processed* position follows it
    when the program comes back for more: only then it is known that it has done with the records.
    What commits by itself commits that one
N3  a seek, an assignment or a revocation makes everything fetched before it void: `turn` tells an
    answer to an old question from one to the present
N4  what is paused is neither asked for nor given out, and keeps what was fetched
N5  what waits to be given out has at most `CHUNKS_MAX` chunks in a partition; the sum of bytes is
    bounded by whoever asks (`fetching.py`)
N6  a partition without a position is *lost*: nothing is fetched until it has one again, from a
    seek, from what is committed or from the reset policy
N7  who is told of damage is given no record by that call: what comes before it is given out first

Not here: asking brokers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from ottla.clients.consumer.decoding import AbortedFilter, decode_fetched
from ottla.clients.consumer.record import EARLIEST_TIME, LATEST_TIME, OffsetAndMetadata, Record
from ottla.proto.errors import ErrorCode, RequestError, ensure
from ottla.proto.ids import TopicPartition

CHUNKS_MAX: Final = 2
# So many records of a chunk are made at once, or as many as the batch has that reaches this.
PORTION: Final = 500
NO_OFFSET: Final = -1


class Reset(Enum):
    """What `auto.offset.reset` says to do where there is no position."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"

    @property
    def time(self) -> int:
        ensure(self is not Reset.NONE, "there is no time to look up for none")
        return EARLIEST_TIME if self is Reset.EARLIEST else LATEST_TIME


@dataclass(slots=True)
class Chunk:
    """What one fetch brought for one partition, opened portion by portion when it is needed."""

    data: memoryview
    aborted: AbortedFilter | None = None
    # Where the portion begins that is opened next.
    at: int = 0


@dataclass(slots=True)
class Bookmark:
    """One partition of this consumer."""

    partition: TopicPartition
    # The next offset to give out; None: lost (N6).
    position: int | None = None
    # What was given out before the last time the program came for more (N2).
    processed: int | None = None
    # The last one that was committed, as far as we know.
    committed: int | None = None
    # The next offset to ask a broker for.
    fetch_offset: int = NO_OFFSET
    # The epoch of the last batch opened, or of where the position came from; or -1.
    epoch: int = -1
    # The epoch of the last batch fetched: the next fetch tells it, and a leader whose log parts
    # from what we read says so.
    fetch_epoch: int = -1
    paused: bool = False
    # A time to look up for the position, if one is to be looked up.
    lookup_time: int | None = None
    # The position is to come from what the group has committed.
    awaits_committed: bool = False
    # Cooperative: to be taken away, and not given out any more.
    leaving: bool = False
    is_fetching: bool = False
    chunks: deque[Chunk] = field(default_factory=deque)
    # The chunk that is given out from, while it has portions that are not opened.
    opened: Chunk | None = None
    # The opened portion, and how many of its records have been given out.
    records: list[Record] = field(default_factory=list)
    given: int = 0
    # Where the opened portion ends; the position moves there with its last record.
    records_end: int = NO_OFFSET
    high_watermark: int = NO_OFFSET
    start_offset: int = NO_OFFSET
    # Counts the moves of the bookmark (N3).
    turn: int = 0

    @property
    def bytes_waiting(self) -> int:
        # An opened chunk is kept whole until its last portion is opened.
        opened = 0 if self.opened is None else len(self.opened.data)
        return opened + sum(len(chunk.data) for chunk in self.chunks)

    @property
    def wants_fetch(self) -> bool:
        return (
            self.position is not None
            and not self.paused
            and not self.leaving
            and not self.is_fetching
            and self.lookup_time is None
            and len(self.chunks) < CHUNKS_MAX
        )

    @property
    def has_records(self) -> bool:
        """Whether something may be given out now; opening the chunk may still show nothing."""
        if self.paused or self.leaving:
            return False
        return self.given < len(self.records) or self.opened is not None or bool(self.chunks)

    @property
    def lag(self) -> int | None:
        if self.position is None or self.high_watermark < 0:
            return None
        return max(0, self.high_watermark - self.position)

    def move(self, offset: int, *, epoch: int = -1) -> None:
        """Put the bookmark elsewhere. This is the only door for a position from outside."""
        self._void()
        self.position = self.processed = offset
        self.fetch_offset = offset
        self.epoch = self.fetch_epoch = epoch

    def lose(self, lookup_time: int | None) -> None:
        """Take the bookmark out; with a time, the position is to be looked up by it."""
        self._void()
        self.position = self.processed = None
        self.lookup_time = lookup_time

    def _void(self) -> None:
        self.turn += 1
        self.chunks.clear()
        self.opened = None
        self.records = []
        self.given = 0
        self.lookup_time = None
        self.awaits_committed = False
        self.is_fetching = False

    def fetched(self, chunk: Chunk, turn: int) -> bool:
        """Take what a fetch brought; False if the bookmark has moved meanwhile."""
        if turn != self.turn:
            return False
        if len(chunk.data):
            self.chunks.append(chunk)
        return True

    def open_next(self, *, check_crcs: bool) -> None:
        """Open the next portion, if there is one.

        Raises what `decode_fetched` raises, and does so again until `ask_again`.
        """
        chunk = self.opened or (self.chunks.popleft() if self.chunks else None)
        if chunk is None:
            return
        self.opened = chunk
        position = self.position
        ensure(position is not None, "a partition with chunks has a position")
        assert position is not None
        # A portion that cannot be opened is looked at again, by a filter that has not seen it.
        aborted = None if chunk.aborted is None else chunk.aborted.copy()
        decoded = decode_fetched(
            chunk.data,
            self.partition.topic,
            self.partition.partition,
            position,
            check_crcs=check_crcs,
            aborted=aborted,
            start=chunk.at,
            enough=PORTION,
        )
        chunk.at, chunk.aborted = decoded.end, aborted
        self.opened = chunk if decoded.is_portion else None
        self.records, self.given = decoded.records, 0
        self.records_end = decoded.next_offset
        if decoded.leader_epoch >= 0:
            self.epoch = decoded.leader_epoch
        if not decoded.records:
            self.position = decoded.next_offset

    def ask_again(self) -> None:
        """Throw away what could not be opened, with all behind it; the position stays before it.

        A damaged copy may come whole from the next leader.
        """
        position = self.position
        ensure(position is not None, "a partition with chunks has a position")
        assert position is not None
        self.chunks.clear()
        self.opened = None
        self.fetch_offset = position
        self.fetch_epoch = self.epoch
        self.turn += 1
        self.is_fetching = False

    def take(self, count: int) -> list[Record]:
        """Return up to `count` records of the opened portion, and move past them."""
        given = self.given
        records = self.records
        if given == 0 and count >= len(records):
            taken = records
            self.records = []
        else:
            taken = records[given : given + count]
            self.given = given + len(taken)
            if self.given == len(records):
                self.records = []
                self.given = 0
        if taken:
            # Offsets may end in a gap, which belongs to what was given out.
            self.position = taken[-1].offset + 1 if self.records else self.records_end
        return taken

    def processed_offset(self) -> OffsetAndMetadata | None:
        """Return what may be committed without asking the program (N2), or None."""
        if self.processed is None:
            return None
        return OffsetAndMetadata(self.processed, "", self.epoch)


class Lock(AbstractContextManager[object], Protocol):
    """What keeps two threads from changing a bookmark at once; may be taken again by its holder."""

    def acquire(self) -> object: ...
    def release(self) -> object: ...


class _NoLock(nullcontext[None]):
    """For who is alone."""

    def acquire(self) -> None: ...
    def release(self) -> None: ...


class Bookmarks:
    """All partitions of this consumer, and what is ready to be given out."""

    def __init__(self, *, check_crcs: bool, lock: Lock | None = None) -> None:
        self._check_crcs: Final = check_crcs
        # Held by whoever changes a bookmark, where two threads do.
        self.lock: Final = _NoLock() if lock is None else lock
        self.all: Final = dict[TopicPartition, Bookmark]()
        # Whose turn it is to be given out from.
        self._round: Final = deque[Bookmark]()
        self._touched: Final = list[Bookmark]()
        # Whoever sees it grow knows that there may be room for more.
        self.portions_opened = 0

    def __iter__(self) -> Iterator[Bookmark]:
        return iter(self.all.values())

    def __contains__(self, partition: object) -> bool:
        return partition in self.all

    def of(self, partition: TopicPartition) -> Bookmark:
        """Return the bookmark, or raise if the partition is not ours."""
        found = self.all.get(partition)
        if found is None:
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition} is not assigned to this consumer.",
            )
        return found

    def add(self, partitions: Iterable[TopicPartition]) -> list[Bookmark]:
        """Take in those that are new; return them. The others stay as they are."""
        new = []
        for partition in partitions:
            if partition not in self.all:
                bookmark = Bookmark(partition)
                self.all[partition] = bookmark
                self._round.append(bookmark)
                new.append(bookmark)
        return new

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            bookmark = self.all.pop(partition, None)
            if bookmark is not None:
                bookmark.lose(None)
                self._round.remove(bookmark)
                if bookmark in self._touched:
                    self._touched.remove(bookmark)

    def came_back(self) -> None:
        """Note that the program has done with all it was given (N2)."""
        if self._touched:
            for bookmark in self._touched:
                bookmark.processed = bookmark.position
            self._touched.clear()

    @property
    def holds_out(self) -> bool:
        """Whether the program may be working on records at this moment."""
        return bool(self._touched)

    def take(self, count: int) -> list[Record]:
        """Return up to `count` records, partition after partition in turn."""
        out: list[Record] = []
        while len(out) < count:
            bookmark = self._front(has_some=bool(out))
            if bookmark is None:
                break
            taken = bookmark.take(count - len(out))
            if bookmark not in self._touched:
                self._touched.append(bookmark)
            out = out + taken if out else taken
            if not bookmark.records:
                self._round.rotate(-1)
        return out

    def peek(self, *, has_some: bool) -> Record | None:
        """Return the record that `take(1)` would give out now, and leave it where it is (N7)."""
        bookmark = self._front(has_some=has_some)
        return None if bookmark is None else bookmark.records[bookmark.given]

    def _front(self, *, has_some: bool) -> Bookmark | None:
        """Return the bookmark whose turn it is, with an opened portion; None if none has any.

        What cannot be opened is raised and asked for again. Whoever has taken some records already
        would lose them with that: it gets None, and the next call raises (N7).
        """
        for _ in range(len(self._round)):
            bookmark = self._round[0]
            try:
                if self._opened(bookmark):
                    return bookmark
            except Exception:
                if has_some:
                    return None
                bookmark.ask_again()
                raise
            self._round.rotate(-1)
        return None

    def _opened(self, bookmark: Bookmark) -> bool:
        """Return whether the bookmark has an opened portion to give out from."""
        while bookmark.has_records:
            if bookmark.given < len(bookmark.records):
                return True
            self.portions_opened += 1
            bookmark.open_next(check_crcs=self._check_crcs)
        return False

    def next_record(self) -> Record | None:
        """Return one record, or None: `came_back` and `take(1)`, without their lists."""
        if self._round:
            bookmark = self._round[0]
            given = bookmark.given
            if given + 1 < len(bookmark.records) and not (bookmark.paused or bookmark.leaving):
                touched = self._touched
                if len(touched) == 1 and touched[0] is bookmark:
                    bookmark.processed = bookmark.position
                else:
                    self.came_back()
                    touched.append(bookmark)
                record = bookmark.records[given]
                bookmark.given = given + 1
                bookmark.position = record.offset + 1
                return record
        self.came_back()
        taken = self.take(1)
        return taken[0] if taken else None

    @property
    def has_records(self) -> bool:
        return any(bookmark.has_records for bookmark in self._round)

    @property
    def bytes_waiting(self) -> int:
        return sum(bookmark.bytes_waiting for bookmark in self._round)

    def to_commit(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return processed positions that are not committed yet."""
        found = {}
        for partition, bookmark in self.all.items():
            offset = bookmark.processed_offset()
            if offset is not None and offset.offset != bookmark.committed:
                found[partition] = offset
        return found

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where the program stands: what a commit without arguments means."""
        return {
            partition: OffsetAndMetadata(bookmark.position, "", bookmark.epoch)
            for partition, bookmark in self.all.items()
            if bookmark.position is not None
        }
