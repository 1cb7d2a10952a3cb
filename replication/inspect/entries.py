"""Index files held against the batches they speak of, in one pass and in little memory.

The walk over a segment tells each check about every batch, in order; the check moves along its
index file like a second finger on the same page.

N1  an offset entry names the position where a batch begins, and that batch's last offset
N2  a time entry names the largest timestamp so far, and the last offset of the batch that has it
N3  entries only grow

Kafka's own files are held to less: where it appends several batches at once (followers, the
cleaner), the entry has the position of the first and the last offset of the last; and older
versions put the offset of a record into the time index, not that of its batch.

Only the first thing that is wrong with a file is told. Not here: whether that matters
(`partition.py`).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.proto.ids import NO_TIMESTAMP
from ottla.replication.log.index import Entry
from ottla.replication.log.scan import At
from ottla.replication.storage.ports import File

OFFSET_ENTRY: Final = struct.Struct(">ii")
TIME_ENTRY: Final = struct.Struct(">qi")
_READ_ENTRIES: Final = 4096


class Complaint(NamedTuple):
    """What is wrong with an index file, from which entry on."""

    slot: int
    sentence: str


def read_entries(file: File, entry: struct.Struct, count: int) -> Iterator[Entry]:
    """Yield the first `count` entries of an index file."""
    for slot in range(0, count, _READ_ENTRIES):
        size = entry.size * min(_READ_ENTRIES, count - slot)
        raw = file.read_at(slot * entry.size, size)
        for pair in entry.iter_unpack(raw[: len(raw) - len(raw) % entry.size]):
            yield Entry._make(pair)


def used_entries(file: File, entry: struct.Struct) -> int:
    """Return how many entries there are before the zeros that Kafka keeps room with.

    Only the first entry of a file can be all zeros and mean it.
    """
    count = file.size() // entry.size
    while count > 1:
        first = max(0, count - _READ_ENTRIES)
        raw = file.read_at(first * entry.size, (count - first) * entry.size).rstrip(b"\0")
        if raw:
            return max(1, first - (-len(raw) // entry.size))
        count = first
    # Nothing but zeros, in a file with room for more than one entry.
    return 0 if file.size() >= 2 * entry.size else count


class IndexCheck(ABC):
    """One index file of one segment. Told of every batch, and then of the end."""

    def __init__(self, entries: Iterator[Entry], base_offset: int, *, exact: bool) -> None:
        self._entries: Final = entries
        self._base: Final = base_offset
        # False for Kafka's files, which mean a little less.
        self._exact: Final = exact
        self._slot = 0
        self._entry = next(entries, None)
        self._last: Entry | None = None
        self.complaint: Complaint | None = None

    @abstractmethod
    def batch(self, at: At) -> None:
        """Take in the next batch of the segment."""

    @abstractmethod
    def skip(self, position: int, next_offset: int | None) -> None:
        """Pass over a damaged batch: what is said of it cannot be held against anything.

        `next_offset` is where the batch behind it begins; None if it is the last one.
        """

    def end(self, *, sealed: bool) -> None:
        """The segment has no more batches; if `sealed`, it never will."""
        if self.complaint is None and self._entry is not None:
            self._complain("points beyond the end of the segment")

    def _advance(self) -> None:
        self._last, self._entry = self._entry, next(self._entries, None)
        self._slot += 1

    def _complain(self, what: str) -> None:
        assert self._entry is not None
        told = self._told(self._entry)
        self.complaint = Complaint(self._slot, f"entry {self._slot} ({told}) {what}")

    @abstractmethod
    def _told(self, entry: Entry) -> str: ...


class OffsetIndexCheck(IndexCheck):
    """N1, and N3 with it: positions of batches only grow."""

    def __init__(self, entries: Iterator[Entry], base_offset: int, *, exact: bool) -> None:
        super().__init__(entries, base_offset, exact=exact)
        # An entry of Kafka's for several batches was met, and its last one is still to come.
        self._is_inside = False

    def batch(self, at: At) -> None:
        entry = self._entry
        if self.complaint is not None or entry is None:
            return
        if not self._is_inside and entry.value != at.position:
            if entry.value < at.position:
                self._complain("points at a position where no batch begins")
            return
        offset, last_offset = self._base + entry.key, at.header.last_offset
        if offset == last_offset:
            self._is_inside = False
            self._advance()
        elif self._exact or offset < last_offset:
            self._complain(f"points at a batch whose last offset is {last_offset}")
        else:
            self._is_inside = True

    def skip(self, position: int, next_offset: int | None) -> None:
        entry = self._entry
        if self.complaint is not None or entry is None:
            return
        ends_here = next_offset is None or self._base + entry.key < next_offset
        if entry.value == position or (self._is_inside and ends_here):
            # With more batches behind it that it covers, Kafka's entry is let go as well.
            self._is_inside = False
            self._advance()

    def _told(self, entry: Entry) -> str:
        return f"offset {self._base + entry.key}, position {entry.value}"


class TimeIndexCheck(IndexCheck):
    """N2 and N3; and that a finished segment's largest timestamp is in its index."""

    def __init__(self, entries: Iterator[Entry], base_offset: int, *, exact: bool) -> None:
        super().__init__(entries, base_offset, exact=exact)
        self._largest = NO_TIMESTAMP

    def batch(self, at: At) -> None:
        self._largest = max(self._largest, at.header.max_timestamp)
        while self.complaint is None and self._entry is not None:
            offset = self._base + self._entry.value
            if offset > at.header.last_offset:
                return
            self._check_entry(at, offset)
            if self.complaint is None:
                self._advance()

    def skip(self, position: int, next_offset: int | None) -> None:
        while self.complaint is None and self._entry is not None:
            if next_offset is not None and self._base + self._entry.value >= next_offset:
                return
            self._largest = max(self._largest, self._entry.key)
            self._advance()

    def _check_entry(self, at: At, offset: int) -> None:
        entry, last = self._entry, self._last
        assert entry is not None
        if last is not None and (entry.key <= last.key or entry.value < last.value):
            self._complain(f"does not come after ({self._told(last)})")
        elif self._exact and offset != at.header.last_offset:
            self._complain("names no last offset of a batch")
        elif entry.key != self._largest:
            self._complain(f"stands where the largest timestamp so far is {self._largest}")
        elif entry.key != at.header.max_timestamp:
            self._complain(f"names a batch whose largest timestamp is {at.header.max_timestamp}")

    def end(self, *, sealed: bool) -> None:
        super().end(sealed=sealed)
        is_behind = self._largest > (self._last.key if self._last else NO_TIMESTAMP)
        if self.complaint is None and sealed and self._exact and is_behind:
            self.complaint = Complaint(
                self._slot, f"the largest timestamp of the segment, {self._largest}, is not in it"
            )

    def _told(self, entry: Entry) -> str:
        return f"timestamp {entry.key}, offset {self._base + entry.value}"
