"""Batches as producers send them, of an exact size, made once and renewed in place.

A pool is small enough to stay in the processor's cache, as bytes do that have just come from a
socket. Renewing gives every batch the next sequence and a later time, so that a log takes the same
pool for ever: it is done between the measured passes.
"""

from __future__ import annotations

from typing import Final

from ottla.proto.errors import ensure
from ottla.proto.ids import INT32_MAX
from ottla.proto.records.build import build_batch
from ottla.proto.records.header import HEADER_SIZE, read_header, seal, write_header
from ottla.proto.records.record import Record

# The time of all batches and of everybody's clock here; a fixed one makes runs alike.
NOW_MS: Final = 1_700_000_000_000
RECORD_BYTES: Final = 1024
_POOL_BYTES: Final = 2 << 20
# Lengths and deltas in front of a record's value, at most.
_OVERHEAD_BYTES: Final = 14


def batch_of(size: int, *, producer_id: int = -1) -> bytes:
    """Return a batch of exactly `size` bytes with records of about 1 KB, not compressed."""
    count = max(1, size // RECORD_BYTES)
    value = bytes((size - HEADER_SIZE) // count - _OVERHEAD_BYTES)
    epoch, sequence = (0, 0) if producer_id >= 0 else (-1, -1)
    missing = 0
    while True:
        # The first record is made longer until the batch fits.
        records = [Record(0, NOW_MS, None, value + bytes(missing), ())]
        records += [Record(number, NOW_MS, None, value, ()) for number in range(1, count)]
        batch = build_batch(
            records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        if len(batch) == size:
            return batch
        ensure(len(batch) < size, "a batch is filled from below", size=size, has=len(batch))
        missing += size - len(batch) if size - len(batch) > 1 else 1


class Pool:
    """Batches of one size, one after another in sequence."""

    def __init__(self, size: int, *, producer_id: int = -1, count_min: int = 1) -> None:
        self.batch_size: Final = size
        template = batch_of(size, producer_id=producer_id)
        self.records_per_batch: Final = read_header(template).count
        self._buffers = [bytearray(template) for _ in range(max(count_min, _POOL_BYTES // size))]
        # Read-only views, as they come from a decoded request.
        self.batches: Final = [memoryview(buffer).toreadonly() for buffer in self._buffers]
        self._batches_made = 0
        self.begin()

    def __len__(self) -> int:
        return len(self.batches)

    def begin(self) -> None:
        """Begin again with sequence 0, for a new log."""
        self._batches_made = 0
        self.renew()

    def renew(self) -> None:
        """Make every batch the next one of its producer."""
        for buffer in self._buffers:
            header = read_header(buffer)
            time_ms = NOW_MS + self._batches_made
            sequence = self._batches_made * self.records_per_batch & INT32_MAX
            header = header._replace(
                base_timestamp=time_ms,
                max_timestamp=time_ms,
                base_sequence=sequence if header.producer_id >= 0 else -1,
            )
            buffer[:HEADER_SIZE] = write_header(header)
            seal(buffer)
            self._batches_made += 1
