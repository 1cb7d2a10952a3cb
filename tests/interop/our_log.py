"""Logs that our own code writes, for Kafka to judge, and what a reader must find in them.

Payloads are words without spaces, because DumpLogSegments prints them as they are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import CODEC_NAMES, Codec
from ottla.proto.records.header import TimestampType
from ottla.proto.records.record import Record
from ottla.replication.compaction.cleaner import clean
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_log
from ottla.replication.log.recovery import open_log
from ottla.replication.log.surgery import purge, truncate
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.memory import MemoryStateStore

START_MS: Final = 1_700_000_000_000
# Small, so that every log has several segments and every index several entries.
SEGMENT_BYTES: Final = 40_000
BATCH_COUNT: Final = 60
RECORD_COUNT: Final = 20
PRODUCER_ID: Final = 4711
PRODUCER_EPOCH: Final = 3


@dataclass(frozen=True, slots=True)
class Variant:
    """One kind of log: what the topic says, and how the producer packs."""

    settings: LogSettings
    codec: Codec = Codec.NONE
    # The codec that must be found in the log.
    stored_codec: Codec = Codec.NONE
    idempotent: bool = False
    # A compacted topic takes no record without a key.
    always_keyed: bool = False


@dataclass(slots=True)
class OurLog:
    """A closed log, and its records as they must be read: with final offsets and times."""

    directory: Path
    variant: Variant
    records: list[Record] = field(default_factory=list)
    # When the tombstones may go; None in a log that was not compacted.
    delete_horizon_ms: int | None = None


def _settings(**changed: object) -> LogSettings:
    return LogSettings(segment_bytes=SEGMENT_BYTES, retention_ms=-1, **changed)  # type: ignore[arg-type]


VARIANTS: Final = {
    **{
        f"{codec.name.lower()}": Variant(_settings(), codec=codec, stored_codec=codec)
        for codec in Codec
    },
    **{
        f"recompressed-{codec.name.lower()}": Variant(
            _settings(compression_type=CODEC_NAMES[codec]),
            codec=Codec.GZIP if codec is Codec.NONE else Codec.NONE,
            stored_codec=codec,
        )
        for codec in Codec
    },
    "append-time": Variant(_settings(timestamp_type=TimestampType.LOG_APPEND_TIME)),
    "append-time-zstd": Variant(
        _settings(timestamp_type=TimestampType.LOG_APPEND_TIME, compression_type="zstd"),
        stored_codec=Codec.ZSTD,
    ),
    "idempotent": Variant(_settings(), idempotent=True),
}


COMPACTED: Final = {
    f"compacted-{codec.name.lower()}": Variant(
        _settings(compact=True, delete=False, min_cleanable_dirty_ratio=0.0),
        codec=codec,
        stored_codec=codec,
        idempotent=True,
        always_keyed=True,
    )
    for codec in (Codec.NONE, Codec.ZSTD)
}
NAMES: Final = (*VARIANTS, "truncated", "recovered", *COMPACTED)


def write_our_logs(root: Path) -> dict[str, OurLog]:
    """Write one log of each kind, by name."""
    logs = {name: write_our_log(root, name, variant) for name, variant in VARIANTS.items()}
    logs["truncated"] = write_truncated_log(root)
    logs["recovered"] = write_recovered_log(root)
    for name, variant in COMPACTED.items():
        logs[name] = write_compacted_log(root, name, variant)
    return logs


def write_our_log(root: Path, name: str, variant: Variant) -> OurLog:
    """Write a log of several segments and close it cleanly."""
    place = _place(root, name, variant)
    log = create_log(place)
    log.assign_epoch(LeaderEpoch(0))
    written = OurLog(Path(place.directory), variant)
    fill(log, written)
    log.checkpoint()
    log.close()
    return written


def write_truncated_log(root: Path) -> OurLog:
    """Write a log, cut it in its middle as a follower would, and go on under a new epoch."""
    variant = Variant(_settings())
    place = _place(root, "truncated", variant)
    log = create_log(place)
    log.assign_epoch(LeaderEpoch(0))
    written = OurLog(Path(place.directory), variant)
    fill(log, written)
    end = truncate(log, Offset(written.records[len(written.records) // 2].offset))
    written.records = [one for one in written.records if one.offset < end]
    log.assign_epoch(LeaderEpoch(1))
    fill(log, written)
    log.checkpoint()
    log.close()
    return written


def write_recovered_log(root: Path) -> OurLog:
    """Write a log, lose its indexes and the end of its last batch, and open it again."""
    variant = Variant(_settings())
    place = _place(root, "recovered", variant)
    log = create_log(place)
    log.assign_epoch(LeaderEpoch(0))
    written = OurLog(Path(place.directory), variant)
    fill(log, written)
    log.close()
    for index in (*written.directory.glob("*.index"), *written.directory.glob("*.timeindex")):
        index.unlink()
    newest = max(written.directory.glob("*.log"))
    newest.write_bytes(newest.read_bytes()[:-7])
    log, _ = open_log(place, now_ms=START_MS + 10_000)
    written.records = written.records[: log.end_offset]
    for segment in log.segments:
        # Those below the newest are rebuilt when somebody first needs them: now.
        segment.find(Offset(segment.base_offset))
    fill(log, written)
    log.checkpoint()
    log.close()
    return written


def write_compacted_log(root: Path, name: str, variant: Variant) -> OurLog:
    """Write the same keys twice, by two producers, and clean all but the newest segment.

    The last batch of the first producer has no record left, and stays as the memory of it.
    """
    place = _place(root, name, variant)
    log = create_log(place)
    log.assign_epoch(LeaderEpoch(0))
    written = OurLog(Path(place.directory), variant)
    fill(log, written)
    fill(log, written, producer_id=PRODUCER_ID + 1)
    log.advance_high_watermark(log.end_offset)
    log.checkpoint()
    written.records = _survivors(written.records, int(log.active.base_offset))
    now_ms = START_MS + 20_000
    written.delete_horizon_ms = now_ms + variant.settings.delete_retention_ms
    report = clean(log, now_ms=now_ms)
    assert report is not None, "cleaning was due"
    assert purge(log, now_ms=now_ms + variant.settings.file_delete_delay_ms) > 0
    log.checkpoint()
    log.close()
    return written


def _survivors(records: list[Record], active_base: int) -> list[Record]:
    """Return what compaction leaves: the last of each key, and all of the newest segment."""
    last = {one.key: one.offset for one in records if one.offset < active_base}
    return [one for one in records if one.offset >= active_base or last[one.key] == one.offset]


def fill(log: Log, written: OurLog, producer_id: int = PRODUCER_ID) -> None:
    """Append batches until the log has several segments more."""
    variant = written.variant
    append_time = variant.settings.timestamp_type is TimestampType.LOG_APPEND_TIME
    for number in range(BATCH_COUNT):
        now_ms = START_MS + 10_000 + number
        first = int(log.end_offset)
        records = [_record(first, i, variant) for i in range(RECORD_COUNT)]
        batch = build_batch(
            records,
            codec=variant.codec,
            producer_id=producer_id if variant.idempotent else -1,
            producer_epoch=PRODUCER_EPOCH if variant.idempotent else -1,
            base_sequence=number * RECORD_COUNT if variant.idempotent else -1,
        )
        log.append_as_leader(batch, epoch=log.epochs.latest, now_ms=now_ms)
        for record in records:
            time_ms = now_ms if append_time else record.timestamp
            offset = first + record.offset
            written.records.append(record._replace(offset=offset, timestamp=time_ms))


def _record(first: int, i: int, variant: Variant) -> Record:
    """Return a record with all that a record can have or lack, and times out of order."""
    number = first + i
    noise = hashlib.sha256(str(number).encode()).hexdigest()
    key = (
        None
        if i % 4 == 0 and not variant.always_keyed
        else f"key-{int(noise[:6], 16) % 97}".encode()
    )
    value = None if i % 7 == 6 else b"" if i % 9 == 8 else f"value-{number}-{noise}".encode()
    headers = (("trace", noise[:8].encode()), ("none", None)) if i % 3 == 0 else ()
    return Record(i, START_MS + number * 7919 % 9973, key, value, headers)


def _place(root: Path, name: str, variant: Variant) -> LogPlace:
    files = DiskFiles()
    return LogPlace(
        name=f"{name}-0",
        directory=str(root / f"{name}-0"),
        files=files,
        store=MemoryStateStore(),
        handles=Handles(files),
        settings=variant.settings,
    )
