"""What must hold of a log after whatever happened, each promise a function."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from ottla.proto.ids import NO_TIMESTAMP, Offset
from ottla.proto.records.record import Record
from ottla.replication.compaction.cleaner import CleaningJob
from ottla.replication.inspect.verify import verify_directory
from ottla.replication.log.log import Log
from ottla.replication.log.lookup import first_at_or_after, latest_timestamp
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.ports import Files
from tests.builders import batches_of
from tests.sim.model import Model, ModelBatch, time_given


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
        # A retry is told the same time as the first try.
        given = time_given(header)
        require(given in (None, placed.timestamp), f"producer {producer_id}: {placed}, at {given}")


def rewritten_to(job: CleaningJob) -> int:
    """Return where the segments end that the job has rewritten."""
    reach = max(job.cleaned_to, job.plan.dirty_from)
    beyond = [group[0] for group in job.plan.groups if group[0] >= reach]
    return min(beyond, default=job.plan.end_offset)


def records_between(inner: list[ModelBatch], outer: list[ModelBatch]) -> bool:
    """Return whether every record of `inner` is in `outer`, the same and at the same offset."""
    known = {one[0].offset: one for one in _unpacked(outer)}
    return all(known.get(one[0].offset) == one for one in _unpacked(inner))


def _unpacked(batches: list[ModelBatch]) -> Iterator[tuple[Record, int, int | None]]:
    """Yield each record with the codec it is packed in and the time it was given."""
    for batch in batches:
        for record in batch.records:
            yield record, batch.header.codec_bits, time_given(batch.header)


def none_of(outcomes: list[Model], log: Log, actual: list[ModelBatch]) -> BrokenPromiseError:
    """The log is nothing that it may be after a restart."""
    told = (
        f"{one.start_offset} to {one.end_offset} promised {one.promised_end} "
        f"{[batch.header.base_offset for batch in one.readable()]}"
        for one in outcomes
    )
    return BrokenPromiseError(
        f"the log has {log.start_offset} to {log.end_offset}, batches "
        f"{[batch.header.base_offset for batch in actual]}; that is none of " + "; ".join(told)
    )


def check_running(log: Log, model: Model) -> None:
    """What holds between any two steps (rule 69)."""
    require(log.end_offset == model.end_offset, f"end {log.end_offset}, {model.end_offset}")
    require(log.start_offset == model.start_offset, "start")
    require(log.start_offset <= log.high_watermark <= log.end_offset, "L1")
    require(log.state.recovery_point <= log.synced_offset <= log.end_offset, "L2, L3")
    bases = [segment.base_offset for segment in log.segments]
    require(bases == sorted(set(bases)), "segments are in order")


def check_kept(actual: ModelBatch, told: ModelBatch) -> None:
    """A batch is what its leader had to make of what was sent."""
    at = f"at {told.header.base_offset}:"
    require(actual.records == told.records, f"{at} the records are those that were sent")
    codecs = actual.header.codec_bits, told.header.codec_bits
    require(codecs[0] == codecs[1], f"{at} codec {codecs[0]}, and the topic asks for {codecs[1]}")
    times = time_given(actual.header), time_given(told.header)
    require(times[0] == times[1], f"{at} given time {times[0]}, and it came at {times[1]}")
    require(actual.raw == told.raw, f"{at} every byte")


def check_reads(log: Log, model: Model, dice: Random, now_ms: int) -> None:
    """What a reader gets: everything, at an offset from the dice, and at a time."""
    readable, found = model.readable(), batches_of(log)
    require(len(found) == len(readable), "what is read")
    for raw, batch in zip(found, readable, strict=True):
        check_kept(ModelBatch.of(raw), batch)
    if readable:
        batch = dice.choice(readable)
        first = max(batch.header.base_offset, model.start_offset)
        offset = dice.randint(first, batch.header.last_offset)
        piece = log.read(Offset(offset), bytes_max=1)
        require(piece is not None and piece.read() == batch.raw, f"read at {offset}")
    check_times(log, model, dice, now_ms)


def check_times(log: Log, model: Model, dice: Random, now_ms: int) -> None:
    """What is found by time: from the dice, at and after that of a record, and the latest."""
    times = [now_ms - dice.randrange(200)]
    if records := model.records():
        timestamp = dice.choice(records).timestamp
        times += [timestamp, timestamp + 1]
    for timestamp in times:
        answer, told = first_at_or_after(log, timestamp), model.first_at_or_after(timestamp)
        require(answer == told, f"look-up of {timestamp}: {answer} and not {told}")
    answer, told = latest_timestamp(log), model.latest()
    require(answer == told, f"the latest: {answer} and not {told}")


def check_sound(files: Files, state: dict[bytes, bytes]) -> None:
    """What a dead process or machine left is sound: `verify` finds no problem."""
    found = verify_directory(
        files, "/data", state_path="/state", read_state=lambda path: MemoryStateStore(state)
    )
    problems = [problem for part in found.partitions for problem in part.problems]
    require(found.ok, f"verify: {found.problems} {problems}")


def everything_of(log: Log) -> tuple[object, ...]:
    """What two openings of the same directory must agree on."""
    producers = [(p.producer_id, p.epoch, list(p.batches)) for p in log.producers]
    offsets = log.start_offset, log.end_offset
    return batches_of(log), log.epochs.entries, offsets, producers


def require_retained(
    log: Log, model: Model, shelves: list[tuple[Offset, int]], *, now_ms: int
) -> None:
    """What retention has left is what looking at every batch says; nothing else is gone.

    `shelves` are the segments before it: where each began, and its size.
    """
    settings, mark = log.settings, model.high_watermark
    require(log.start_offset <= mark, "retention stays below the mark")
    if model.is_compacted:
        # Batches were made anew, and their segments with them.
        return
    ends = [base for base, _ in shelves[1:]] + [model.end_offset]
    was_rolled = log.active.base_offset != shelves[-1][0]
    wanted = model.start_offset
    for number, ((base, size), end) in enumerate(zip(shelves, ends, strict=True)):
        if base < model.start_offset:
            # What the model has forgotten of it may be the newest.
            wanted = min(max(log.start_offset, wanted), end)
            if wanted < end:
                break
            continue
        held = [one.header for one in model.batches if base <= one.header.base_offset < end]
        newest = max((header.max_timestamp for header in held), default=NO_TIMESTAMP)
        limit = settings.retention_ms
        is_old = limit >= 0 and newest != NO_TIMESTAMP and now_ms - newest > limit
        rest = sum(one for _, one in shelves[number + 1 :])
        is_spare = settings.retention_bytes >= 0 and rest >= settings.retention_bytes
        if number == len(shelves) - 1 and not was_rolled:
            is_due = settings.delete and size > 0 and is_old and end <= mark
            require(not is_due, "the newest segment is rolled when all of it is too old")
            break
        if not settings.delete or end > mark or not (is_old or is_spare):
            break
        wanted = end
    require(log.start_offset == wanted, f"retention leaves what begins at {wanted}")
