"""How batches get into a log: checked, placed, and several of them written at once.

A baker puts many loaves into the oven with one shovel: each is looked at alone, and the door is
opened once. A system call costs more than placing a batch, so what has queued up for a partition
is written together.

B1  a refused batch changes nothing, and those beside it go on
B2  placing is final: if the write fails after it, the log is offline (L5)
    so the file is opened before it: without a descriptor the batches are refused, unplaced
B3  no byte of a batch is copied, where nobody follows: stamp and body go to the kernel as they
    are. For followers one copy is made, and the file gets that one

Not here: whether the batch of a producer is good (`proto/records/validate.py`) or a fetched one
(`incoming.py`), and how much room a segment has (`Log.room`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.proto.errors import CorruptionError, ErrorCode, RequestError, StorageError, ensure
from ottla.proto.ids import NO_TIMESTAMP, LeaderEpoch, Offset
from ottla.proto.records.control import EndMarker, build_marker, read_marker
from ottla.proto.records.convert import recompress, with_log_append_time
from ottla.proto.records.header import (
    LENGTH_END,
    STAMP_END,
    BatchHeader,
    read_header,
    stamp,
)
from ottla.proto.records.validate import require_size, validate_produced
from ottla.replication.log.incoming import checked_headers
from ottla.replication.log.segment import Note
from ottla.replication.log.tail import Tail
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import Buffer
from ottla.replication.transactions import Aborted

if TYPE_CHECKING:
    from ottla.replication.log.log import Log

_new: Final = tuple.__new__


class Appended(NamedTuple):
    """Where a batch is in the log."""

    first_offset: Offset
    last_offset: Offset
    # The time the leader gave it, or NO_TIMESTAMP if the producer's own time stands.
    append_time_ms: int
    # It was here already: a retry of an idempotent producer (rule 61).
    is_duplicate: bool = False


class Run:
    """Batches that are placed one after another and written to one segment at once."""

    __slots__ = (
        "_aborted",
        "_buffers",
        "_first_offset",
        "_last_offset_max",
        "_log",
        "_notes",
        "_now_ms",
        "_room_bytes",
        "_tail",
        "end_offset",
    )

    def __init__(self, log: Log, now_ms: int, tail: Tail | None = None) -> None:
        active = log.segments[-1]
        if not active.is_prepared:
            try:
                log.handles.relieved(active.prepare)
            except (OSError, CorruptionError) as error:
                raise log.fail_reading("append", error) from error
        self._log = log
        self._now_ms = now_ms
        self._buffers: list[Buffer] = []
        self._notes: list[Note] = []
        self._aborted: list[Aborted] = []
        self._tail = tail
        self._first_offset = self.end_offset = log.end_offset
        self._room_bytes, self._last_offset_max = log.room(now_ms)

    def add(
        self, size: int, last_offset: int, max_timestamp: int, buffers: tuple[Buffer, ...]
    ) -> None:
        if size > self._room_bytes or last_offset > self._last_offset_max:
            self._make_room(size, last_offset)
        self._room_bytes -= size
        self._buffers += buffers
        self._notes.append((size, last_offset, max_timestamp))
        self.end_offset = last_offset + 1  # type: ignore[assignment]  # an Offset, for speed

    def aborts(self, aborted: Aborted | None) -> None:
        """The batch that was added last is the marker of this aborted transaction."""
        if aborted is not None:
            self._aborted.append(aborted)

    def _make_room(self, size: int, last_offset: int) -> None:
        self.write()
        room_bytes, last_offset_max = self._log.room(self._now_ms)
        is_empty = self._log.active.size == 0
        if not is_empty and (size > room_bytes or last_offset > last_offset_max):
            self._log.roll()
        room_bytes, self._last_offset_max = self._log.room(self._now_ms)
        # An empty segment takes any batch, whatever segment.bytes says now.
        self._room_bytes = max(room_bytes, size)

    def write(self) -> None:
        """Write what was added so far; a failure takes the log offline (B2)."""
        if not self._notes:
            return
        log = self._log
        hit("log.append.before")
        active = log.segments[-1]
        buffers: list[Buffer] = self._buffers
        if self._tail is not None:
            # One copy, for the file and for every follower.
            buffers = [b"".join(self._buffers)]
        try:
            active.write(buffers, self._notes)
        except OSError as error:
            raise log.fail("append", error) from error
        if self._tail is not None:
            self._tail.add(self._first_offset, self.end_offset, bytes(buffers[0]))
        self._first_offset = self.end_offset
        for aborted in self._aborted:
            log.aborted.add(active, aborted)
        log.took_in(active, self.end_offset, self._now_ms)
        self._buffers, self._notes, self._aborted = [], [], []
        hit("log.append.after")


# What a leader appends: the batch of a producer, or how a transaction has ended.
Batch = bytes | bytearray | memoryview | EndMarker


def append_as_leader(
    log: Log,
    batches: Sequence[Batch],
    *,
    epoch: LeaderEpoch,
    now_ms: int,
    tail: Tail | None = None,
) -> list[Appended | RequestError]:
    """Return for each batch where it is, or why it was refused (B1).

    `tail` gets what is written, for followers.
    """
    log.require_online()
    if epoch != log.epochs.latest:
        ensure(False, "an epoch is assigned before it is used", epoch=epoch)
    run = Run(log, now_ms, tail)
    # Not `list[…]()`: making that type anew for each append would take a fifth of its time.
    answers: list[Appended | RequestError] = []
    for batch in batches:
        try:
            answers.append(_place(log, run, batch, epoch, now_ms))
        except RequestError as refusal:
            # Not itself: its traceback would hold this list, and what was unpacked of a bomb,
            # until the next collection.
            answers.append(RequestError(refusal.code, refusal.sentence))
        except StorageError as error:
            log.require_online()
            # No descriptor for another segment: this one was not placed, those before it are.
            answers.append(RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
    run.write()
    return answers


def _place(
    log: Log,
    run: Run,
    batch: Batch,
    epoch: LeaderEpoch,
    now_ms: int,
) -> Appended:
    if isinstance(batch, EndMarker):
        return _mark(log, run, batch, epoch, now_ms)
    view = batch if type(batch) is memoryview else memoryview(batch)
    header = validate_produced(view, log.limits, now_ms=now_ms)
    # Taken apart once: looking the fields up by name, one by one, is what costs time here.
    _, length, _, _, _, _, last_delta, _, max_timestamp, producer_id, _, _, _ = header
    if producer_id >= 0:
        placed = log.producers.check(header)
        if placed is not None:
            time_ms = placed.timestamp if log.gives_time else NO_TIMESTAMP
            return Appended(placed.first_offset, placed.last_offset, time_ms, True)
    if log.converts:
        view = memoryview(_converted(log, view, header, now_ms))
        header = read_header(view)
        length, max_timestamp = header.batch_length, header.max_timestamp
        require_size(header.size, log.limits)
    base = run.end_offset
    last_offset = base + last_delta
    head = stamp(base, length, epoch)
    run.add(length + LENGTH_END, last_offset, max_timestamp, (head, view[STAMP_END:]))
    if producer_id >= 0:
        log.producers.record(header, base, now_ms)
    time_ms = now_ms if log.gives_time else NO_TIMESTAMP
    # What calling `Appended` does, in half the time.
    return _new(Appended, (base, last_offset, time_ms, False))


def _mark(log: Log, run: Run, end: EndMarker, epoch: LeaderEpoch, now_ms: int) -> Appended:
    base = run.end_offset
    if not log.producers.check_marker(end):
        # Told again: what it says is here, wherever that is. Without an epoch of its own it may be
        # that of a transaction in which nothing was written here, and what was asked on behalf of
        # that one is void (rule 64b). With one, late batches are refused by their epoch.
        if not end.is_bumped:
            log.producers.transactions.void(end.producer_id)
        return Appended(Offset(base - 1), Offset(base - 1), NO_TIMESTAMP, True)
    batch = memoryview(build_marker(end, timestamp=now_ms))
    header = read_header(batch)
    head = stamp(base, header.batch_length, epoch)
    run.add(header.size, base, header.max_timestamp, (head, batch[STAMP_END:]))
    run.aborts(log.producers.record(header, base, now_ms, end.marker))
    return Appended(base, base, NO_TIMESTAMP)


def _converted(
    log: Log, batch: bytes | bytearray | memoryview, header: BatchHeader, now_ms: int
) -> bytes | bytearray | memoryview:
    if log.codec is not None and log.codec != header.codec_bits:
        batch = recompress(batch, log.codec, log.settings.compression_level)
    return with_log_append_time(batch, now_ms) if log.gives_time else batch


def append_as_follower(
    log: Log,
    batches: bytes | memoryview,
    *,
    now_ms: int,
    gaps_allowed: bool,
    leader_epoch: LeaderEpoch | None = None,
) -> int:
    """Append whole batches exactly as the leader has them; return how many.

    All are checked first (rule 45): with one bad batch nothing is appended. A cut batch at the
    end, as a fetch may have it, is left out. `leader_epoch` is that in which they were fetched.
    """
    log.require_online()
    view = memoryview(batches)
    headers = checked_headers(
        view,
        end_offset=log.end_offset,
        epoch=log.epochs.latest,
        gaps_allowed=gaps_allowed,
        leader_epoch=leader_epoch,
    )
    run = Run(log, now_ms)
    position, end_offset = 0, log.end_offset
    for header in headers:
        body = view[position : position + header.size]
        run.add(header.size, header.last_offset, header.max_timestamp, (body,))
        if header.base_offset > end_offset:
            log.take_gap(header.next_offset)
        end_offset = header.next_offset
        if header.leader_epoch > log.epochs.latest:
            log.epochs.assign(LeaderEpoch(header.leader_epoch), Offset(header.base_offset))
        if header.producer_id >= 0:
            marker = read_marker(body) if header.is_control else None
            run.aborts(log.producers.record(header, Offset(header.base_offset), now_ms, marker))
        position += header.size
    run.write()
    return len(headers)
