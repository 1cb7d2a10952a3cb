"""One segment of a log: a file of batches with its two indexes.

    00000000000000368769.log        the batches
    00000000000000368769.index      last offset of a batch → where the batch begins
    00000000000000368769.timeindex  largest timestamp so far → offset of the batch that has it

The number is the base offset: the end of the log when the segment was begun. Only the newest
segment is written to and keeps its file open; older ones are opened when somebody reads.

G1  batches lie one after another from position 0 to `size`, offsets only grow
G2  every offset in the segment is in [base_offset, base_offset + 2³¹)
G3  `write` is the only method that adds bytes, and it adds whole batches

Not here: when to roll, what is durable, what may be read (`log.py`), and what to do about damage
(`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.proto.errors import CorruptionError, ensure
from ottla.proto.ids import INT32_MAX, INT64_MAX, NO_TIMESTAMP, Offset
from ottla.proto.records.header import BatchHeader
from ottla.replication.log.ahead import RoomAhead
from ottla.replication.log.files import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TIME_INDEX_SUFFIX,
    segment_stem,
)
from ottla.replication.log.handles import Handles
from ottla.replication.log.index import Entry, SparseIndex, last_value_in
from ottla.replication.log.index_pair import Indexes
from ottla.replication.log.scan import At, batch_at, walk
from ottla.replication.log.state import Trusted
from ottla.replication.settings import LogSettings
from ottla.replication.storage.ports import Buffer, File, Files

# One for each reader that goes through a segment; more readers than that look batches up.
_BORDERS_MAX = 8
# Size of a batch, its last offset, its largest timestamp.
Note = tuple[int, int, int]


def note_of(header: BatchHeader) -> Note:
    return header.size, header.last_offset, header.max_timestamp


class Segment:
    """One file of batches. Created empty, or loaded; written while newest; then only read."""

    __slots__ = (
        "_ahead",
        "_borders",
        "_files",
        "_handles",
        "_index_interval",
        "_indexed_timestamp",
        "_indexes",
        "_is_counted",
        "_settings",
        "_trusted",
        "_unindexed_bytes",
        "_writer",
        "base_offset",
        "first_append_ms",
        "is_index_full",
        "max_timestamp",
        "max_timestamp_offset",
        "rolls_at_ms",
        "size",
        "stem",
        "suffix",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        base_offset: Offset,
        settings: LogSettings,
        *,
        size: int = 0,
        suffix: str = "",
        handles: Handles | None = None,
    ) -> None:
        self._files = files
        self._settings = settings
        self.base_offset = base_offset
        self.stem = segment_stem(directory, base_offset)
        # "" for a segment in its place, CLEANED_SUFFIX for one that is being made.
        self.suffix = suffix
        # Bytes of whole batches. The file may hold more after a failed write; nobody reads that.
        self.size = size
        self._handles = Handles(files, 1) if handles is None else handles
        self._writer: File | None = None
        self._ahead = RoomAhead(size)
        self._indexes: Indexes | None = None
        # What is known below the recovery point, if that lies here; None: the files tell.
        self._trusted: Trusted | None = None
        # The figures below are right although the indexes are not loaded.
        self._is_counted = False
        # The key of the last entry of the time index, or NO_TIMESTAMP.
        self._indexed_timestamp = NO_TIMESTAMP
        self._index_interval = settings.index_interval_bytes
        # No entry can be added to one of the indexes: the segment is as full as it gets.
        self.is_index_full = False
        self._unindexed_bytes = 0
        # Where readers will go on: batches by their base offset, few of them, forgotten with a cut.
        self._borders: dict[int, At] = {}
        # Of all batches so far. For a segment that was loaded they come from its time index.
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        # When the first batch came, for rolling by age; None before that.
        self.first_append_ms: int | None = None
        self.rolls_at_ms = INT64_MAX

    @property
    def path(self) -> str:
        return self.stem + LOG_SUFFIX + self.suffix

    @property
    def indexes(self) -> Indexes:
        """The indexes, loaded and checked when first asked for, rebuilt if they are damaged."""
        return self._indexes or self._require_indexes()

    def _require_indexes(self) -> Indexes:
        if self._indexes is None:
            loaded = self._loaded()
            if loaded is None or not loaded.fit(self.size):
                return self.rebuild_indexes()
            if not self._recount(loaded, self.size, self._trusted):
                return self.rebuild_indexes()
            self._indexes = loaded
        return self._indexes

    # -- writing -----------------------------------------------------------------------------

    def create(self) -> None:
        """Make the empty files. Their names are durable after the directory was synced."""
        self._writer = self._files.open(self.path, create=True)
        if self._writer.size():
            self._writer.truncate(0)
        self._indexes = Indexes.made(
            self._files, self._index_paths(), self._settings.segment_index_bytes
        )
        for index in (self._indexes.offsets, self._indexes.times):
            index.save(trim=True)

    def writer(self) -> File:
        """Return the file, open for writing."""
        self._writer = self._writer or self._files.open(self.path)
        return self._writer

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    @property
    def is_prepared(self) -> bool:
        """Whether everything is open that `write` needs."""
        return self._writer is not None and self._indexes is not None

    def prepare(self) -> None:
        """Open it, so that `write` opens nothing."""
        self._require_indexes()
        self.writer()

    def write(self, buffers: Sequence[Buffer], notes: Sequence[Note]) -> None:
        """Append whole batches; there is a note for each (G3)."""
        indexes = self._indexes or self._require_indexes()
        position = self.size
        file = self._writer or self.writer()
        file.write_at(position, buffers)
        self.size = size = self._take(indexes, position, notes)
        if size >= self._ahead.due_at:
            self._ahead.ask(file, size, self._settings.segment_bytes)

    def _take(self, indexes: Indexes, position: int, notes: Sequence[Note]) -> int:
        """Take note of batches that lie one after another from `position` on; return their end."""
        unindexed_bytes = self._unindexed_bytes
        for size, last_offset, max_timestamp in notes:
            if max_timestamp > self.max_timestamp:
                self.max_timestamp = max_timestamp
                self.max_timestamp_offset = last_offset
            if unindexed_bytes > self._index_interval:
                offsets, times = indexes.offsets, indexes.times
                offsets.append(last_offset - self.base_offset, position)
                if self.max_timestamp > self._indexed_timestamp:
                    self._note_time(times)
                self.is_index_full = offsets.room <= 0 or times.room <= 0
                unindexed_bytes = 0
            unindexed_bytes += size
            position += size
        self._unindexed_bytes = unindexed_bytes
        return position

    def _note_time(self, times: SparseIndex) -> None:
        if self.max_timestamp > self._indexed_timestamp:
            times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._indexed_timestamp = self.max_timestamp

    def seal(self) -> None:
        """Finish the indexes: no batch will be added any more. The file stays open until synced."""
        indexes = self.indexes
        self._note_time(indexes.times)
        indexes.offsets.save(trim=True)
        indexes.times.save(trim=True)
        self._ahead.give_back(self.writer)

    def release(self) -> None:
        """Give file and maps back; the next reader opens it again.

        The file is let go, not closed: a job on another thread may be syncing it. It closes with
        its last user.
        """
        if self._writer is not None:
            self._ahead.give_back(self.writer)
            self._writer = None
        self._forget_maps()

    def _forget_maps(self) -> None:
        # A map costs a descriptor too.
        if self._indexes is not None:
            self._indexes.offsets.forget_map()
            self._indexes.times.forget_map()

    # -- reading -----------------------------------------------------------------------------

    def reader(self) -> File:
        return self._writer or self._handles.open(self.path, self._forget_maps)

    def find(self, offset: Offset) -> At | None:
        """Return the first batch that holds `offset` or lies above it, if there is one."""
        known = self._borders.get(offset)
        if known is not None:
            return known
        entry = self.indexes.offsets.floor(offset - self.base_offset)
        reached = entry.value if entry else 0
        for at in walk(self.reader(), reached, self.size):
            last_offset = at.header.last_offset
            if entry is not None and at.position == entry.value:
                # The same check as in `_start_for`, on the way: this is what every fetch does.
                if last_offset != self.base_offset + entry.key:
                    break
                entry = None
            if last_offset >= offset:
                return at
            reached = at.end_position
        if entry is not None:
            self.rebuild_indexes()
            return self.find(offset)
        self._require_end(reached)
        return None

    def remember(self, border: Entry, file: File) -> None:
        """Note the batch that an entry points to: the next fetch of a reader will ask for it."""
        at = batch_at(file, border.value, self.size)
        # Otherwise the index lies (I2), and whoever looks that batch up will notice.
        if at is not None and at.header.last_offset == self.base_offset + border.key:
            if len(self._borders) >= _BORDERS_MAX:
                del self._borders[next(iter(self._borders))]
            self._borders[at.header.base_offset] = at

    def cut_before(self, offset: Offset) -> tuple[int, Offset]:
        """Return the position where batches that reach `offset` begin, and where the rest ends."""
        reached = self._start_for(Offset(offset - 1))
        end_offset = self.base_offset
        for at in walk(self.reader(), reached, self.size):
            if at.header.last_offset >= offset:
                return at.position, end_offset
            reached, end_offset = at.end_position, at.header.next_offset
        self._require_end(reached)
        return reached, end_offset

    def last_batch(self) -> At | None:
        """Return the newest batch, or raise `CorruptionError` if the file does not end with one."""
        last: At | None = None
        reached = self._start_for(Offset(self.base_offset + INT32_MAX))
        for at in walk(self.reader(), reached, self.size):
            last, reached = at, at.end_position
        self._require_end(reached)
        return last

    def _start_for(self, offset: Offset) -> int:
        """Return a position to walk from: a batch that ends at or below `offset`, or the beginning.

        The index is only a hint (I2): if the batch it points to is not the one it promises, it is
        rebuilt, and nothing is lost.
        """
        entry = self.indexes.offsets.floor(offset - self.base_offset)
        if entry is None:
            return 0
        first = batch_at(self.reader(), entry.value, self.size)
        if first is None or first.header.last_offset != self.base_offset + entry.key:
            entry = self.rebuild_indexes().offsets.floor(offset - self.base_offset)
        return entry.value if entry else 0

    def last_batch_quickly(self) -> At | None:
        """Like `last_batch`, but trusts the last index entry alone: for opening many segments."""
        if self._indexes is None and self._files.exists(self._index_path(INDEX_SUFFIX)):
            start = last_value_in(self._files, self._index_path(INDEX_SUFFIX))
            last: At | None = None
            for at in walk(self.reader(), start, self.size):
                last = at
            if last is not None and last.end_position == self.size:
                return last
        return self.last_batch()

    def newest_timestamp(self) -> int:
        """Return the largest timestamp here, without loading the indexes of an old segment."""
        if self._indexes is None and not self._is_counted:
            loaded = self._loaded()
            if loaded is None or not self._recount(loaded, self.size):
                self.rebuild_indexes()
            self._is_counted = True
        return self.max_timestamp

    def first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, or NO_TIMESTAMP of an empty segment."""
        first = batch_at(self.reader(), 0, self.size)
        return first.header.max_timestamp if first else NO_TIMESTAMP

    def first_possible(self, timestamp: int) -> Offset:
        """Return an offset below which every record is earlier than `timestamp`."""
        entry = self.indexes.times.floor(timestamp - 1)
        if entry is None:
            return self.base_offset
        offset = Offset(self.base_offset + entry.value)
        at = self.find(offset)
        if at is None or (at.header.last_offset, at.header.max_timestamp) != (offset, entry.key):
            # The time index lies as well as the other one can (I2).
            entry = self.rebuild_indexes().times.floor(timestamp - 1)
            return Offset(self.base_offset + entry.value) if entry else self.base_offset
        return offset

    def _require_end(self, reached: int) -> None:
        if reached != self.size:
            raise CorruptionError(
                f"{self.path}: no whole batch at position {reached} of {self.size} bytes"
            )

    # -- cutting and rebuilding ----------------------------------------------------------------

    def truncate(self, position: int, end_offset: Offset) -> None:
        """Cut the file where a batch begins, and the indexes with it; `end_offset` is left."""
        ensure(
            0 <= position <= self.size, "a segment is only cut", position=position, size=self.size
        )
        self._borders.clear()
        self.writer().truncate(position)
        self._ahead.was_cut(position)
        self.size = position
        if position == 0:
            self.first_append_ms, self.rolls_at_ms = None, INT64_MAX
        self._cut_indexes(position, end_offset)

    def _cut_indexes(self, position: int, end_offset: Offset) -> None:
        indexes = self.indexes
        offset_count, time_count = self._entries_below(position, end_offset)
        indexes.offsets.keep_while(offset_count)
        indexes.times.keep_while(time_count)
        if not self._recount(indexes, position):
            self.rebuild_indexes()

    def trusted(self) -> Trusted:
        """Return what is known of the whole segment, for a recovery point at its end."""
        counts = len(self.indexes.offsets), len(self.indexes.times)
        return Trusted(*counts, self.max_timestamp, self.max_timestamp_offset)

    def trusted_below(self, position: int, end_offset: Offset, synced: Trusted | None) -> Trusted:
        """Return what is known of the batches below `position`, of which `synced` were synced."""
        offset_count, time_count = self._entries_below(position, end_offset)
        newest = NO_TIMESTAMP, -1
        for at in walk(self.reader(), 0, position):
            if at.header.max_timestamp > newest[0]:
                newest = at.header.max_timestamp, at.header.last_offset
        if synced is not None:
            offset_count = min(offset_count, synced.index_entries)
            time_count = min(time_count, synced.time_entries)
        return Trusted(offset_count, time_count, *newest)

    def _entries_below(self, position: int, end_offset: Offset) -> tuple[int, int]:
        """Return how many entries of each index are about batches below a cut."""
        offsets, times = self.indexes.offsets, self.indexes.times
        return offsets.count_below(position), times.count_below(end_offset - self.base_offset)

    def resume_at(self, position: int, trusted: Trusted) -> None:
        """Trust the batches below `position` and what is known of them, and nothing beyond.

        What follows is told with `note`, batch by batch.
        """
        self.size = position
        self._borders.clear()
        self._indexes, self._is_counted = None, False
        self._trusted = trusted

    def note(self, at: At) -> None:
        """Take in a batch that is in the file already."""
        ensure(
            at.position == self.size, "batches follow one another", at=at.position, size=self.size
        )
        self.size = self._take(self.indexes, at.position, [note_of(at.header)])

    def rebuild_indexes(self) -> Indexes:
        """Write both indexes anew from the batches in the file, durably (I3).

        Or raise `CorruptionError`, and leave them as they are, if the batches are damaged too.
        """
        self._borders.clear()
        self._require_order()
        indexes = Indexes.made(self._files, self._index_paths(), self._settings.segment_index_bytes)
        for index in (indexes.offsets, indexes.times):
            index.keep_while(0)
            index.save(trim=True)
        self._indexes = indexes
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, -1
        self._unindexed_bytes = 0
        self._indexed_timestamp = NO_TIMESTAMP
        self.is_index_full = False
        for at in walk(self.reader(), 0, self.size):
            self._take(indexes, at.position, [note_of(at.header)])
        self._note_time(indexes.times)
        indexes.offsets.save(trim=True, sync=True)
        indexes.times.save(trim=True, sync=True)
        self._files.sync_dir(self.stem.rpartition("/")[0])
        return indexes

    def _require_order(self) -> None:
        reached, offset = 0, self.base_offset
        for at in walk(self.reader(), 0, self.size):
            last_offset = at.header.last_offset
            if at.header.base_offset < offset or last_offset - self.base_offset > INT32_MAX:
                break
            reached, offset = at.end_position, at.header.next_offset
        self._require_end(reached)

    def _recount(self, indexes: Indexes, end_position: int, trusted: Trusted | None = None) -> bool:
        """Work out the running figures; return False if the time index is not of these batches.

        Unless somebody knows, walks from the batch of the last time entry on: no later one may be
        unknown to us, or a record would be thought older than it is.
        """
        last_entry, last_time = indexes.offsets.last, indexes.times.last
        indexed_to = last_entry.value if last_entry else 0
        self._unindexed_bytes = 0
        self._indexed_timestamp = last_time.key if last_time else NO_TIMESTAMP
        self.is_index_full = indexes.offsets.room <= 0 or indexes.times.room <= 0
        self.max_timestamp = last_time.key if last_time else NO_TIMESTAMP
        time_offset = self.base_offset + last_time.value if last_time else -1
        self.max_timestamp_offset = time_offset
        hint = indexes.offsets.floor(last_time.value) if last_time else None
        start, is_met = hint.value if hint else 0, last_time is None
        if trusted is not None:
            self.max_timestamp, self.max_timestamp_offset = trusted[2:]
            start, is_met = indexed_to, True
        for at in walk(self.reader(), start, end_position):
            if at.position >= indexed_to:
                self._unindexed_bytes += at.header.size
            if at.header.last_offset == time_offset and trusted is None:
                is_met = at.header.max_timestamp == self.max_timestamp
            elif is_met and at.header.max_timestamp > self.max_timestamp:
                self.max_timestamp = at.header.max_timestamp
                self.max_timestamp_offset = at.header.last_offset
        return is_met

    def _loaded(self) -> Indexes | None:
        bytes_max = self._settings.segment_index_bytes
        return Indexes.loaded(self._files, self._index_paths(), bytes_max, self._trusted)

    def _index_paths(self) -> tuple[str, str]:
        return self._index_path(INDEX_SUFFIX), self._index_path(TIME_INDEX_SUFFIX)

    def _index_path(self, suffix: str) -> str:
        return self.stem + suffix + self.suffix

    # -- names -------------------------------------------------------------------------------

    def paths(self) -> list[str]:
        """The names of its files, the log last: while that is there, the segment is."""
        return [self._index_path(suffix) for suffix in reversed(SUFFIXES)]

    def rename(self, suffix: str) -> None:
        """Give all its files another suffix; the log itself last."""
        targets = [self.stem + kind + suffix for kind in reversed(SUFFIXES)]
        for source, target in zip(self.paths(), targets, strict=True):
            if self._files.exists(source):
                self._files.rename(source, target)
        self.suffix = suffix
        if self._indexes is not None:
            self._indexes.offsets.moved_to(self._index_path(INDEX_SUFFIX))
            self._indexes.times.moved_to(self._index_path(TIME_INDEX_SUFFIX))

    def remove(self) -> None:
        self.release()
        for path in self.paths():
            if self._files.exists(path):
                self._files.remove(path)
