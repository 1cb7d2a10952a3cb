"""What is known of a partition besides its batches: start, end points, epochs, producers, files.

Not here: whether it is right (`verify.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeGuard

from ottla.proto.ids import Offset
from ottla.replication.inspect.kafka_files import KafkaProducer
from ottla.replication.inspect.known import Known, known_to_kafka, known_to_us
from ottla.replication.inspect.places import DataPlace, SegmentPlace, read_partition_files
from ottla.replication.inspect.state_file import STATE_NAME, StateReader, read_state_file
from ottla.replication.inspect.words import time_in_words
from ottla.replication.log.state import Intent, PartitionState, Pending
from ottla.replication.producers import Producer, ProducerStates
from ottla.replication.storage.ports import Files


@dataclass(frozen=True, slots=True)
class Overview:
    """One partition at a glance."""

    known: Known
    segments: list[tuple[SegmentPlace, int]]
    # Of the newest producer snapshot.
    snapshot_offset: Offset | None
    producers: ProducerStates | list[KafkaProducer]

    def as_json(self) -> dict[str, Any]:
        known, state = self.known, self.known.state
        told: dict[str, Any] = {
            "type": "partition",
            "partition": known.name,
            "problems": known.problems,
            "start_offset": known.start_offset,
            "high_watermark": state.high_watermark if state else None,
            "recovery_point": state.recovery_point if state else known.kafka_recovery_point,
            "recovery_base": state.recovery_base if state else None,
            "recovery_position": state.recovery_position if state else None,
            "cleaned_to": state.cleaned_to if state else None,
            "gaps_below": state.gaps_below if state else None,
            "horizon_ms": state.horizon_ms if state and state.horizon_ms >= 0 else None,
            "pending": state.pending.intent.name.lower() if state else None,
            "pending_offset": state.pending.offset if _is_pending(state) else None,
            "pending_sources": list(state.pending.sources) if _is_pending(state) else [],
            "epochs": None if known.epochs is None else [list(entry) for entry in known.epochs],
            "snapshot_offset": self.snapshot_offset,
            "producers": [_producer_as_json(producer) for producer in self.producers],
        }
        told["segments"] = [
            {"base_offset": place.base_offset, "file": place.log_name, "bytes": size}
            for place, size in self.segments
        ]
        return told

    def lines(self) -> Iterator[str]:
        known, state = self.known, self.known.state
        yield known.name
        for problem in known.problems:
            yield f"  ! {problem}"
        if known.start_offset is not None:
            yield f"  start offset     {known.start_offset}"
        if state is not None:
            yield f"  high watermark   {state.high_watermark}"
            yield (
                f"  recovery point   {state.recovery_point}, at {state.recovery_position} of "
                f"{state.recovery_base:020d}.log"
            )
            yield f"  cleaned to       {state.cleaned_to}"
            yield f"  gaps below       {state.gaps_below}"
            if state.horizon_ms >= 0:
                yield f"  tombstones go    {time_in_words(state.horizon_ms)}"
            if state.pending.intent is not Intent.NOTHING:
                yield f"  pending          {_pending_in_words(state.pending)}"
        elif known.kafka_recovery_point is not None:
            yield f"  recovery point   {known.kafka_recovery_point}"
        for epoch, start in known.epochs or ():
            yield f"  epoch {epoch:<10} from {start}"
        for producer in self.producers:
            yield f"  {_producer_in_words(producer)} (snapshot at {self.snapshot_offset})"
        for place, size in self.segments:
            yield f"  {place.log_name}  {size} bytes"


def _is_pending(state: PartitionState | None) -> TypeGuard[PartitionState]:
    return state is not None and state.pending.intent in (Intent.SWAP, Intent.RESET)


def _pending_in_words(pending: Pending) -> str:
    told = pending.intent.name.lower()
    if pending.intent is Intent.RESET:
        return f"{told} to {pending.offset}"
    if pending.intent is Intent.SWAP:
        sources = ", ".join(map(str, pending.sources))
        return f"{told} at {pending.offset}, in the place of the segments at {sources}"
    return told


def _producer_as_json(producer: Producer | KafkaProducer) -> dict[str, Any]:
    return {
        "producer_id": producer.producer_id,
        "epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_offset": producer.last_offset,
    }


def _producer_in_words(producer: Producer | KafkaProducer) -> str:
    told = (
        f"producer {producer.producer_id} epoch {producer.epoch} last sequence "
        f"{producer.last_sequence} at offset {producer.last_offset}"
    )
    if isinstance(producer, Producer):
        return f"{told}, seen {time_in_words(producer.last_seen_ms)}"
    return told


def open_state(files: Files, root: str, state_path: str | None) -> StateReader | None:
    """Return the state store beside the logs, or None if there is none. Raises `StorageError`."""
    path = state_path or f"{root}/{STATE_NAME}"
    if state_path is None and not files.exists(path):
        return None
    return read_state_file(path)


def overviews(files: Files, place: DataPlace, store: StateReader | None) -> Iterator[Overview]:
    for name in place.partitions:
        directory = f"{place.root}/{name}"
        if store is None:
            known = known_to_kafka(files, directory, name)
        else:
            known = known_to_us(files, directory, name, store)
        found = read_partition_files(files, directory, known.state)
        sizes = [
            (segment, files.size_of(f"{directory}/{segment.log_name}"))
            for segment in found.segments
        ]
        offset, producers = _newest_snapshot(known)
        yield Overview(known, sizes, offset, producers)


def _newest_snapshot(
    known: Known,
) -> tuple[Offset | None, ProducerStates | list[KafkaProducer]]:
    if not known.snapshots:
        return None, []
    offset, name = max(known.snapshots)
    snapshot = known.load_snapshot(offset, name)
    if isinstance(snapshot, str):
        known.problems.append(snapshot)
        return offset, []
    return offset, snapshot
