"""What the simulated users write, and the settings they write it under, from dice."""

from __future__ import annotations

from random import Random

from ottla.proto.records.build import build_batch
from ottla.proto.records.compression import Codec
from ottla.proto.records.record import Record
from ottla.replication.settings import LogSettings
from tests.sim.scenarios import Scenario


def random_settings(dice: Random, scenario: Scenario) -> LogSettings:
    return LogSettings(
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


def random_batch(
    dice: Random,
    *,
    now_ms: int,
    segment_bytes: int,
    producer_id: int,
    producer_epoch: int,
    sequence: int,
) -> bytes:
    """Return a batch as a producer sends it: few keys, tombstones, times out of order."""
    # Some batches reach over several pages, so that a part of one can be lost.
    is_large = segment_bytes >= 20_000 and dice.random() < 0.25
    count = 2 if is_large else dice.choice((1, 1, 2, 5, 20))
    records = []
    for number in range(count):
        size = 4000 if is_large else dice.randrange(60)
        value = None if dice.random() < 0.2 else dice.randbytes(size)
        timestamp = now_ms - dice.choice((0, 0, 1, 50, 150))
        records.append(Record(number, timestamp, b"k%d" % dice.randrange(8), value, ()))
    return build_batch(
        records,
        codec=dice.choice((Codec.NONE, Codec.NONE, Codec.LZ4, Codec.GZIP)),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
    )


def stamped(raw: bytes, offset: int, epoch: int) -> bytes:
    """Return the batch as a log has it."""
    batch = bytearray(raw)
    batch[0:8] = offset.to_bytes(8, "big")
    batch[12:16] = epoch.to_bytes(4, "big")
    return bytes(batch)
