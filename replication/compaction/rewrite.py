"""Which records of a batch stay when a log is compacted, and the batch that is left.

A visitors' book that keeps only everybody's last entry, on the page where it was written.

Q1  the last record of a key stays, at its offset
Q2  a tombstone stays until its delete horizon has passed: the time when the cleaner first met it
    plus `delete.retention.ms` (KIP-534 puts it into the batch's base timestamp)
Q3  base offset, last offset, epoch, producer and sequence of a batch stay as they were
Q4  a batch with no record left stays, empty, if it is its producer's last in what is cleaned: a
    restart or a truncation must find it (rule 62); and so does the last one of all: a follower
    learns from it where the log ends
Q5  what cannot be decoded or has no key stays: nothing has replaced it
Q6  records of an aborted transaction go, whatever their keys, and replace nothing
Q7  a marker stays while any batch of its transaction is there, and then for as long as a tombstone;
    and for as long as it is the last word of a live producer
Q8  a tombstone or a marker that some replica may lack stays: whoever has what it speaks of, and
    comes back late, must hear of it

Not here: files (`cleaner.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from ottla.proto.errors import RecordsError
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import codec_of
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import BatchHeader
from ottla.proto.records.record import Record

# A digest of 16 bytes: two different keys of the same one are not to be expected before 2⁶⁴ keys.
_DIGEST_BYTES: Final = 16


class KeyMap:
    """The last offset of each key, for a bounded number of keys."""

    def __init__(self, keys_max: int) -> None:
        self._offsets: dict[bytes, int] = {}
        self._keys_max: Final = keys_max

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, records: list[Record]) -> bool:
        """Take in a whole batch; return False, and take in nothing, if there is no room."""
        if len(self._offsets) + len(records) > self._keys_max and self._offsets:
            return False
        for record in records:
            if record.key is not None:
                self._offsets[_digest(record.key)] = record.offset
        return True

    def is_replaced(self, key: bytes, offset: int) -> bool:
        return self._offsets.get(_digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_DIGEST_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What is left of a batch."""

    # None: nothing.
    batch: bytes | None
    removed_count: int = 0
    # When a tombstone in it may go; None if it has none.
    horizon_ms: int | None = None
    is_changed: bool = False


def rewrite_batch(
    batch: bytes,
    header: BatchHeader,
    latest: KeyMap,
    *,
    now_ms: int,
    delete_retention_ms: int,
    stays_empty: bool,
    is_aborted: bool = False,
    is_everywhere: bool = True,
) -> Rewritten:
    """Return what is left of one whole batch of records, whose checksum the caller has checked."""
    horizon = header.base_timestamp if header.has_delete_horizon else None
    if header.count == 0:
        return Rewritten(
            batch if stays_empty else None, horizon_ms=horizon, is_changed=not stays_empty
        )
    if is_aborted:
        left = _rebuilt(header, [], None) if stays_empty else None
        return Rewritten(left, header.count, is_changed=True)
    try:
        records = decode_records(batch)
    except RecordsError:
        return Rewritten(batch, horizon_ms=horizon)
    due = horizon if is_everywhere else None
    kept = [record for record in records if _stays(record, latest, due, now_ms)]
    has_tombstone = any(record.value is None and record.key is not None for record in kept)
    new_horizon = None
    if has_tombstone:
        new_horizon = horizon if horizon is not None else now_ms + delete_retention_ms
    removed = len(records) - len(kept)
    if removed == 0 and new_horizon == horizon:
        return Rewritten(batch, horizon_ms=horizon)
    if not kept and not stays_empty:
        return Rewritten(None, removed, is_changed=True)
    rebuilt = _rebuilt(header, kept, new_horizon)
    return Rewritten(rebuilt, removed, new_horizon, is_changed=True)


def rewrite_marker(
    batch: bytes,
    header: BatchHeader,
    *,
    now_ms: int,
    delete_retention_ms: int,
    stays: bool,
) -> Rewritten:
    """Return what is left of a control batch; `stays` if it is needed yet (Q7)."""
    horizon = header.base_timestamp if header.has_delete_horizon else None
    if stays or header.count == 0:
        return Rewritten(batch, horizon_ms=horizon)
    if horizon is not None:
        is_over = now_ms >= horizon
        return Rewritten(
            None if is_over else batch, horizon_ms=None if is_over else horizon, is_changed=is_over
        )
    try:
        records = decode_records(batch)
    except RecordsError:
        return Rewritten(batch)
    horizon = now_ms + delete_retention_ms
    return Rewritten(_rebuilt(header, records, horizon), horizon_ms=horizon, is_changed=True)


def _stays(record: Record, latest: KeyMap, horizon_ms: int | None, now_ms: int) -> bool:
    if record.key is None:
        return True
    if latest.is_replaced(record.key, record.offset):
        return False
    is_tombstone = record.value is None
    return not (is_tombstone and horizon_ms is not None and now_ms >= horizon_ms)


def _rebuilt(header: BatchHeader, records: list[Record], horizon_ms: int | None) -> bytes:
    keeps_time = not records or header.timestamp_type
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        codec=codec_of(header.codec_bits),
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.leader_epoch,
        transactional=header.is_transactional,
        control=header.is_control,
        delete_horizon_ms=horizon_ms,
        max_timestamp=header.max_timestamp if keeps_time else None,
    )
