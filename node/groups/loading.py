"""From the records of one partition that coordinators keep to what they come to.

Most of such a log is old news: a group commits the same places again and again. So what is read is
kept in its bytes, the last of each key, and only what is left at the end is taken apart.

Records of a transaction count when its marker says so, in the place where they are: compaction
knows no other order.

L1  records count in the order of the log: the last of a key wins, a tombstone takes it away
L2  a record that cannot be read takes no other key with it; how many there were is told
L3  what was written in a transaction counts if it was committed, and is known to be undecided
    until then

Not here: reading the log (`reading.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.node.groups.offsets import Offsets
from ottla.node.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from ottla.proto.errors import RecordsError
from ottla.proto.records.control import read_marker
from ottla.proto.records.decode import iterate_records
from ottla.proto.records.header import HEADER_SIZE, LENGTH_END, BatchHeader, read_batch_length
from ottla.proto.records.validate import validate_stored


class Kept(NamedTuple):
    """What a key says, and where; None: a tombstone."""

    offset: int
    value: bytes | None


class Pended(NamedTuple):
    """A record of a transaction."""

    producer_id: int
    key: bytes
    kept: Kept


class Ended(NamedTuple):
    """The marker of a transaction."""

    producer_id: int
    is_commit: bool


# What each key says, last of all.
Raw = dict[bytes, Kept]


class Piece:
    """What some bytes of the log came to. Made on any thread, taken in by the owner."""

    __slots__ = ("entries", "next_offset", "steps", "unreadable")

    def __init__(self, next_offset: int) -> None:
        self.entries: Final[Raw] = {}
        # What transactions wrote, and how they ended, in the order of the log.
        self.steps: Final[list[Pended | Ended]] = []
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
        if header.next_offset > first_offset:
            _read_batch(piece, header, batch, first_offset)
        piece.next_offset = max(piece.next_offset, header.next_offset)
        at = end
    return piece


def _read_batch(piece: Piece, header: BatchHeader, batch: memoryview, first_offset: int) -> None:
    if header.is_control:
        marker = read_marker(batch)
        if marker is not None:
            piece.steps.append(Ended(header.producer_id, marker.is_commit))
        return
    entries, is_pending = piece.entries, header.is_transactional
    try:
        for record in iterate_records(batch):
            key = record.key
            if record.offset < first_offset or key is None:
                continue
            kept = Kept(record.offset, record.value)
            if is_pending:
                piece.steps.append(Pended(header.producer_id, key, kept))
            else:
                entries[key] = kept
    except RecordsError:
        piece.unreadable += 1


class Loaded:
    """Groups and offsets as the log has them."""

    def __init__(self) -> None:
        self.groups: Final[dict[str, GroupValue]] = {}
        self.offsets: Final[dict[str, Offsets]] = {}
        self.unreadable = 0

    def take(self, key: bytes, value: bytes, offset: int) -> None:
        """Take in the last word on a key."""
        try:
            found = decode_key(key)
            if isinstance(found, GroupKey):
                self.groups[found.group] = decode_group(value)
            elif found is not None:
                self._of(found).replay({found.place: decode_offset(value)}, offset)
        except RecordsError:
            self.unreadable += 1

    def take_pending(self, producer_id: int, key: bytes, kept: Kept) -> None:
        """Take in what a transaction says that is not decided (L3)."""
        try:
            found = decode_key(key)
            if isinstance(found, OffsetKey) and kept.value is not None:
                change = {found.place: decode_offset(kept.value)}
                self._of(found).pend(producer_id, change, kept.offset)
        except RecordsError:
            self.unreadable += 1

    def _of(self, key: OffsetKey) -> Offsets:
        return self.offsets.setdefault(key.group, Offsets())

    def names(self) -> Iterator[str]:
        """Yield every group that has a generation or an offset."""
        yield from self.groups
        yield from (one for one in self.offsets if one not in self.groups)


class Gathered:
    """The last word on every key, in bytes, as far as the log was read."""

    def __init__(self) -> None:
        self._entries: Final[Raw] = {}
        self._pending: Final[dict[int, dict[bytes, Kept]]] = {}
        self.unreadable = 0

    def take(self, piece: Piece) -> None:
        """Take in the next piece of the log."""
        self.unreadable += piece.unreadable
        self._entries.update(piece.entries)
        for step in piece.steps:
            if isinstance(step, Pended):
                self._pending.setdefault(step.producer_id, {})[step.key] = step.kept
            else:
                self._end(step)

    def _end(self, ended: Ended) -> None:
        for key, kept in self._pending.pop(ended.producer_id, {}).items():
            known = self._entries.get(key)
            if ended.is_commit and (known is None or known.offset < kept.offset):
                self._entries[key] = kept

    def items(self) -> Iterator[tuple[bytes, bytes, int]]:
        """Yield each key that was not taken away: what it says, and where."""
        for key, (offset, value) in self._entries.items():
            if value is not None:
                yield key, value, offset

    def loaded(self) -> Loaded:
        """Return the groups of it. It takes its time: for a thread, when all is read."""
        loaded = Loaded()
        loaded.unreadable = self.unreadable
        for key, value, offset in self.items():
            loaded.take(key, value, offset)
        for producer_id, entries in self._pending.items():
            for key, kept in entries.items():
                known = self._entries.get(key)
                if known is None or known.offset < kept.offset:
                    loaded.take_pending(producer_id, key, kept)
        return loaded


def load(pieces: Iterable[Piece]) -> Loaded:
    gathered = Gathered()
    for piece in pieces:
        gathered.take(piece)
    return gathered.loaded()
