"""Opens a log after any stop, clean or not, and says what it found.

After a storm the lighthouse keeper walks the shore from the last mark he knows to be safe, keeps
what is whole, and throws back what is broken. Below the mark he trusts; if something is broken
*there*, he does not tidy up: he locks the place and calls for help.

R1  nothing below the recovery point is ever cut                                      (rule 55)
R2  above it, the log ends before the first batch that is not sound                   (rule 51)
R3  opening twice gives what opening once gives, also if the first time was cut short
R4  what was found is written again, and durable before it counts as synced and before the
    recovery point moves
R5  an epoch that a lower one follows is not believed: the log ends before it, and claims nothing.
    No checksum covers it, and what it hides may have been acknowledged                  (rule 8)

The work is proportional to what lies above the recovery point, not to the size of the log.
Not here: which partitions exist (`manager.py`).
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Final

from ottla.proto.errors import CorruptionError, StorageError
from ottla.proto.ids import FIRST_OFFSET, LeaderEpoch, Offset
from ottla.replication.epochs import EpochHistory
from ottla.replication.log.files import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SegmentFiles,
    read_names,
    segment_stem,
)
from ottla.replication.log.intents import finish_pending
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace
from ottla.replication.log.rebuild import rebuild_producers
from ottla.replication.log.scan import At, CheckedWalk, walk
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import (
    NOTHING_TRUSTED,
    PartitionState,
    Trusted,
    decode_state,
    new_state,
    partition_key,
    producers_prefix,
    snapshot_offset,
)
from ottla.replication.producers import ProducerStates
from ottla.replication.storage.failpoints import hit

_REWRITE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    # Bytes that were read and checked.
    checked_bytes: int = 0
    # Bytes of whole or broken batches that were thrown away.
    cut_bytes: int = 0
    # Why this replica must not be elected (rule 8), or None.
    damage: str | None = None
    # The store had no readable record of the partition: it has to be written anew.
    is_rebuilt: bool = False
    # Sentences for people.
    notes: list[str] = field(default_factory=list)


def open_log(place: LogPlace, *, now_ms: int) -> tuple[Log, RecoveryReport]:
    """Return the log as the disk has it; offline, with the reason, if it is damaged (R1).

    What was found above the recovery point is not synced yet: `Log.checkpoint` does that (R4), and
    the manager does it for all logs at once.
    """
    return _Opening(place, now_ms).run()


class _Opening:
    """One opening of one log; lives as long as `open_log` runs."""

    def __init__(self, place: LogPlace, now_ms: int) -> None:
        self.place: Final = place
        self.now_ms: Final = now_ms
        self.report: Final = RecoveryReport()
        self.state: PartitionState | None = None
        self.segments: list[Segment] = []
        self.epochs = EpochHistory()
        # The store has no record of this partition, or none that can be read.
        self.is_unknown = False
        # Above it there is no gap in what was looked at.
        self.gaps_below = FIRST_OFFSET
        # Segments that were looked at above the recovery point: to be synced (R4).
        self.touched: list[Segment] = []

    def run(self) -> tuple[Log, RecoveryReport]:
        hit("log.recovery.before")
        try:
            self.state = self._read_state()
            self._load_segments(self._tidy())
            log = self._assemble(self._recover())
        except (StorageError, OSError) as error:
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                # No fault of the disk, and none of this log.
                raise StorageError(f"too many open files (see `ulimit -n`): {error}") from error
            return self._damaged(str(error)), self.report
        hit("log.recovery.after")
        return log, self.report

    # -- what the store knows --------------------------------------------------------------------

    def _read_state(self) -> PartitionState | None:
        try:
            value = self.place.store.get(partition_key(self.place.name))
            return None if value is None else decode_state(self.place.name, value)
        except CorruptionError as error:
            self.report.notes.append(f"{error}; rebuilt from the batches")
            return None

    def _snapshots(self) -> list[Offset]:
        prefix = producers_prefix(self.place.name)
        try:
            return [snapshot_offset(key) for key, _ in self.place.store.scan(prefix)]
        except CorruptionError as error:
            self.report.notes.append(f"{error}; rebuilt from the batches")
            return []

    # -- names -----------------------------------------------------------------------------------

    def _tidy(self) -> SegmentFiles:
        """Finish or undo what a crash interrupted, so that only whole segments are left."""
        files, directory = self.place.files, self.place.directory
        if self.state is not None:
            store = self.place.store
            self.state = finish_pending(files, store, self.place.name, directory, self.state)
        names = read_names(files, directory)
        for name in names.strangers:
            self.report.notes.append(f"{directory}/{name} is not a file of a log; left alone")
        if self.state is None:
            self._require_nothing_begun(names)
        elif names.leftovers:
            for name in names.leftovers:
                files.remove(f"{directory}/{name}")
            files.sync_dir(directory)
        return names

    def _require_nothing_begun(self, names: SegmentFiles) -> None:
        """Without a record nobody knows of a swap: this may be the only copy."""
        for name in names.leftovers:
            if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
                raise CorruptionError(
                    f"{self.place.directory}/{name} is there, and the state store does not say why"
                )

    # -- segments --------------------------------------------------------------------------------

    def _load_segments(self, names: SegmentFiles) -> None:
        place = self.place
        for base in names.bases:
            size = place.files.size_of(segment_stem(place.directory, base) + ".log")
            segment = place.segment(base, size=size)
            self.segments.append(segment)
        self._drop_below_start()
        if self.segments:
            self._require_first_segment(self.segments[0].base_offset)
            return
        if self.state is not None and self.state.recovery_point > self.state.start_offset:
            raise CorruptionError(
                f"no segment is left, and offsets below {self.state.recovery_point} were synced"
            )
        self._begin_first_segment()

    def _require_first_segment(self, base_offset: Offset) -> None:
        if self.state is not None and base_offset > self.state.start_offset:
            raise CorruptionError(
                f"the first segment begins at {base_offset}, and the log starts at "
                f"{self.state.start_offset}"
            )

    def _begin_first_segment(self) -> None:
        self._begin_segment(Offset(max(self._state.recovery_point, self._state.start_offset)))

    def _begin_segment(self, start: Offset) -> None:
        segment = self.place.segment(start)
        segment.create()
        self.place.files.sync_dir(self.place.directory)
        self.segments.append(segment)

    def _drop_below_start(self) -> None:
        start = self.state.start_offset if self.state else FIRST_OFFSET
        count = 0
        while count + 1 < len(self.segments) and self.segments[count + 1].base_offset <= start:
            # A wrong name must not make a segment look older than it is. What was not synced may
            # be torn, and is deleted all the same.
            if self.segments[count + 1].base_offset <= self._state.recovery_point:
                self._check_sealed(count)
            count += 1
        for segment in self.segments[:count]:
            segment.remove()
        del self.segments[:count]

    # -- batches ---------------------------------------------------------------------------------

    def _recover(self) -> Offset:
        """Check what lies above the recovery point; return where the log ends."""
        if self.state is None:
            # The store knows nothing: everything is checked, and only the last segment may be cut.
            self.is_unknown = self.report.is_rebuilt = True
            self.state = new_state(self.segments[0].base_offset)
        state = self.state
        number = self._first_to_check(state)
        for sealed in range(number):
            self._check_sealed(sealed)
        end_offset = self._check_from(number, state)
        if end_offset < state.recovery_point:
            raise CorruptionError(
                f"the log ends at {end_offset}, and was synced to {state.recovery_point}"
            )
        if end_offset < state.high_watermark:
            self.report.damage = (
                f"the log ends at {end_offset}, below its high watermark {state.high_watermark}"
            )
        if end_offset < state.start_offset:
            return self._start_over(state.start_offset)
        return end_offset

    def _start_over(self, start: Offset) -> Offset:
        """All that is left lies below the start: it was deleted, and its successors not synced."""
        while self.segments:
            self.segments.pop().remove()
        self._begin_segment(start)
        self.touched = [*self.segments]
        return start

    def _first_to_check(self, state: PartitionState) -> int:
        """Return the number of the segment that holds the recovery point, ready to be resumed."""
        if self.is_unknown:
            return 0
        for number, segment in enumerate(self.segments):
            if segment.base_offset == state.recovery_base:
                if segment.size < state.recovery_position:
                    raise CorruptionError(
                        f"{segment.path} has {segment.size} bytes, and {state.recovery_position} "
                        f"were synced"
                    )
                return number
        if self.segments[0].base_offset < state.recovery_point:
            raise CorruptionError(
                f"the segment at {state.recovery_base}, with the recovery point, is missing"
            )
        return 0

    def _check_sealed(self, number: int) -> None:
        """Look at both ends of a segment below the recovery point: names and sizes must fit."""
        segment = self.segments[number]
        next_base = self.segments[number + 1].base_offset
        first = next(walk(segment.reader(), 0, segment.size), None)
        if first is not None and first.header.base_offset < segment.base_offset:
            raise CorruptionError(f"{segment.path} begins with offset {first.header.base_offset}")
        last = segment.last_batch_quickly()
        end = last.header.next_offset if last else segment.base_offset
        is_gap_allowed = next_base <= self._state.gaps_below
        if end > next_base or (end < next_base and not is_gap_allowed):
            raise CorruptionError(
                f"{segment.path} ends at offset {end}, and the next segment begins at {next_base}"
            )

    @property
    def _state(self) -> PartitionState:
        return self.state or new_state(FIRST_OFFSET)

    def _check_from(self, number: int, state: PartitionState) -> Offset:
        self.epochs = EpochHistory(state.epochs)
        first = self.segments[number]
        expected = first.base_offset
        position = 0
        if not self.is_unknown and first.base_offset == state.recovery_base:
            position, expected = state.recovery_position, state.recovery_point
            if len(self.segments) == number + 1 and first.size == position:
                first.resume_at(position, state.trusted)
                # A truncation may have got so far and not been synced: the next sync covers it,
                # before anything that is written now can be acknowledged (rule 49a).
                self.touched.append(first)
                self._remember_age(first)
                return expected
        while number < len(self.segments):
            segment = self.segments[number]
            if segment.base_offset != expected and position == 0:
                # Its predecessor lost its end: nothing from here on was ever acknowledged (R2).
                self._cut(number, f"{segment.path} does not begin at {expected}")
                break
            trusted = state.trusted if position else NOTHING_TRUSTED
            expected, problem = self._check_segment(segment, position, expected, trusted)
            if problem is not None:
                self._cut(number + 1, problem)
                break
            if number + 1 < len(self.segments):
                self._seal(segment)
            position = 0
            number += 1
        self._remember_age(self.segments[-1])
        return expected

    def _check_segment(
        self, segment: Segment, position: int, expected: Offset, trusted: Trusted
    ) -> tuple[Offset, str | None]:
        """Check one segment; cut it at the first bad batch. Returns its end, and what was bad."""
        size, first = segment.size, expected
        segment.resume_at(position, trusted)
        self.touched.append(segment)
        checked = CheckedWalk(segment.writer(), position, size)
        problem: str | None = None
        # Where each epoch began that was not known before.
        began = dict[int, At]()
        for at in checked:
            problem = self._misplaced(at.header.base_offset, expected)
            if problem is not None:
                break
            latest = self.epochs.epoch_at(Offset(at.header.base_offset))
            if at.header.leader_epoch < latest:
                problem = (
                    f"epoch {at.header.leader_epoch} at offset {at.header.base_offset}, "
                    f"after epoch {latest}"
                )
                self.report.damage = self.report.damage or f"{segment.path}: {problem}"
                if latest in began:
                    segment.resume_at(position, trusted)
                    expected = self._believe(segment, position, began[latest], first)
                break
            if at.header.leader_epoch > self.epochs.latest:
                began[at.header.leader_epoch] = at
                self.epochs.assign(
                    LeaderEpoch(at.header.leader_epoch), Offset(at.header.base_offset)
                )
            if at.header.base_offset > expected:
                self.gaps_below = Offset(at.header.base_offset)
            segment.note(at)
            expected = at.header.next_offset
        self.report.checked_bytes += checked.position - position
        self._write_again(segment, position)
        problem = problem or checked.problem
        if problem is None:
            return expected, None
        if checked.is_from_future:
            raise CorruptionError(f"{segment.path} at {checked.position}: {problem}")
        self._require_cut_allowed(segment, problem)
        self._shorten(segment, size, problem)
        return expected, problem

    def _believe(self, segment: Segment, position: int, until: At, expected: Offset) -> Offset:
        """Take in the batches again that lie before one; return where they end."""
        self.epochs.truncate_end(Offset(until.header.base_offset))
        for at in walk(segment.writer(), position, until.position):
            segment.note(at)
            expected = at.header.next_offset
        return expected

    def _seal(self, segment: Segment) -> None:
        """Sync a segment that has successors at once: there may be more than descriptors (R4)."""
        segment.seal()
        segment.writer().sync()
        for index in (segment.indexes.offsets, segment.indexes.times):
            index.save(sync=True)
        segment.release()
        self.touched.remove(segment)

    def _write_again(self, segment: Segment, position: int) -> None:
        """Make the pages above the recovery point dirty again, so that the next sync writes them.

        After a sync has failed the kernel calls the pages clean that it could not write; a process
        that starts anew reads them from memory, syncs, hears "done", and they are on no disk. They
        are few: what was appended since the last checkpoint.
        """
        file = segment.writer()
        while position < segment.size:
            piece = file.read_at(position, min(_REWRITE_BYTES, segment.size - position))
            file.write_at(position, [piece])
            position += len(piece)

    def _misplaced(self, base_offset: int, expected: Offset) -> str | None:
        # Without a record nobody knows but the topic's policy of today.
        is_gap_allowed = (
            self.place.settings.compact
            if self.is_unknown
            else self._state.gaps_below > FIRST_OFFSET
        )
        if base_offset < expected or (base_offset > expected and not is_gap_allowed):
            return f"a batch at offset {base_offset} where {expected} was due"
        return None

    def _require_cut_allowed(self, segment: Segment, problem: str) -> None:
        if self.is_unknown and segment is not self.segments[-1]:
            raise CorruptionError(
                f"{segment.path} at {segment.size}: {problem}; the state store does not say "
                f"whether it was synced, and later segments are there"
            )

    def _shorten(self, segment: Segment, size: int, problem: str) -> None:
        hit("log.recovery.truncate")
        self.report.cut_bytes += size - segment.size
        self._tell_cut(f"{segment.path} cut at {segment.size} of {size} bytes: {problem}")
        file = segment.writer()
        file.truncate(segment.size)
        file.sync()

    def _tell_cut(self, sentence: str) -> None:
        self.report.notes.append(sentence)
        if self.is_unknown and self.report.damage is None:
            # It may have been synced: this replica cannot claim to have everything (rule 8).
            self.report.damage = sentence

    def _cut(self, number: int, problem: str) -> None:
        """Remove the segments from `number` on, newest first."""
        if number >= len(self.segments):
            return
        if number == 0:
            raise CorruptionError(problem)
        self._require_cut_allowed(self.segments[number - 1], problem)
        while len(self.segments) > number:
            segment = self.segments.pop()
            self.report.cut_bytes += segment.size
            self._tell_cut(f"{segment.path} removed: {problem}")
            segment.remove()
        self.place.files.sync_dir(self.place.directory)

    def _remember_age(self, active: Segment) -> None:
        first = next(walk(active.reader(), 0, active.size), None)
        if first is not None:
            timestamp = first.header.max_timestamp
            active.first_append_ms = timestamp if 0 <= timestamp <= self.now_ms else self.now_ms

    # -- the log ---------------------------------------------------------------------------------

    def _assemble(self, end_offset: Offset) -> Log:
        state = self._state
        if self.epochs.drop_above(end_offset):
            self.report.notes.append(f"epochs beyond the end {end_offset} forgotten")
        found = self._snapshots()
        snapshots = [offset for offset in found if offset <= end_offset]
        log = self.place.log(
            self.segments, end_offset, self.epochs, ProducerStates(), state, snapshots
        )
        log.gaps_below = Offset(max(log.gaps_below, self.gaps_below))
        log.stale_snapshots = [offset for offset in found if offset > end_offset]
        log.aborted.open(self.segments)
        log.producers = rebuild_producers(log, end_offset, self.now_ms)
        if self.touched:
            recovered_from = max(state.recovery_point, log.start_offset)
            log.synced_offset = Offset(min(recovered_from, end_offset))
            for segment in self.touched:
                if segment in self.segments:
                    log.unsynced.began(segment)
        return log

    def _damaged(self, reason: str) -> Log:
        """Return a log that serves nothing and keeps every byte (R1)."""
        self.report.damage = reason
        self.report.notes.append(reason)
        segments = self.segments or [self.place.segment(FIRST_OFFSET)]
        log = self.place.log(
            segments,
            self._state.recovery_point,
            EpochHistory(self._state.epochs),
            ProducerStates(),
            self._state,
            [],
        )
        log.offline = reason
        return log
