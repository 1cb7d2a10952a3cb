"""From the records of one partition of `__consumer_offsets` to groups and their offsets.

L1  records count in the order of the log: the last of a key wins, a tombstone takes it away
L2  a record that cannot be read takes nothing else with it; how many there were is told

Not here: reading the log (`ledger.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from ottla.node.groups.offsets import Offsets
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    Key,
    OffsetValue,
    decode_group,
    decode_key,
    decode_offset,
)
from ottla.proto.errors import RecordsError
from ottla.proto.records.decode import iterate_records
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, read_header
from ottla.proto.records.validate import validate_stored

# A key, what it says now (None: a tombstone).
Entry = tuple[Key, GroupValue | OffsetValue | None]


class Piece:
    """What some bytes of the log came to. Made on any thread, taken in by the owner."""

    __slots__ = ("entries", "next_offset", "unreadable")

    def __init__(self, next_offset: int) -> None:
        self.entries: Final[list[Entry]] = []
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
        header = read_header(view, at)
        end = at + LENGTH_END + header.batch_length
        if end > len(view):
            break
        batch = view[at:end]
        validate_stored(batch)
        if header.next_offset > first_offset and not header.is_control:
            _read_batch(piece, batch, first_offset)
        piece.next_offset = max(piece.next_offset, header.next_offset)
        at = end
    return piece


def _read_batch(piece: Piece, batch: memoryview, first_offset: int) -> None:
    try:
        for record in iterate_records(batch):
            if record.offset >= first_offset:
                _read_record(piece, record.key, record.value)
    except RecordsError:
        piece.unreadable += 1


def _read_record(piece: Piece, key: bytes | None, value: bytes | None) -> None:
    try:
        found = None if key is None else decode_key(key)
        if found is None:
            return
        if value is None:
            piece.entries.append((found, None))
        elif isinstance(found, GroupKey):
            piece.entries.append((found, decode_group(value)))
        else:
            piece.entries.append((found, decode_offset(value)))
    except RecordsError:
        # Also a tombstone of a kind that we know is whole, or it is none.
        piece.unreadable += 1


class Loaded:
    """Groups and offsets as the log has them so far."""

    def __init__(self) -> None:
        self.groups: Final[dict[str, GroupValue]] = {}
        self.offsets: Final[dict[str, Offsets]] = {}
        self.unreadable = 0

    def take(self, piece: Piece) -> None:
        self.unreadable += piece.unreadable
        for key, value in piece.entries:
            self._take(key, value)

    def _take(self, key: Key, value: GroupValue | OffsetValue | None) -> None:
        if isinstance(key, GroupKey):
            if isinstance(value, GroupValue):
                self.groups[key.group] = value
            else:
                self.groups.pop(key.group, None)
            return
        offsets = self.offsets.setdefault(key.group, Offsets())
        kept = value if isinstance(value, OffsetValue) else None
        offsets.replay({(key.topic, key.partition): kept})
        if offsets.is_idle:
            del self.offsets[key.group]

    def names(self) -> Iterator[str]:
        """Yield every group that has a generation or an offset."""
        yield from self.groups
        yield from (one for one in self.offsets if one not in self.groups)


def load(pieces: Iterable[Piece]) -> Loaded:
    loaded = Loaded()
    for piece in pieces:
        loaded.take(piece)
    return loaded
