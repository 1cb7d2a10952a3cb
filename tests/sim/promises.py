"""What must hold of a log after whatever happened, each promise a function."""

from __future__ import annotations

from random import Random

from ottla.proto.ids import Offset
from ottla.replication.compaction.cleaner import CleaningJob
from ottla.replication.log.log import Log
from ottla.replication.log.lookup import first_at_or_after
from tests.builders import batches_of
from tests.sim.model import Model, ModelBatch


class BrokenPromiseError(AssertionError):
    """A promise was not kept."""


def require(holds: object, promise: str) -> None:
    if not holds:
        raise BrokenPromiseError(promise)


def epochs_agree(log: Log, model: Model) -> bool:
    """Every batch is in the epoch it was written in."""
    for batch in model.readable():
        at = log.epochs.epoch_at(Offset(max(batch.header.base_offset, log.start_offset)))
        if at != batch.header.leader_epoch:
            return False
    return True


def check_assigned(log: Log, outcomes: list[Model]) -> None:
    """An epoch that was assigned, and that nothing was about to cut off, is there (rule 21)."""
    surely = [
        entry
        for entry in outcomes[0].epochs
        if entry[1] <= log.end_offset and all(entry in outcome.epochs for outcome in outcomes)
    ]
    if surely:
        require(log.epochs.latest >= surely[-1][0], f"epoch {surely[-1]} is durable")


def check_producers(log: Log, actual: list[ModelBatch]) -> None:
    """The last batch of every producer in the log is the last that the log remembers (rule 62)."""
    last = {
        batch.header.producer_id: batch.header for batch in actual if batch.header.producer_id >= 0
    }
    for producer_id, header in last.items():
        producer = log.producers.get(producer_id)
        if producer is None:
            raise BrokenPromiseError(f"producer {producer_id} is known")
        placed = producer.batches[-1]
        require(
            (placed.first_sequence, placed.first_offset, placed.last_offset)
            == (header.base_sequence, header.base_offset, header.last_offset),
            f"producer {producer_id}: {placed} and not {header}",
        )


def rewritten_to(job: CleaningJob) -> int:
    """Return where the segments end that the job has rewritten."""
    reach = max(job.cleaned_to, job.plan.dirty_from)
    beyond = [group[0] for group in job.plan.groups if group[0] >= reach]
    return min(beyond, default=job.plan.end_offset)


def records_between(inner: list[ModelBatch], outer: list[ModelBatch]) -> bool:
    """Return whether every record of `inner` is in `outer`, the same and at the same offset."""
    known = {record.offset: record for batch in outer for record in batch.records}
    return all(known.get(record.offset) == record for batch in inner for record in batch.records)


def check_running(log: Log, model: Model) -> None:
    """What holds between any two steps (rule 69)."""
    require(log.end_offset == model.end_offset, f"end {log.end_offset}, {model.end_offset}")
    require(log.start_offset == model.start_offset, "start")
    require(log.start_offset <= log.high_watermark <= log.end_offset, "L1")
    require(log.state.recovery_point <= log.synced_offset <= log.end_offset, "L2, L3")
    bases = [segment.base_offset for segment in log.segments]
    require(bases == sorted(set(bases)), "segments are in order")


def check_reads(log: Log, model: Model, dice: Random, timestamp: int) -> None:
    """What a reader gets: everything, at an offset from the dice, and at a time."""
    readable = model.readable()
    require(batches_of(log) == [batch.raw for batch in readable], "what is read")
    if readable:
        batch = dice.choice(readable)
        first = max(batch.header.base_offset, model.start_offset)
        offset = dice.randint(first, batch.header.last_offset)
        found = log.read(Offset(offset), bytes_max=1)
        require(found is not None and found.read() == batch.raw, f"read at {offset}")
    answer = first_at_or_after(log, timestamp)
    require(answer == model.first_at_or_after(timestamp), f"look-up of {timestamp}")


def everything_of(log: Log) -> tuple[object, ...]:
    """What two openings of the same directory must agree on."""
    producers = [(p.producer_id, p.epoch, list(p.batches)) for p in log.producers]
    offsets = log.start_offset, log.end_offset
    return batches_of(log), log.epochs.entries, offsets, producers
