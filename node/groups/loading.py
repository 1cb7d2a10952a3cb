"""From the records of one partition of `__consumer_offsets` to groups and their offsets.

Most of such a log is old news: a group commits the same places again and again. So what is read is
kept in its bytes, the last of each key, and only what is left at the end is taken apart.

L1  records count in the order of the log: the last of a key wins, a tombstone takes it away
L2  a record that cannot be read takes no other key with it; how many there were is told

Not here: reading the log (`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.node.groups.offsets import Offsets
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    decode_group,
    decode_key,
    decode_offset,
)
from ottla.proto.errors import RecordsError
from ottla.proto.records.decode import iterate_records
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, read_batch_length
from ottla.proto.records.validate import validate_stored

# What each key says, last of all; None: a tombstone.
Raw = dict[bytes, bytes | None]


class Piece:
    """What some bytes of the log came to. Made on any thread, taken in by the owner."""

    __slots__ = ("entries", "next_offset", "unreadable")

    def __init__(self, next_offset: int) -> None:
        self.entries: Final[Raw] = {}
        # Where to go on reading.
        self.next_offset = next_offset
        self.unreadable = 0


def decode_piece(data: bytes, first_offset: int) -> Piece:
    """Read whole batches; the last may be cut off, and is read with the next piece.

    Raises what `validate_stored` does: a batch whose checksum is wrong must not pass for the truth.
    """
    piece, at = Piece(first_offset), 0
    view = memoryview(data)
    while len(view) - at >= HEADER_SIZE:
        end = at + LENGTH_END + max(0, read_batch_length(view, at))
        if end > len(view):
            break
        batch = view[at:end]
        header = validate_stored(batch)
        if header.next_offset > first_offset and not header.is_control:
            _read_batch(piece, batch, first_offset)
        piece.next_offset = max(piece.next_offset, header.next_offset)
        at = end
    return piece


def _read_batch(piece: Piece, batch: memoryview, first_offset: int) -> None:
    entries = piece.entries
    try:
        for record in iterate_records(batch):
            if record.offset >= first_offset and record.key is not None:
                entries[record.key] = record.value
    except RecordsError:
        piece.unreadable += 1


class Loaded:
    """Groups and offsets as the log has them."""

    def __init__(self) -> None:
        self.groups: Final[dict[str, GroupValue]] = {}
        self.offsets: Final[dict[str, Offsets]] = {}
        self.unreadable = 0

    def take(self, key: bytes, value: bytes) -> None:
        """Take in the last word on a key."""
        try:
            found = decode_key(key)
            if isinstance(found, GroupKey):
                self.groups[found.group] = decode_group(value)
            elif found is not None:
                place = (found.topic, found.partition)
                kept = decode_offset(value)
                self.offsets.setdefault(found.group, Offsets()).replay({place: kept})
        except RecordsError:
            self.unreadable += 1

    def names(self) -> Iterator[str]:
        """Yield every group that has a generation or an offset."""
        yield from self.groups
        yield from (one for one in self.offsets if one not in self.groups)


class Gathered:
    """The last word on every key, in bytes, as far as the log was read."""

    def __init__(self) -> None:
        self._entries: Final[Raw] = {}
        self._unreadable = 0

    def take(self, piece: Piece) -> None:
        self._unreadable += piece.unreadable
        self._entries.update(piece.entries)

    def loaded(self) -> Loaded:
        """Return what all of it comes to. It takes its time: for a thread, when all is read."""
        loaded = Loaded()
        loaded.unreadable = self._unreadable
        for key, value in self._entries.items():
            if value is not None:
                loaded.take(key, value)
        return loaded


def load(pieces: Iterable[Piece]) -> Loaded:
    gathered = Gathered()
    for piece in pieces:
        gathered.take(piece)
    return gathered.loaded()
