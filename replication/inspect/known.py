"""What is known about a partition besides its segments: from our state store, or Kafka's files.

Not here: whether the segments agree (`partition.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import Offset
from ottla.replication.epochs import EpochStart
from ottla.replication.inspect.kafka_files import (
    RECOVERY_POINTS_NAME,
    START_OFFSETS_NAME,
    KafkaProducer,
    read_epochs,
    read_offsets,
    read_snapshot,
    snapshot_names,
)
from ottla.replication.inspect.state_file import StateReader
from ottla.replication.log.files import INDEX_SUFFIX, read_names, segment_stem
from ottla.replication.log.state import (
    PartitionState,
    decode_producers,
    decode_state,
    partition_key,
    producers_key,
    producers_prefix,
    snapshot_offset,
)
from ottla.replication.producers import ProducerStates
from ottla.replication.storage.ports import Files

# Kafka's, ours, or a sentence that says why it cannot be read.
Snapshot = ProducerStates | list[KafkaProducer] | str
NOT_TOLD_HOW_FAR: Final = "nothing says how far it was synced: all of it is expected to be sound"


@dataclass(slots=True, kw_only=True)
class Known:
    """The facts that a partition's segments are held against."""

    name: str
    # Ours; None in a directory of Kafka's, or if it is lost.
    state: PartitionState | None = None
    # None: nobody knows.
    epochs: tuple[EpochStart, ...] | None = None
    start_offset: Offset | None = None
    # Of a directory without our state: below it everything was synced. None: everything was.
    kafka_recovery_point: Offset | None = None
    # Offset and name of each producer snapshot.
    snapshots: list[tuple[Offset, str]] = field(default_factory=list)
    load_snapshot: Callable[[Offset, str], Snapshot] = lambda offset, name: []
    # The caller knows that this log is compacted.
    gaps_allowed: bool = False
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def is_settled(self, base_offset: Offset, position: int, offset: Offset) -> bool:
        """Return whether a place in a segment lies below the recovery point."""
        state = self.state
        if state is not None:
            return (base_offset, position) < (state.recovery_base, state.recovery_position)
        return self.kafka_recovery_point is None or offset < self.kafka_recovery_point

    def trusted_entries(self, base_offset: Offset, name: str) -> int | None:
        """Return how many entries of an index file must be right; None: all."""
        state = self.state
        if state is None or base_offset < state.recovery_base:
            return None
        if base_offset > state.recovery_base:
            return 0
        is_offsets = name.endswith(INDEX_SUFFIX)
        return state.trusted.index_entries if is_offsets else state.trusted.time_entries


def known_to_us(files: Files, directory: str, name: str, store: StateReader) -> Known:
    """Return what our state store knows of a partition."""
    known = Known(name=name)
    try:
        value = store.get(partition_key(name))
        known.state = None if value is None else decode_state(name, value)
    except CorruptionError as error:
        known.problems.append(str(error))
        return known
    if known.state is None:
        # Between making the directory and writing the record there may have been a crash.
        names = read_names(files, directory)
        is_empty = not names.strangers and all(
            files.size_of(f"{segment_stem(directory, base)}.log") == 0 for base in names.bases
        )
        sentence = f"the state store does not know {name}"
        (known.notes if is_empty else known.problems).append(sentence)
        return known
    known.epochs, known.start_offset = known.state.epochs, known.state.start_offset
    known.snapshots = _our_snapshots(name, store, known.problems)
    known.load_snapshot = lambda offset, _: _load_ours(name, store, offset)
    return known


def _our_snapshots(name: str, store: StateReader, problems: list[str]) -> list[tuple[Offset, str]]:
    snapshots: list[tuple[Offset, str]] = []
    pairs = store.scan(producers_prefix(name))
    while True:
        try:
            key, _ = next(pairs)
        except StopIteration:
            return snapshots
        except CorruptionError as error:
            problems.append(str(error))
            return snapshots
        snapshots.append((snapshot_offset(key), ""))


def _load_ours(name: str, store: StateReader, offset: Offset) -> Snapshot:
    try:
        value = store.get(producers_key(name, offset))
        return ProducerStates() if value is None else decode_producers(name, value)
    except CorruptionError as error:
        return str(error)


def known_to_kafka(files: Files, directory: str, name: str) -> Known:
    """Return what the files of a Kafka broker know of a partition."""
    known = Known(name=name)
    root = directory.rpartition("/")[0]
    try:
        known.epochs = read_epochs(files, directory)
        known.start_offset = read_offsets(files, f"{root}/{START_OFFSETS_NAME}").get(name)
        points = read_offsets(files, f"{root}/{RECOVERY_POINTS_NAME}")
        known.kafka_recovery_point = points.get(name)
    except (CorruptionError, OSError) as error:
        known.problems.append(str(error))
    if not read_names(files, directory).bases:
        known.problems.append("it has no segment, and nothing says what it should hold")
    elif known.kafka_recovery_point is None:
        known.notes.append(NOT_TOLD_HOW_FAR)
    known.snapshots = snapshot_names(files, directory)
    known.load_snapshot = lambda _, file_name: _load_kafkas(files, directory, file_name)
    return known


def _load_kafkas(files: Files, directory: str, name: str) -> Snapshot:
    try:
        return read_snapshot(files, directory, name)
    except (CorruptionError, OSError) as error:
        return str(error)
