"""The naive log: a list of batches, and what was promised about it.

No files, no indexes, no segments; every question is answered by looking at everything. The real
log must agree with it, whatever happened to the disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from ottla.proto.errors import RecordsError
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import BatchHeader, TimestampType, read_header
from ottla.proto.records.record import Record


@dataclass(frozen=True)
class ModelBatch:
    """One batch, as bytes and as records: what a log has, or what it ought to have."""

    raw: bytes
    header: BatchHeader
    records: tuple[Record, ...]

    @classmethod
    def of(cls, raw: bytes) -> ModelBatch:
        try:
            records = tuple(decode_records(raw))
        except RecordsError:
            records = ()
        return cls(raw, read_header(raw), records)


@dataclass
class Model:
    """What a log that never fails would hold."""

    batches: list[ModelBatch] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int = 0
    # Below this everything was promised to survive a power cut.
    promised_end: int = 0
    # (epoch, start offset) of every epoch that was assigned or written.
    epochs: list[tuple[int, int]] = field(default_factory=list)
    is_compacted: bool = False

    def copy(self) -> Model:
        other = copy(self)
        other.batches = list(self.batches)
        other.epochs = list(self.epochs)
        return other

    def append(self, batch: ModelBatch) -> None:
        self.batches.append(batch)
        self.end_offset = batch.header.next_offset
        self.begin_epoch(batch.header.leader_epoch, batch.header.base_offset)

    def begin_epoch(self, epoch: int, offset: int) -> None:
        if self.epochs and self.epochs[-1][0] == epoch:
            return
        self.epochs = [*[entry for entry in self.epochs if entry[1] < offset], (epoch, offset)]

    def truncate(self, offset: int) -> None:
        if offset >= self.end_offset:
            start = self.start_offset
            self.epochs = [entry for entry in self.epochs if max(entry[1], start) < offset]
            return
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= offset]
        kept_end = self.batches[-1].header.next_offset if self.batches else self.start_offset
        if kept_end < self.start_offset:
            self.reset(self.start_offset)
            return
        self.end_offset = kept_end
        start, end = self.start_offset, self.end_offset
        self.epochs = [entry for entry in self.epochs if max(entry[1], start) < end]
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.promised_end = min(self.promised_end, self.end_offset)

    def reset(self, offset: int) -> None:
        self.batches, self.epochs = [], []
        self.start_offset = self.end_offset = self.high_watermark = self.promised_end = offset

    def readable(self) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.header.last_offset >= self.start_offset]

    def records(self) -> list[Record]:
        found = [record for batch in self.readable() for record in batch.records]
        return [record for record in found if record.offset >= self.start_offset]

    def prefix(self, end_offset: int) -> Model:
        """Return the model as if the log had ended at `end_offset` from the beginning."""
        other = self.copy()
        other.batches = [batch for batch in self.batches if batch.header.next_offset <= end_offset]
        other.end_offset = end_offset
        other.epochs = [entry for entry in self.epochs if entry[1] <= end_offset]
        other.high_watermark = min(self.high_watermark, end_offset)
        other.promised_end = end_offset
        return other

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        for record in self.records():
            if record.timestamp >= timestamp:
                return record.timestamp, record.offset
        return None

    def latest(self) -> tuple[int, int] | None:
        """Return the largest time, and the first offset that has it."""
        records = self.records()
        if not records:
            return None
        return self.first_at_or_after(max(record.timestamp for record in records))

    def compacted(
        self, *, dirty_from: int, mapped_to: int, end: int, plan_end: int, now_ms: int
    ) -> list[ModelBatch]:
        """Return what compaction of everything below `end` must leave (records only, no bytes)."""
        last: dict[bytes, int] = {}
        for batch in self.batches:
            if dirty_from <= batch.header.base_offset < mapped_to and not batch.header.is_control:
                last.update({r.key: r.offset for r in batch.records if r.key is not None})
        producer_last: dict[int, int] = {
            batch.header.producer_id: batch.header.last_offset
            for batch in self.batches
            if batch.header.producer_id >= 0 and batch.header.base_offset < plan_end
        }
        planned = [one.header for one in self.batches if one.header.base_offset < plan_end]
        last_offset = planned[-1].last_offset if planned else -1
        return [
            kept
            for batch in self.batches
            if (
                kept := batch
                if batch.header.base_offset >= min(end, mapped_to)
                else _compact_one(batch, last, {last_offset, *producer_last.values()}, now_ms)
            )
        ]


def _compact_one(
    batch: ModelBatch,
    last: dict[bytes, int],
    stays_empty: set[int],
    now_ms: int,
) -> ModelBatch | None:
    header = batch.header
    horizon = header.base_timestamp if header.has_delete_horizon else None
    kept = tuple(
        record
        for record in batch.records
        if record.key is None
        or (
            last.get(record.key, -1) <= record.offset
            and not (record.value is None and horizon is not None and now_ms >= horizon)
        )
    )
    if not kept and header.last_offset not in stays_empty:
        return None
    return replace(batch, records=kept)


def same_records(left: Sequence[ModelBatch], right: Sequence[ModelBatch]) -> bool:
    """Return whether two logs hold the same records in the same batches, whatever the bytes."""
    return [_essence(batch) for batch in left] == [_essence(batch) for batch in right]


def _essence(batch: ModelBatch) -> tuple[object, ...]:
    header = batch.header
    return (
        header.base_offset,
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        batch.records,
        # An emptied batch has nothing to pack.
        header.codec_bits if batch.records else 0,
        time_given(header),
    )


def time_given(header: BatchHeader) -> int | None:
    """Return the time that a leader gave to all records of a batch; None: they have their own."""
    is_given = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return header.max_timestamp if is_given else None
