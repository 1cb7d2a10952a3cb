"""The small files that a Kafka broker keeps beside its segments, and we keep in the state store.

    leader-epoch-checkpoint            which leader epoch began where
    <offset>.snapshot                  the producers as they were at <offset>
    recovery-point-offset-checkpoint   per data directory: below it everything was synced
    log-start-offset-checkpoint        per data directory: where the logs start

Not here: whether they are right (`partition.py`, `producer_check.py`).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.epochs import EpochStart
from ottla.replication.log.files import base_of
from ottla.replication.storage.ports import Files

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
RECOVERY_POINTS_NAME: Final = "recovery-point-offset-checkpoint"
START_OFFSETS_NAME: Final = "log-start-offset-checkpoint"
# Any of these beside partitions makes a directory a broker's.
CHECKPOINT_NAMES: Final = (
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
SNAPSHOT_SUFFIX: Final = ".snapshot"
_NAMES: Final = (EPOCHS_NAME, "partition.metadata", "quorum-state")
_SUFFIXES: Final = (SNAPSHOT_SUFFIX, ".txnindex", ".checkpoint", ".deleted", ".cleaned", ".swap")
# More is no file of Kafka's, and need not be read to say so.
_BYTES_MAX: Final = 64 << 20
_SNAPSHOT_HEAD: Final = struct.Struct(">hIi")
_SNAPSHOT_CRC_START: Final = 6
_SNAPSHOT_VERSION: Final = 1
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, first
# offset of the open transaction.
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


class KafkaProducer(NamedTuple):
    """One producer in a snapshot of Kafka's: only its last batch is remembered."""

    producer_id: int
    epoch: int
    last_sequence: int
    # −1: no data batch in this epoch yet.
    last_offset: int


def is_kafkas(name: str) -> bool:
    """Return whether Kafka puts a file of this name into a partition's directory."""
    return name in _NAMES or name.endswith(_SUFFIXES)


def read_epochs(files: Files, directory: str) -> tuple[EpochStart, ...] | None:
    """Return the epochs of a partition, None if there is no such file, or `CorruptionError`."""
    path = f"{directory}/{EPOCHS_NAME}"
    if not files.exists(path):
        return None
    epochs = [
        EpochStart(LeaderEpoch(_number(path, epoch)), Offset(_number(path, start)))
        for epoch, start in _rows(path, _read(files, path), 2)
    ]
    for older, newer in pairwise(epochs):
        if newer.epoch <= older.epoch or newer.start_offset <= older.start_offset:
            raise CorruptionError(
                f"{EPOCHS_NAME} is damaged: epoch {newer.epoch} at {newer.start_offset} stands "
                f"after epoch {older.epoch} at {older.start_offset}"
            )
    return tuple(epochs)


def read_offsets(files: Files, path: str) -> dict[str, Offset]:
    """Return partition → offset of a data directory's checkpoint; empty if it is absent."""
    if not files.exists(path):
        return {}
    return {
        f"{topic}-{partition}": Offset(_number(path, offset))
        for topic, partition, offset in _rows(path, _read(files, path), 3)
    }


def snapshot_names(files: Files, directory: str) -> list[tuple[Offset, str]]:
    found = [(base_of(name, SNAPSHOT_SUFFIX), name) for name in files.list_dir(directory)]
    return sorted((offset, name) for offset, name in found if offset is not None)


def read_snapshot(files: Files, directory: str, name: str) -> list[KafkaProducer]:
    """Return the producers of a snapshot, or raise `CorruptionError`."""
    raw = _read(files, f"{directory}/{name}")
    if len(raw) < _SNAPSHOT_HEAD.size:
        raise CorruptionError(f"{name} is damaged: it has {len(raw)} bytes")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(raw)
    if version != _SNAPSHOT_VERSION:
        raise CorruptionError(f"{name} has version {version}; this program knows 1")
    found = crc32c(raw[_SNAPSHOT_CRC_START:])
    if found != crc:
        raise CorruptionError(f"{name} has checksum {found:#010x} where {crc:#010x} was written")
    if count * _SNAPSHOT_ENTRY.size != len(raw) - _SNAPSHOT_HEAD.size:
        raise CorruptionError(f"{name} is damaged: {count} producers in {len(raw)} bytes")
    rows = _SNAPSHOT_ENTRY.iter_unpack(raw[_SNAPSHOT_HEAD.size :])
    return [KafkaProducer(row[0], row[1], row[2], row[3]) for row in rows]


def _read(files: Files, path: str) -> bytes:
    file = files.open(path, writable=False)
    try:
        raw = file.read_at(0, _BYTES_MAX + 1)
    finally:
        file.close()
    if len(raw) > _BYTES_MAX:
        raise CorruptionError(f"{path} is larger than {_BYTES_MAX} bytes; it is damaged")
    return raw


def _rows(path: str, raw: bytes, width: int) -> list[list[str]]:
    """Return the rows of a checkpoint: a line with version 0, one with the count, then the rows."""
    name = path.rpartition("/")[2]
    try:
        lines = raw.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise CorruptionError(f"{name} is damaged: it is not text") from None
    if len(lines) < 2 or lines[0] != "0" or lines[1] != str(len(lines) - 2):
        raise CorruptionError(f"{name} is damaged: it does not say how many lines it has")
    rows = [line.split(" ") for line in lines[2:]]
    for row in rows:
        if len(row) != width:
            raise CorruptionError(f"{name} is damaged: a line has {len(row)} words")
    return rows


def _number(path: str, text: str) -> int:
    if not text.isdigit():
        name = path.rpartition("/")[2]
        raise CorruptionError(f"{name} is damaged: {text[:20]!r} is not a number")
    return int(text)
