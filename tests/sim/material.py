"""What the simulated users write, and the settings they write it under, from dice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.header import TimestampType, read_header
from ottla.proto.records.record import Record
from ottla.replication.settings import LogSettings
from tests.sim.model import ModelBatch
from tests.sim.scenarios import Scenario

# What a topic may ask for; with anything else batches stay as they were sent.
CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A batch as its producer sends it, and as a log has to keep it."""

    # At offsets from 0 on.
    records: tuple[Record, ...]
    codec: Codec
    producer_id: int
    producer_epoch: int
    sequence: int

    def raw(self) -> bytes:
        return build_batch(
            self.records,
            codec=self.codec,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
        )

    def kept(self, settings: LogSettings, *, offset: int, epoch: int, now_ms: int) -> ModelBatch:
        """Return what a leader with these settings must make of it, built anew from its records."""
        gives_time = settings.timestamp_type is TimestampType.LOG_APPEND_TIME
        records = [record._replace(offset=offset + record.offset) for record in self.records]
        raw = build_batch(
            records,
            base_offset=offset,
            codec=CODECS.get(settings.compression_type, self.codec),
            timestamp_type=settings.timestamp_type,
            max_timestamp=now_ms if gives_time else None,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequence,
            leader_epoch=epoch,
        )
        if gives_time:
            records = [record._replace(timestamp=now_ms) for record in records]
        return ModelBatch(raw, read_header(raw), tuple(records))


def random_settings(dice: Random, scenario: Scenario) -> LogSettings:
    settings = LogSettings(
        compact=scenario.compact,
        delete=scenario.delete,
        segment_bytes=dice.choice((2000, 4000, 20_000)),
        index_interval_bytes=dice.choice((0, 64, 500)),
        segment_index_bytes=dice.choice((80, 10_000)),
        segment_ms=dice.choice((50, 10**9)),
        file_delete_delay_ms=dice.choice((0, 20)),
        delete_retention_ms=dice.choice((5, 100)),
        min_cleanable_dirty_ratio=dice.choice((0.0, 0.5)),
        retention_bytes=dice.choice((-1, 2000)),
        retention_ms=dice.choice((-1, 100)),
        producer_expiry_ms=10**12,
    )
    return random_conversion(dice, settings)


def random_conversion(dice: Random, settings: LogSettings) -> LogSettings:
    """Return the settings with another codec and another clock; mostly as they are by default."""
    return replace(
        settings,
        compression_type=dice.choice(("producer",) * 4 + tuple(CODECS)),
        timestamp_type=dice.choice((TimestampType.CREATE_TIME, *TimestampType)),
    )


def random_batch(
    dice: Random,
    settings: LogSettings,
    *,
    now_ms: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
) -> Sent:
    """Return a batch as a producer sends it: few keys, tombstones, times out of order."""
    # Some batches reach over several pages, so that a part of one can be lost.
    is_large = settings.segment_bytes >= 20_000 and dice.random() < 0.25
    count = 2 if is_large else dice.choice((1, 1, 2, 5, 20))
    behind_ms: tuple[int, ...] = (0, 0, 1, 50, 150)
    if settings.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # Nobody looks at what the producer says: it may be anything.
        behind_ms += (now_ms, -(10**10))
    records = []
    for number in range(count):
        size = 4000 if is_large else dice.randrange(60)
        value = None if dice.random() < 0.2 else dice.randbytes(size)
        timestamp = now_ms - dice.choice(behind_ms)
        headers = dice.choice(((), (), (), (("h", None), ("h", b"%d" % number))))
        records.append(Record(number, timestamp, b"k%d" % dice.randrange(8), value, headers))
    return Sent(
        records=tuple(records),
        codec=dice.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        sequence=sequence,
    )


def stamped(raw: bytes, offset: int, epoch: int) -> bytes:
    """Return the batch as a log has it."""
    batch = bytearray(raw)
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return bytes(batch)
