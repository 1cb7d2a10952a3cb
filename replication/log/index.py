"""Sparse indexes of a segment: offset → position, and timestamp → offset.

The tabs of a telephone book: not every name has one, but from the right tab it is a short walk.
Kafka's format (8 and 12 bytes an entry, big-endian), so that Kafka's tools can read them.

Entries are *written* with write(2), a page at a time, and *read* through a memory map. Not written
through the map, as Kafka does: on a full disk a store into a sparse map is a SIGBUS that kills the
process, while a write is an error that takes one log offline (ADR 0005).

I1  keys strictly increase; for the time index the offsets increase with them
I2  an index is a hint: it can always be rebuilt from its segment, and a look-up is checked
    against the batch it points to
I3  entries below the recovery point were synced before it was written (rule 49)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.proto.errors import CorruptionError, ensure
from ottla.replication.log.handles import is_shortage
from ottla.replication.storage.ports import File, Files

_PAGE: Final = 4096
# Below every key.
_NO_KEY: Final = -(2**63) - 1
# By so many entries a guess may be wrong, and still save half of a search.
_NEAR: Final = 4
_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
# Makes an `Entry` in half the time: there is one for every fetch.
_new: Final = tuple.__new__


class Entry(NamedTuple):
    """What an index maps to what. For the time index the value is a relative offset."""

    key: int
    value: int


class SparseIndex:
    """Entries of one file, in key order. Lives as long as its segment."""

    def __init__(
        self, files: Files, path: str, entry: struct.Struct, *, bytes_max: int, saved_bytes: int = 0
    ) -> None:
        self._files: Final = files
        self.path = path
        self._entry: Final = entry
        self._pack: Final = entry.pack
        self._bytes_max: Final = bytes_max
        # Bytes of whole entries in the file. What the file holds beyond is not ours.
        self._saved = saved_bytes - saved_bytes % entry.size
        # Entries that are not in the file yet: less than a page, except while none can be written.
        self._tail = bytearray()
        # How many more entries fit.
        self.room = (bytes_max - self._saved) // entry.size
        self._view: memoryview | None = None
        # None: to be looked up. The key alone, and no `Entry`: nearly every batch has one.
        self._last_key: int | None = None if self._saved else _NO_KEY

    def __len__(self) -> int:
        return (self._saved + len(self._tail)) // self._entry.size

    @property
    def is_full(self) -> bool:
        return self.room <= 0

    @property
    def last(self) -> Entry | None:
        last = self.entry_at(len(self) - 1) if len(self) else None
        # Whoever loads or cuts an index asks: `append` must not have to open the file for it.
        self._last_key = last.key if last else _NO_KEY
        return last

    def append(self, key: int, value: int) -> None:
        last_key = self._last_key
        if last_key is None:
            last_key = last.key if (last := self.last) else _NO_KEY
        if key <= last_key:
            ensure(False, "index keys grow", key=key, last=self.last, path=self.path)
        tail = self._tail
        try:
            tail += self._pack(key, value)
        except struct.error as error:
            # Offsets in the batches that no segment can have.
            raise CorruptionError(f"{self.path}: no entry for {key}, {value}: {error}") from error
        self._last_key = key
        self.room -= 1
        if len(tail) >= _PAGE:
            self._save_if_it_opens()

    def _save_if_it_opens(self) -> None:
        """Save, or keep the entries for later: the batch they are about is in its file already."""
        try:
            self.save()
        except OSError as error:
            if not is_shortage(error):
                raise

    def entry_at(self, slot: int) -> Entry:
        position = slot * self._entry.size
        if position >= self._saved:
            return _new(Entry, self._entry.unpack_from(self._tail, position - self._saved))
        return _new(Entry, self._entry.unpack_from(self._mapped(), position))

    def floor(self, key: int) -> Entry | None:
        """Return the last entry whose key is at most `key`."""
        # The tail holds the newest entries, and most readers are near the end.
        found = _floor(self._tail, len(self._tail), key, self._entry)
        if found is None and self._saved:
            found = _floor(self._mapped(), self._saved, key, self._entry)
        return found

    def entries(self) -> Iterator[Entry]:
        return (self.entry_at(slot) for slot in range(len(self)))

    def count_below(self, value: int) -> int:
        """Return how many entries, from the first on, have a value below `value` (I1)."""
        unpack, width, saved = self._entry.unpack_from, self._entry.size, self._saved
        # Values never fall (I1), so the first of the tail tells in which part to look.
        if saved and (not self._tail or unpack(self._tail)[1] >= value):
            return _count_below(self._mapped(), saved, value, self._entry)
        return saved // width + _count_below(self._tail, len(self._tail), value, self._entry)

    def entry_up_to(self, value: int) -> Entry | None:
        """Return the entry with the largest value that is at most `value`, if there is one (I1)."""
        count = self.count_below(value + 1)
        return self.entry_at(count - 1) if count else None

    def is_ordered(self) -> bool:
        """Return whether I1 holds; a file that was damaged may break it."""
        saved = self._mapped()[: self._saved] if self._saved else b""
        last_key, last_value = -(2**63), -(2**31)
        for part in (saved, self._tail):
            for key, value in self._entry.iter_unpack(part):
                if key <= last_key or value < last_value:
                    return False
                last_key, last_value = key, value
        return True

    def keep_while(self, keep_count: int) -> None:
        """Forget all but the first `keep_count` entries, in memory and in the file."""
        ensure(
            0 <= keep_count <= len(self), "an index is only cut", count=keep_count, has=len(self)
        )
        self._last_key = None
        self.room += len(self) - keep_count
        keep_bytes = keep_count * self._entry.size
        if keep_bytes >= self._saved:
            del self._tail[keep_bytes - self._saved :]
            return
        self._tail.clear()
        self._saved = keep_bytes
        self._view = None
        file = self._files.open(self.path, create=True)
        try:
            file.truncate(keep_bytes)
        finally:
            file.close()

    def save(self, *, sync: bool = False, trim: bool = False) -> None:
        """Write what is not in the file yet; with `sync` make it durable."""
        if not (self._tail or sync or trim):
            return
        file = self._files.open(self.path, create=True)
        try:
            if self._tail:
                file.write_at(self._saved, [bytes(self._tail)])
                self._saved += len(self._tail)
                self._tail.clear()
            if trim and file.size() > self._saved:
                file.truncate(self._saved)
            if sync:
                file.sync()
        finally:
            file.close()

    def open_for_sync(self) -> File:
        """Save, and hand out the file so that another thread can sync it."""
        self.save()
        return self._files.open(self.path, create=True)

    def moved_to(self, path: str) -> None:
        self.path = path
        self._view = None

    def forget_map(self) -> None:
        """Give the memory map back; it comes again when somebody looks something up."""
        self._view = None

    def _mapped(self) -> memoryview:
        view = self._view
        if view is None or len(view) < self._saved:
            file = self._files.open(self.path, writable=False)
            try:
                view = self._view = file.map()
            finally:
                file.close()
        return view


def _floor(
    entries: bytearray | memoryview, size: int, key: int, entry: struct.Struct
) -> Entry | None:
    """Bisect over packed entries. Every fetch comes through here: nothing is made on the way."""
    unpack, width = entry.unpack_from, entry.size
    low, high = 0, size // width
    while low < high:
        middle = (low + high) // 2
        if unpack(entries, middle * width)[0] <= key:
            low = middle + 1
        else:
            high = middle
    return _new(Entry, unpack(entries, (low - 1) * width)) if low else None


def _count_below(
    entries: bytearray | memoryview, size: int, value: int, entry: struct.Struct
) -> int:
    """The same by value: how many lie below. Here comes every fetch that ends inside a segment."""
    unpack, width = entry.unpack_from, entry.size
    low, high = 0, size // width
    if high > 4 * _NEAR:
        # Batches of one topic are much alike: if there are so many entries up to the last value,
        # it is easy to say where this one will be, give or take a few.
        guess = high * value // (unpack(entries, (high - 1) * width)[1] or 1)
        if _NEAR < guess < high - _NEAR:
            at = guess * width
            if unpack(entries, at)[1] < value:
                if unpack(entries, at + width)[1] >= value:
                    # As close as can be, where batches are of one size.
                    return guess + 1
                low = guess + 1
                if unpack(entries, at + _NEAR * width)[1] >= value:
                    high = guess + _NEAR
            else:
                if unpack(entries, at - width)[1] < value:
                    return guess
                high = guess
                if unpack(entries, at - _NEAR * width)[1] < value:
                    low = guess - _NEAR + 1
    while low < high:
        middle = (low + high) // 2
        if unpack(entries, middle * width)[1] < value:
            low = middle + 1
        else:
            high = middle
    return low


def offset_index(files: Files, path: str, *, bytes_max: int, saved_bytes: int = 0) -> SparseIndex:
    """Relative last offset of a batch → the position where that batch begins."""
    return SparseIndex(files, path, _OFFSET_ENTRY, bytes_max=bytes_max, saved_bytes=saved_bytes)


def time_index(files: Files, path: str, *, bytes_max: int, saved_bytes: int = 0) -> SparseIndex:
    """Largest timestamp so far → relative last offset of the batch that has it."""
    return SparseIndex(files, path, _TIME_ENTRY, bytes_max=bytes_max, saved_bytes=saved_bytes)


def last_value_in(files: Files, path: str) -> int:
    """Return where the last entry of an offset index points, read from the file itself."""
    width = _OFFSET_ENTRY.size
    file = files.open(path, writable=False)
    try:
        size = file.size()
        entry = file.read_at(size - size % width - width, width) if size >= width else b""
    finally:
        file.close()
    return max(0, _OFFSET_ENTRY.unpack(entry)[1]) if entry else 0
