"""Proves one partition sound, or says in sentences what is wrong with it.

An auditor goes through the books while the shop is closed. What was signed off (below the
recovery point) must be right to the last digit. What came after may be torn: the next start will
deal with that, and the auditor only writes down what it will do.

W1  nothing is written, and no number in a file decides how much memory is taken
W2  a *problem* is something that no crash leaves behind; a *note* is something the next start
    mends or finishes by itself
W3  one damaged batch gives one problem, not one for every batch after it; below the recovery point
    the walk goes on behind it, and what it hid is not held against anything else

Not here: what is compared with what inside an index or a producer snapshot (`entries.py`,
`producer_check.py`), and which partitions there are (`verify.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.proto.ids import FIRST_OFFSET, INT64_MAX, NO_EPOCH, LeaderEpoch, Offset
from ottla.proto.records.control import Marker, read_marker
from ottla.replication.epochs import EpochHistory
from ottla.replication.inspect.damage import Behind, find_behind
from ottla.replication.inspect.entries import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    IndexCheck,
    OffsetIndexCheck,
    TimeIndexCheck,
    read_entries,
    used_entries,
)
from ottla.replication.inspect.known import Known
from ottla.replication.inspect.places import SegmentPlace, read_partition_files
from ottla.replication.inspect.producer_check import compare_kafka_snapshot, compare_snapshot
from ottla.replication.inspect.words import counted
from ottla.replication.log.files import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ottla.replication.log.scan import At, CheckedWalk
from ottla.replication.log.state import Intent, PartitionState
from ottla.replication.producers import ProducerStates
from ottla.replication.storage.ports import File, Files


@dataclass(slots=True)
class PartitionReport:
    """What was found out about one partition."""

    partition: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    bytes: int = 0
    start_offset: int = 0
    end_offset: int = 0

    @property
    def ok(self) -> bool:
        return not self.problems


def check_partition(files: Files, directory: str, known: Known) -> PartitionReport:
    """Read every byte of a partition; return what was found."""
    check = _PartitionCheck(files, directory, known)
    try:
        check.run()
    except OSError as error:
        check.report.problems.append(f"it cannot be read: {error}")
    return check.report


class _PartitionCheck:
    """One walk over one partition; lives as long as `check_partition` runs."""

    def __init__(self, files: Files, directory: str, known: Known) -> None:
        self._files: Final = files
        self._directory: Final = directory
        self._known: Final = known
        self.report: Final = PartitionReport(known.name, list(known.problems), list(known.notes))
        self._problem: Final = self.report.problems.append
        self._note: Final = self.report.notes.append
        # Where the next batch is due; None after damage: wherever it comes.
        self._due: Offset | None = None
        self._end = Offset(0)
        # False behind damage: there was more, and nobody can tell how much.
        self._is_end_known = True
        # The batch at hand is not where it is due.
        self._is_lost = False
        self._epochs: Final = EpochHistory(known.epochs or ())
        self._epoch: int = NO_EPOCH
        self._producers: Final = ProducerStates()
        self._snapshots: Final = sorted(known.snapshots)
        self._gap_count = 0
        # Compaction has never been above it.
        self._gaps_below: Final = known.state.gaps_below if known.state else Offset(0)
        # From here on the log is complete: nothing retained away, compacted or damaged. INT64_MAX
        # behind damage, until the next sound batch.
        self._reach = Offset(0)
        # The recovery point was met where the state says it is, or told not to be there.
        self._met_recovery_point = False

    def run(self) -> None:
        known = self._known
        found = read_partition_files(self._files, self._directory, known.state)
        self.report.notes.extend(found.notes)
        if known.state is not None and known.state.pending.intent is Intent.DELETE:
            return
        segments = found.segments
        self._require_recovery_segment(segments)
        if segments:
            first = segments[0].base_offset
            self._reach = Offset(max(first, self._gaps_below))
            self._due = self._end = first
        elif known.state is not None:
            self._end = known.state.recovery_point
        for number, segment in enumerate(segments):
            if not self._check_segment(segment, is_last=number + 1 == len(segments)):
                for later in segments[number + 1 :]:
                    self._note(f"{later.log_name} lies behind the cut: removed at start")
                break
        self._take_snapshots(None)
        self._check_ends(segments)

    def _require_recovery_segment(self, segments: list[SegmentPlace]) -> None:
        state = self._known.state
        if state is None or any(place.base_offset == state.recovery_base for place in segments):
            return
        if segments and segments[0].base_offset < state.recovery_point:
            self._problem(
                f"the segment at {state.recovery_base}, with the recovery point "
                f"{state.recovery_point}, is missing"
            )
        elif not segments and state.recovery_point > state.start_offset:
            self._problem(
                f"no segment is left, and offsets below {state.recovery_point} were synced"
            )

    # -- one segment -----------------------------------------------------------------------------

    def _check_segment(self, segment: SegmentPlace, *, is_last: bool) -> bool:
        """Return whether the log goes on behind it."""
        if not self._check_base(segment):
            return False
        if self._due is None:
            self._due = segment.base_offset
            self._end = Offset(max(self._end, segment.base_offset))
            self._is_end_known = True
        file = self._files.open(f"{self._directory}/{segment.log_name}", writable=False)
        checks = self._open_indexes(segment)
        size = file.size()
        try:
            self._require_recovery_position(segment, size)
            is_whole, goes_on = self._walk(segment, file, size, checks)
            for name, check in checks.items():
                if is_whole:
                    check.end(sealed=not is_last)
                self._tell_index(segment, name, check)
        finally:
            file.close()
        return goes_on

    def _check_base(self, segment: SegmentPlace) -> bool:
        due, base = self._due, segment.base_offset
        if due is None or base == due:
            return True
        sentence = f"{segment.log_name} begins at {base}, and the segment before it ends at {due}"
        if not self._known.is_settled(base, 0, Offset(min(base, due))):
            self._note(f"{sentence}: removed at start")
            return False
        if base < due or not self._is_gap_allowed(due, base):
            self._problem(sentence)
            self._reach = Offset(max(self._reach, base))
        self._due = base
        return True

    def _require_recovery_position(self, segment: SegmentPlace, size: int) -> None:
        state = self._known.state
        if state is None or segment.base_offset != state.recovery_base:
            return
        if size < state.recovery_position:
            self._met_recovery_point = True
            self._problem(
                f"{segment.log_name} has {size} bytes, and {state.recovery_position} were synced"
            )

    def _walk(
        self, segment: SegmentPlace, file: File, size: int, checks: dict[str, IndexCheck]
    ) -> tuple[bool, bool]:
        """Return whether all of the segment was read, and whether the log goes on behind it."""
        position = 0
        while True:
            walk = CheckedWalk(file, position, size)
            if not self._walk_sound(segment, walk, checks):
                self._note_cut(segment, walk.position, size)
                return False, False
            self._meet_recovery_point(segment, walk.position, None)
            if walk.problem is None:
                return True, True
            sentence = f"{segment.log_name} at {walk.position}: {walk.problem}"
            is_settled = self._known.is_settled(segment.base_offset, walk.position, self._end)
            if not is_settled and not walk.is_from_future:
                self._note(sentence)
                self._note_cut(segment, walk.position, size)
                return False, False
            self._problem(sentence)
            behind = find_behind(file, walk.position, size, self._end) if is_settled else None
            if behind is None:
                self._lose_the_rest(segment)
                return False, True
            self._pass_over(walk.position, behind, checks)
            position = behind.position

    def _walk_sound(
        self, segment: SegmentPlace, walk: CheckedWalk, checks: dict[str, IndexCheck]
    ) -> bool:
        """Take in batches while they are sound; return False if the next start cuts the log."""
        for at in walk:
            self._meet_recovery_point(segment, at.position, at.header.base_offset)
            if not self._check_batch(segment, at):
                return False
            if self._is_lost:
                # Its indexes cannot be judged any more (W3).
                checks.clear()
            for check in checks.values():
                check.batch(at)
            self._take(at, read_marker(walk.bytes_of(at)) if at.header.is_control else None)
        return True

    def _lose_the_rest(self, segment: SegmentPlace) -> None:
        """What lies behind the damage in this segment cannot be found (W3)."""
        self._due, self._reach, self._is_end_known = None, Offset(INT64_MAX), False
        state = self._known.state
        if state is not None and segment.base_offset == state.recovery_base:
            self._met_recovery_point = True

    def _pass_over(self, position: int, behind: Behind, checks: dict[str, IndexCheck]) -> None:
        """Go on behind a damaged batch: the next one tells where (W3)."""
        self._due, self._reach, self._is_end_known = None, Offset(INT64_MAX), False
        self.report.bytes += behind.position - position
        for check in checks.values():
            check.skip(position, behind.base_offset)

    def _note_cut(self, segment: SegmentPlace, position: int, size: int) -> None:
        self._note(f"{segment.log_name} will be cut at start: {size - position} bytes go")

    def _meet_recovery_point(
        self, segment: SegmentPlace, position: int, next_offset: int | None
    ) -> None:
        """A batch begins at `position`, or the file ends there."""
        state = self._known.state
        if state is None or (segment.base_offset, position) != (
            state.recovery_base,
            state.recovery_position,
        ):
            return
        self._met_recovery_point = True
        is_above = next_offset is not None and next_offset < state.recovery_point
        if self._due is not None and (self._due > state.recovery_point or is_above):
            self._problem(
                f"the recovery point {state.recovery_point} is said to be at {position} of "
                f"{segment.log_name}, where offset {self._due} is due"
            )

    # -- one batch -------------------------------------------------------------------------------

    def _check_batch(self, segment: SegmentPlace, at: At) -> bool:
        """Return False if the next start will cut the log here."""
        is_settled = self._known.is_settled(
            segment.base_offset, at.position, Offset(at.header.base_offset)
        )
        problem = self._misplaced(at, is_settled=is_settled)
        self._is_lost = problem is not None
        # What a misplaced batch says of its epoch cannot be looked up.
        problem = problem or self._wrong_epoch(at, is_settled=is_settled)
        if problem is None:
            self._learn_epoch(at)
            return True
        sentence = f"{segment.log_name} at {at.position}: {problem}"
        if is_settled:
            self._problem(sentence)
        else:
            self._note(sentence)
        return is_settled

    def _misplaced(self, at: At, *, is_settled: bool) -> str | None:
        due, base = self._due, Offset(at.header.base_offset)
        if due is None or base == due:
            return None
        if base > due and self._is_gap_allowed(due, base, is_settled=is_settled):
            return None
        if is_settled:
            # Where it belongs nobody can tell: the next one tells where the log goes on (W3).
            self._due, self._end = None, Offset(due + at.header.last_offset_delta + 1)
            self._reach = Offset(INT64_MAX)
        return f"a batch at offset {base} where {due} was due"

    def _is_gap_allowed(self, due: Offset, base: Offset, *, is_settled: bool = True) -> bool:
        state = self._known.state
        if state is None or self._known.gaps_allowed:
            self._gap_count += 1
            self._reach = Offset(max(self._reach, base))
            return True
        if base <= state.gaps_below:
            return True
        # Above the recovery point lies what a follower of a compacted log copied, holes and all.
        if not is_settled:
            self._gap_count += 1
        return not is_settled

    def _wrong_epoch(self, at: At, *, is_settled: bool) -> str | None:
        epoch, offset = at.header.leader_epoch, Offset(at.header.base_offset)
        if epoch < self._epoch:
            return f"epoch {epoch} at offset {offset}, after epoch {self._epoch}"
        if self._known.epochs is None:
            return None
        start = self._known.start_offset or FIRST_OFFSET
        if at.header.last_offset < start:
            # The history does not reach back so far.
            return None
        told = self._epochs.epoch_at(Offset(max(offset, start)))
        if not is_settled:
            return f"epoch {epoch} at offset {offset}, after epoch {told}" if epoch < told else None
        # Kafka forgets the epochs below its start; we keep the one that covers it.
        is_told = told != NO_EPOCH or self._known.state is not None
        if epoch != told and is_told:
            return f"epoch {epoch} at offset {offset}; the history says {told}"
        return None

    def _learn_epoch(self, at: At) -> None:
        epoch = LeaderEpoch(at.header.leader_epoch)
        self._epoch = max(self._epoch, epoch)
        if epoch > self._epochs.latest:
            self._epochs.assign(epoch, Offset(at.header.base_offset))

    def _take(self, at: At, marker: Marker | None) -> None:
        header = at.header
        self.report.batches += 1
        self.report.records += header.count
        self.report.bytes += header.size
        if self._is_lost:
            return
        if self._reach == INT64_MAX:
            self._reach = Offset(max(header.base_offset, self._gaps_below))
        self._take_snapshots(header.base_offset)
        if self._due is not None or header.base_offset >= self._end:
            self._due = self._end = header.next_offset
            self._is_end_known = True
        self._producers.record(header, Offset(header.base_offset), header.max_timestamp, marker)

    # -- producers -------------------------------------------------------------------------------

    def _take_snapshots(self, offset: int | None) -> None:
        """Compare the snapshots that lie at or below `offset`; with None all that are left."""
        while self._snapshots and (offset is None or self._snapshots[0][0] <= offset):
            at_offset, name = self._snapshots.pop(0)
            if offset is None and at_offset > self._end and self._is_end_known:
                self._note(f"the producer snapshot at {at_offset} lies above the end {self._end}")
                continue
            self._compare_snapshot(at_offset, name)

    def _compare_snapshot(self, offset: Offset, name: str) -> None:
        snapshot = self._known.load_snapshot(offset, name)
        if isinstance(snapshot, str):
            self._problem(snapshot)
        elif isinstance(snapshot, ProducerStates):
            verdict = compare_snapshot(offset, snapshot, self._producers, self._reach)
            self.report.problems.extend(verdict.problems)
            self.report.notes.extend(verdict.notes)
        else:
            self.report.problems.extend(compare_kafka_snapshot(name, snapshot, self._producers))

    # -- indexes ---------------------------------------------------------------------------------

    def _open_indexes(self, segment: SegmentPlace) -> dict[str, IndexCheck]:
        checks: dict[str, IndexCheck] = {}
        exact = self._known.state is not None
        for suffix, entry, kind in (
            (INDEX_SUFFIX, OFFSET_ENTRY, OffsetIndexCheck),
            (TIME_INDEX_SUFFIX, TIME_ENTRY, TimeIndexCheck),
        ):
            name = segment.index_name(suffix)
            if name is None:
                continue
            path = f"{self._directory}/{name}"
            if not self._files.exists(path):
                self._note(f"{name} is missing: rebuilt when it is needed")
                continue
            file = self._files.open(path, writable=False)
            size = file.size()
            count = size // entry.size if exact else used_entries(file, entry)
            checks[name] = kind(read_entries(file, entry, count), segment.base_offset, exact=exact)
            if size % entry.size and (exact or count == size // entry.size):
                self._tell(segment, name, count, f"{size} bytes are not a whole number of entries")
            trusted = self._known.trusted_entries(segment.base_offset, name)
            if trusted is not None and count < trusted:
                self._note(
                    f"{name} has {count} entries, and {trusted} were synced: rebuilt at start"
                )
        return checks

    def _tell_index(self, segment: SegmentPlace, name: str, check: IndexCheck) -> None:
        if check.complaint is not None:
            self._tell(segment, name, check.complaint.slot, check.complaint.sentence)

    def _tell(self, segment: SegmentPlace, name: str, slot: int, sentence: str) -> None:
        trusted = self._known.trusted_entries(segment.base_offset, name)
        if trusted is None or slot < trusted:
            self._problem(f"{name}: {sentence}")
        else:
            self._note(f"{name}: {sentence}: rebuilt at start")

    # -- the whole -------------------------------------------------------------------------------

    def _check_ends(self, segments: list[SegmentPlace]) -> None:
        known, end = self._known, self._end
        first = segments[0].base_offset if segments else end
        start = known.start_offset if known.start_offset is not None else first
        self.report.start_offset, self.report.end_offset = max(start, first), end
        if self._gap_count:
            gaps = counted(self._gap_count, "gap")
            self._note(f"{gaps} in the offsets, as compaction leaves them")
        if start > end and self._is_end_known:
            self._problem(f"the log ends at {end}, below its start {start}")
        state = known.state
        if state is None:
            return
        if first > start:
            self._problem(f"the log begins at {first}, and its start offset is {start}")
        has_segment = any(place.base_offset == state.recovery_base for place in segments)
        if has_segment and not self._met_recovery_point and self._due is not None:
            self._problem(
                f"the recovery point {state.recovery_point} is said to be at "
                f"{state.recovery_position} of {state.recovery_base:020d}.log, "
                f"where no batch begins"
            )
        if self._is_end_known:
            self._check_end(state, end)
        if state.high_watermark < state.start_offset:
            self._note(
                f"the high watermark {state.high_watermark} was written before the start moved to "
                f"{state.start_offset}"
            )

    def _check_end(self, state: PartitionState, end: Offset) -> None:
        if end < state.recovery_point:
            self._problem(f"the log ends at {end}, and was synced to {state.recovery_point}")
        if end < state.high_watermark:
            self._problem(f"the log ends at {end}, below its high watermark {state.high_watermark}")
        if state.epochs and state.epochs[-1].start_offset > end:
            self._note(f"epoch {state.epochs[-1].epoch} begins above the end: forgotten at start")
