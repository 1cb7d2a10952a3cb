"""Which transactions of a log were aborted: an index for readers who want committed records only.

    00000000000000368769.txnindex   one entry of 34 bytes for each abort marker in that segment:
                                    version int16 (0) · producer id · first offset · offset of the
                                    marker · last stable offset, int64 each

Kafka's format, so that Kafka's tools can read it; as with Kafka there is no file where nothing was
aborted. Entries are kept in memory, 34 bytes each, once somebody has asked for them, and written by
checkpoints.

A1  the entries of a segment are those of its abort markers, in the order of the markers
A2  a file is believed below the recovery point alone, and what lies above is worked out again from
    the batches; an entry below it that cannot be right is damage, and nothing is shown around it
A3  what a checkpoint has written is synced before the recovery point moves (rule 49)

Not here: what is open (`replication/transactions.py`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import Offset
from ottla.replication.log.files import TRANSACTION_INDEX_SUFFIX
from ottla.replication.log.handles import is_shortage
from ottla.replication.log.segment import Segment
from ottla.replication.storage.ports import File, Files
from ottla.replication.transactions import Aborted

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0
_LAST_OFFSET_AT: Final = 18
_LAST_OFFSET: Final = struct.Struct(">q")


class _Entries:
    """The entries of one segment, packed."""

    __slots__ = ("data", "is_saved")

    def __init__(self, data: bytearray, *, is_saved: bool) -> None:
        self.data = data
        # The file holds just these.
        self.is_saved = is_saved

    def __len__(self) -> int:
        return len(self.data) // ENTRY.size

    def last_offset_at(self, slot: int) -> int:
        (value,) = _LAST_OFFSET.unpack_from(self.data, slot * ENTRY.size + _LAST_OFFSET_AT)
        return int(value)

    def first_reaching(self, offset: int) -> int:
        """Return the slot of the first entry whose marker is at or above `offset`."""
        return bisect_left(range(len(self)), offset, key=self.last_offset_at)

    def since(self, offset: int) -> Iterator[Aborted]:
        for slot in range(self.first_reaching(offset), len(self)):
            _, *fields = ENTRY.unpack_from(self.data, slot * ENTRY.size)
            yield Aborted(*fields)


class AbortedTransactions:
    """The aborted transactions of one log. Lives as long as its log."""

    def __init__(self, files: Files, *, trusted_below: Offset) -> None:
        self._files: Final = files
        # Entries in files whose markers are not below were perhaps never synced (A2).
        self._trusted_below = trusted_below
        self._loaded: Final[dict[Offset, _Entries]] = {}

    # ── Looking ───────────────────────────────────────────────────────────────────────────────

    def overlapping(
        self, segments: Iterable[Segment], first: Offset, bound: Offset
    ) -> list[Aborted]:
        """Return those with records in [first, bound), in the order of their first offsets.

        `segments` are those from the one that holds `first` on. A marker may lie far behind the
        records, but not behind the first entry that says that all below `bound` is decided.
        """
        found = list[Aborted]()
        for segment in segments:
            for one in self._of(segment).since(first):
                if one.first_offset < bound:
                    found.append(one)
                if one.last_stable_offset >= bound:
                    return sorted(found, key=lambda one: one.first_offset)
        return sorted(found, key=lambda one: one.first_offset)

    def in_segment(self, segment: Segment) -> list[Aborted]:
        return list(self._of(segment).since(segment.base_offset))

    def _of(self, segment: Segment) -> _Entries:
        entries = self._loaded.get(segment.base_offset)
        if entries is None:
            data, is_saved = self._read(segment)
            entries = self._loaded[segment.base_offset] = _Entries(data, is_saved=is_saved)
        return entries

    def _read(self, segment: Segment) -> tuple[bytearray, bool]:
        path = path_of(segment)
        if not self._files.exists(path):
            return bytearray(), True
        file = self._files.open(path, writable=False)
        try:
            size = file.size()
            data = bytearray(file.read_at(0, size))
        finally:
            file.close()
        count = sound_entries(data, segment.base_offset, self._trusted_below)
        is_whole = count * ENTRY.size == size
        if not is_whole and _is_damaged(data[count * ENTRY.size :], self._trusted_below):
            raise CorruptionError(f"{path} at {count * ENTRY.size}: no entry of an abort marker")
        del data[count * ENTRY.size :]
        return data, is_whole

    # ── Changing ──────────────────────────────────────────────────────────────────────────────

    def add(self, segment: Segment, aborted: Aborted) -> None:
        """Take in a transaction whose abort marker is in the segment; once, however often told."""
        entries = self._of(segment)
        if len(entries) and entries.last_offset_at(len(entries) - 1) >= aborted.last_offset:
            return
        entries.data += ENTRY.pack(_VERSION, *aborted)
        entries.is_saved = False

    def open(self, segments: Sequence[Segment]) -> None:
        """Look at the segments from the recovery point on: their files may hold too much.

        Later, when checkpoints have come further, nobody could tell that from what they wrote.
        """
        for number, segment in enumerate(segments):
            is_last = number + 1 == len(segments)
            if is_last or segments[number + 1].base_offset > self._trusted_below:
                self._of(segment)

    def trust(self, below: Offset) -> None:
        """What was saved is synced, and the recovery point has moved."""
        self._trusted_below = below

    def truncate(self, last: Segment, end_offset: Offset) -> None:
        """Forget what is at or above the end, in the segment that is the last now.

        Its file is put right by the next checkpoint.
        """
        self._of(last)
        self._trusted_below = Offset(min(self._trusted_below, end_offset))
        for entries in self._loaded.values():
            count = entries.first_reaching(end_offset)
            if count < len(entries):
                del entries.data[count * ENTRY.size :]
                entries.is_saved = False

    def forget(self, segments: Iterable[Segment]) -> None:
        """These are no longer part of the log, or other bytes are in their place."""
        for segment in segments:
            self._loaded.pop(segment.base_offset, None)

    def clear(self) -> None:
        self._loaded.clear()
        self._trusted_below = Offset(0)

    # ── Files ─────────────────────────────────────────────────────────────────────────────────

    def save(self, segments: Sequence[Segment]) -> tuple[File, ...]:
        """Write what is not in its file yet; return the files, to be synced and closed (A3)."""
        written = list[File]()
        for segment in segments:
            entries = self._loaded.get(segment.base_offset)
            if entries is None or entries.is_saved:
                continue
            try:
                written.append(write_entries(self._files, path_of(segment), bytes(entries.data)))
            except OSError as error:
                if is_shortage(error):
                    for file in written:
                        file.close()
                raise
            entries.is_saved = True
        return tuple(written)


def path_of(segment: Segment) -> str:
    return segment.stem + TRANSACTION_INDEX_SUFFIX + segment.suffix


def write_entries(files: Files, path: str, data: bytes) -> File:
    """Let the file hold just these entries; return it open."""
    file = files.open(path, create=True)
    if data:
        file.write_at(0, [data])
    if file.size() > len(data):
        file.truncate(len(data))
    return file


def _is_damaged(rest: bytearray, below: int) -> bool:
    """Whether what follows the sound entries was synced once, and is not what was written."""
    if len(rest) < ENTRY.size or not any(rest[: ENTRY.size]):
        # The end of a write that a power cut has torn.
        return False
    version, _, _, marker, _ = ENTRY.unpack_from(rest)
    return version != _VERSION or bool(marker < below)


def packed(aborted: Iterable[Aborted]) -> bytes:
    return b"".join(ENTRY.pack(_VERSION, *one) for one in aborted)


def sound_entries(data: bytes | bytearray, base_offset: int, below: int) -> int:
    """Return how many entries, from the first on, can be right (A2).

    A marker lies behind the first record of its transaction, so zeros are never an entry.
    """
    count, last = 0, base_offset - 1
    for version, producer_id, first, marker, stable in ENTRY.iter_unpack(
        data[: len(data) - len(data) % ENTRY.size]
    ):
        is_sound = (
            version == _VERSION
            and producer_id >= 0
            and 0 <= first < marker
            and last < marker < below
            and stable <= marker + 1
        )
        if not is_sound:
            break
        count, last = count + 1, marker
    return count
