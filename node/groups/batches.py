"""Batches of the topics that coordinators keep.

Not here: what the records say (`records.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ottla.node.groups.offsets import Place
from ottla.node.groups.records import Key, encode_key
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record

# Keys and what they say; None: a tombstone.
Rows = Sequence[tuple[Key, bytes | None]]

# Tombstones of one batch.
_AT_ONCE: Final = 1_000


def batch_of(rows: Rows, wall_ms: int, producer: tuple[int, int, int] | None = None) -> bytes:
    """Return a batch; with a producer's id, epoch and sequence, one of its transaction."""
    records = [Record(at, wall_ms, encode_key(key), value) for at, (key, value) in enumerate(rows)]
    if producer is None:
        return build_batch(records)
    producer_id, epoch, sequence = producer
    return build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def in_batches(places: Sequence[Place]) -> Iterable[dict[Place, None]]:
    """Return tombstones for places, as many at once as a batch may have."""
    for start in range(0, len(places), _AT_ONCE):
        yield dict.fromkeys(places[start : start + _AT_ONCE])
