"""Producer snapshots held against the producers that the batches themselves tell of (rule 62).

A snapshot is a photograph: it must show what was there. It may show more than is there today,
because retention and compaction have taken batches away since; and it may show fewer people,
because some had left (a silent producer is forgotten) before it was taken.

V1  a batch in the snapshot that the log must still have is in the log, with these sequences
V2  a batch in the log is in the snapshot, if the snapshot has older ones of the same producer
V3  timestamps count only above what compaction has rewritten

Not here: files, and collecting what the batches tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ottla.proto.ids import Offset
from ottla.replication.inspect.kafka_files import KafkaProducer
from ottla.replication.producers import Placed, Producer, ProducerStates


class Verdict(NamedTuple):
    """What a comparison found."""

    problems: list[str]
    notes: list[str]


def compare_snapshot(
    offset: Offset, snapshot: ProducerStates, found: ProducerStates, reach: Offset
) -> Verdict:
    """Hold the snapshot at `offset` against the batches below it.

    `reach`: from there on the log is complete; below, batches may be gone or rewritten.
    """
    verdict = Verdict([], [])
    for producer in snapshot:
        for sentence in _contradictions(producer, found.get(producer.producer_id), reach):
            verdict.problems.append(f"producer snapshot at {offset}: {sentence}")
    for producer in found:
        if snapshot.get(producer.producer_id) is None and producer.last_offset >= reach:
            verdict.notes.append(
                f"producer snapshot at {offset}: producer {producer.producer_id} is not in it, and "
                f"its last batch is at offset {producer.last_offset}; it may have been forgotten"
            )
    return verdict


def _contradictions(producer: Producer, found: Producer | None, reach: Offset) -> Iterator[str]:
    who = f"producer {producer.producer_id}"
    owed = [placed for placed in producer.batches if placed.first_offset >= reach]
    if found is None:
        if owed:
            yield f"{who} has {_told(owed[-1])}; the log has nothing of it"
        return
    if found.epoch != producer.epoch:
        if owed or found.last_offset >= reach:
            yield f"{who} has epoch {producer.epoch}; the log has epoch {found.epoch}"
        return
    yield from _contradictions_in_epoch(producer, found, owed, reach)


def _contradictions_in_epoch(
    producer: Producer, found: Producer, owed: list[Placed], reach: Offset
) -> Iterator[str]:
    who = f"producer {producer.producer_id}"
    remembered = {placed.last_offset: placed for placed in producer.batches}
    there = {placed.last_offset for placed in found.batches}
    for placed in owed:
        if placed.last_offset not in there:
            yield f"{who} has {_told(placed)}; the log has no such batch"
            return
    oldest = producer.batches[0].first_offset if producer.batches else reach
    for placed in found.batches:
        other = remembered.get(placed.last_offset)
        if other is None and placed.first_offset >= max(oldest, reach):
            yield f"{who} lacks {_told(placed)}, which the log has"
            return
        if other is not None and not _agree(other, placed, reach):
            yield f"{who} has {_told(other)}; the log has {_told(placed)}"
            return


def _agree(remembered: Placed, found: Placed, reach: Offset) -> bool:
    if found.first_offset < reach:
        # Compaction may have taken the record that had the largest timestamp.
        return remembered[:4] == found[:4]
    return remembered == found


def _told(placed: Placed) -> str:
    return (
        f"sequences {placed.first_sequence} to {placed.last_sequence} at offsets "
        f"{placed.first_offset} to {placed.last_offset}, time {placed.timestamp}"
    )


def compare_kafka_snapshot(
    name: str, snapshot: Iterable[KafkaProducer], found: ProducerStates
) -> list[str]:
    """Hold a snapshot of Kafka's against the batches below it; return what contradicts them."""
    problems = []
    for producer in snapshot:
        there = found.get(producer.producer_id)
        # An epoch that only a transaction marker raised has no batch to compare.
        if there is None or producer.last_offset < 0 or there.epoch != producer.epoch:
            continue
        # Below the snapshot's last batch it is compaction that took the later ones.
        is_same = (there.last_offset, there.last_sequence) == producer[3:1:-1]
        if not is_same and there.last_offset >= producer.last_offset:
            problems.append(
                f"{name}: producer {producer.producer_id} has sequence {producer.last_sequence} at "
                f"offset {producer.last_offset}; the log has sequence {there.last_sequence} at "
                f"offset {there.last_offset}"
            )
    return problems
