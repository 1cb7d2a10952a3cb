"""The simulator must be able to fail: each deliberate break of a rule is found within 300 seeds.

One break, one line of the product undone. If a break is no longer found, the simulator has gone
blind there, and that is as bad as a bug.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.build import assemble, build_batch, encode_records
from ottla.proto.records.compression import Codec, compress
from ottla.proto.records.decode import decode_records
from ottla.proto.records.header import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    TimestampType,
    read_header,
)
from ottla.replication.compaction import cleaner, rewrite
from ottla.replication.log import append, recovery, surgery
from ottla.replication.log import log as log_module
from ottla.replication.log import manager as manager_module
from ottla.replication.log import segment as segment_module
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.retention import start_after_retention
from ottla.replication.log.scan import CheckedWalk
from ottla.replication.log.segment import Note, Segment
from ottla.replication.log.state import PartitionState
from ottla.replication.log.sync import CheckpointJob, Gate, SyncJob
from tests.sim.promises import BrokenPromiseError
from tests.sim.run import play

SEEDS = 300

Patch = pytest.MonkeyPatch


def _recovery_point_before_sync(patch: Patch) -> None:
    """Rule 49: the recovery point is committed although nothing was synced."""
    patch.setattr(CheckpointJob, "run", lambda job: None)


def _directory_never_synced(patch: Patch) -> None:
    """Rule 48: a new segment's name is not made durable."""

    def run(job: SyncJob) -> None:
        for file in job.files:
            file.sync()

    patch.setattr(SyncJob, "sync", run)


def _sync_of_the_newest_file_only(patch: Patch) -> None:
    """Rule 49b: a segment that was rolled before it was synced is forgotten."""

    def run(job: SyncJob) -> None:
        job.files[-1].sync() if job.files else None
        if job.sync_directory is not None:
            job.sync_directory()

    patch.setattr(SyncJob, "sync", run)


def _truncate_files_before_state(patch: Patch) -> None:
    """Rule 49a: bytes go first, and the state only afterwards, never synced."""

    def commit_cut(log: Log, segment: Segment, position: int, end: Offset) -> None:
        log.epochs.truncate_end(end)

    patch.setattr(surgery, "_commit_cut", commit_cut)


def _truncation_not_synced(patch: Patch) -> None:
    """Rule 49a: appends go on before the cut is durable."""

    def cut_files(log: Log, number: int, position: int, end: Offset) -> None:
        while len(log.segments) > number + 1:
            surgery._remove(log, log.segments.pop())
        log.segments[number].truncate(position, end)

    patch.setattr(surgery, "_cut_files", cut_files)


def _recovery_does_not_check(patch: Patch) -> None:
    """Rule 51: batches above the recovery point are believed without their checksum."""
    patch.setattr(CheckedWalk, "_is_bad", lambda walk, header, crc: False)


def _recovery_believes_the_page_cache(patch: Patch) -> None:
    """R4: what a failed sync left in memory is not written again."""
    patch.setattr(recovery._Opening, "_write_again", lambda opening, segment, position: None)


def _recovery_is_not_synced(patch: Patch) -> None:
    """R4: what was found counts as durable at once."""
    assemble = recovery._Opening._assemble

    def forget(opening: Any, end_offset: Offset) -> Log:
        opening.touched = []
        return assemble(opening, end_offset)

    patch.setattr(recovery._Opening, "_assemble", forget)


def _start_not_durable(patch: Patch) -> None:
    """Rule 49c: records are deleted before the new start is stored."""
    commit_state = Log.commit_state

    def commit(log: Log, state: PartitionState, more: Any = None) -> None:
        if state.start_offset != log.state.start_offset:
            log.state = state
            return
        commit_state(log, state, more)

    patch.setattr(Log, "commit_state", commit)


def _retention_forgets_a_segment(patch: Patch) -> None:
    """N3: one segment that should go stays."""

    def start_after(segments: Any, settings: Any, **how: Any) -> Offset:
        return start_after_retention(segments[:-1] or segments, settings, **how)

    patch.setattr(manager_module, "start_after_retention", start_after)


def _retention_takes_what_is_young(patch: Patch) -> None:
    """N3: age counts from the first record of a segment, not from its newest."""

    def start_after(segments: Any, settings: Any, **how: Any) -> Offset:
        aged = [replace(one, max_timestamp=one.max_timestamp - 50) for one in segments]
        return start_after_retention(aged, settings, **how)

    patch.setattr(manager_module, "start_after_retention", start_after)


def _an_old_newest_segment_stays(patch: Patch) -> None:
    """N1: the newest segment is not rolled though all of it is too old."""
    patch.setattr(LogManager, "_roll_if_expired", lambda manager, log, now_ms: None)


def _epoch_not_durable(patch: Patch) -> None:
    """Rule 21: an epoch is used before it is stored."""
    patch.setattr(Log, "assign_epoch", lambda log, epoch: log.epochs.assign(epoch, log.end_offset))


def _swap_without_intent(patch: Patch) -> None:
    """Sources are replaced although the store does not know of it."""

    def commit(log: Log, state: PartitionState, more: Any = None) -> None:
        log.state = state

    def swap(log: Log, sources: list[Segment], cleaned: Segment, **how: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(Log, "commit_state", commit)
            real_swap(log, sources, cleaned, **how)

    real_swap = surgery.swap
    patch.setattr(cleaner, "swap", swap)


def _cleaned_segment_not_synced(patch: Patch) -> None:
    """Z1: the cleaned segment is swapped in before it is durable."""
    patch.setattr(cleaner.CleaningJob, "_make_durable", lambda job, cleaned: cleaned.release())


def _tombstones_go_at_once(patch: Patch) -> None:
    """Q2: a tombstone does not wait for its horizon."""
    patch.setattr(
        rewrite,
        "_stays",
        lambda record, latest, horizon_ms, now_ms: (
            record.value is not None and not latest.is_replaced(record.key, record.offset)
        ),
    )


def _producers_of_emptied_batches_forgotten(patch: Patch) -> None:
    """Rule 62: the last batch of a producer goes with its records."""
    real = rewrite.rewrite_batch

    def rewritten(*given: Any, **how: Any) -> Any:
        return real(*given, **{**how, "stays_empty": False})

    patch.setattr(cleaner, "rewrite_batch", rewritten)


def _appends_after_a_failed_sync(patch: Patch) -> None:
    """L5: a disk error is reported, and the log goes on as if nothing had happened."""

    def fail(log: Log, what: str, error: Exception) -> Exception:
        return StorageError(f"{log.name}: {what} failed: {error}")

    patch.setattr(Log, "fail", fail)


def _a_second_sync_is_believed(patch: Patch) -> None:
    """Y3, L5: after a failed sync another job hears "done", and an offline log believes it."""

    def finish_sync(log: Log, job: SyncJob) -> None:
        log.unsynced.done(job, log.active)
        log.synced_offset = max(log.synced_offset, job.target)

    def finish_checkpoint(manager: LogManager, jobs: list[tuple[Log, CheckpointJob]]) -> None:
        for log, job in jobs:
            manager._store.commit(log.checkpoint_changes(job))
            log.finish_checkpoint(job)

    patch.setattr(Gate, "passing", lambda gate: nullcontext())
    patch.setattr(Log, "finish_sync", finish_sync)
    patch.setattr(LogManager, "finish_checkpoint", finish_checkpoint)


def _a_gap_is_not_remembered(patch: Patch) -> None:
    """A gap that a follower took is judged by the topic's policy of another day."""

    def take_gap(log: Log, below: Offset) -> None:
        log.gaps_below = max(log.gaps_below, below)

    patch.setattr(Log, "take_gap", take_gap)


def _a_log_that_ends_below_its_start(patch: Patch) -> None:
    """L1: what was deleted and not synced leaves a log whose end lies below its start."""
    patch.setattr(
        recovery._Opening, "_start_over", lambda opening, start: opening.segments[-1].base_offset
    )


def _batches_stay_as_they_were_packed(patch: Patch) -> None:
    """`compression.type`: the leader keeps the codec of the producer."""
    patch.setattr(append, "recompress", lambda batch, codec, level: batch)


def _packed_anew_in_name_only(patch: Patch) -> None:
    """`compression.type`: the header names the topic's codec, and the records have another."""

    def recompress(batch: memoryview, codec: Codec, level: int | None) -> bytes:
        header = read_header(batch)
        attributes = header.attributes & ~CODEC_MASK | codec
        return assemble(header._replace(attributes=attributes), bytes(batch[HEADER_SIZE:]))

    patch.setattr(append, "recompress", recompress)


def _packing_anew_loses_headers(patch: Patch) -> None:
    """`compression.type`: the records are written again, without all that belongs to them."""

    def recompress(batch: memoryview, codec: Codec, level: int | None) -> bytes:
        header = read_header(batch)
        records = [record._replace(headers=()) for record in decode_records(batch)]
        attributes = header.attributes & ~CODEC_MASK | codec
        payload = compress(codec, encode_records(records, header), level)
        return assemble(header._replace(attributes=attributes), payload)

    patch.setattr(append, "recompress", recompress)


def _the_time_of_the_producer_stays(patch: Patch) -> None:
    """LogAppendTime: the leader stores what the producer said."""
    patch.setattr(append, "with_log_append_time", lambda batch, now_ms: batch)


def _indexed_under_the_time_of_the_producer(patch: Patch) -> None:
    """LogAppendTime: the batch has the leader's time, and the time index the producer's."""
    add = append.Run.add

    def add_as_sent(run: Any, size: int, last: int, time_ms: int, buffers: Any) -> None:
        if run._log.gives_time:
            # What the producer said of its first record is still in the header.
            time_ms = read_header(b"".join(buffers)).base_timestamp
        add(run, size, last, time_ms, buffers)

    patch.setattr(append.Run, "add", add_as_sent)


def _a_follower_converts(patch: Patch) -> None:
    """Rule 45: a follower packs and dates what it fetched as the topic asks."""
    real = append.append_as_follower

    def converted(log: Log, batches: bytes, **how: Any) -> int:
        count, position = 0, 0
        while position < len(batches):
            header = read_header(batches, position)
            batch = memoryview(batches)[position : position + header.size]
            changed = append._converted(log, batch, header, how["now_ms"])
            count += real(log, bytes(changed), **how)
            position += header.size
        return count

    patch.setattr(log_module, "append_as_follower", converted)


def _cleaning_unpacks(patch: Patch) -> None:
    """Q3: what is left of a batch loses its codec."""
    patch.setattr(rewrite, "codec_of", lambda bits: Codec.NONE)


def _cleaning_forgets_whose_time_it_is(patch: Patch) -> None:
    """Q3: what is left of a batch has times of its own."""

    def build(*given: Any, **how: Any) -> bytes:
        return build_batch(*given, **{**how, "timestamp_type": TimestampType.CREATE_TIME})

    patch.setattr(rewrite, "build_batch", build)


def _note_as_sent(header: BatchHeader) -> Note:
    is_given = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    time_ms = header.base_timestamp if is_given else header.max_timestamp
    return header.size, header.last_offset, time_ms


def _recovered_under_the_time_of_the_producer(patch: Patch) -> None:
    """LogAppendTime: a time index that recovery writes has the producer's time."""
    patch.setattr(segment_module, "note_of", _note_as_sent)


def _cleaned_under_the_time_of_the_producer(patch: Patch) -> None:
    """LogAppendTime: a time index that cleaning writes has it."""
    patch.setattr(cleaner, "note_of", _note_as_sent)


BREAKS: list[tuple[str, Callable[[Patch], None]]] = [
    ("appends", _recovery_point_before_sync),
    ("appends", _directory_never_synced),
    ("appends", _sync_of_the_newest_file_only),
    ("truncates", _truncate_files_before_state),
    ("truncates", _truncation_not_synced),
    ("errors", _recovery_does_not_check),
    ("errors", _recovery_believes_the_page_cache),
    ("appends", _recovery_is_not_synced),
    ("retains", _start_not_durable),
    ("retains", _retention_forgets_a_segment),
    ("retains", _retention_takes_what_is_young),
    ("retains", _an_old_newest_segment_stays),
    ("truncates", _epoch_not_durable),
    ("compacts", _swap_without_intent),
    ("compacts", _cleaned_segment_not_synced),
    ("compacts", _tombstones_go_at_once),
    ("compacts", _producers_of_emptied_batches_forgotten),
    ("errors", _appends_after_a_failed_sync),
    ("jobs", _a_second_sync_is_believed),
    ("policies", _a_gap_is_not_remembered),
    ("pagecache", _a_log_that_ends_below_its_start),
    ("appends", _batches_stay_as_they_were_packed),
    ("appends", _packed_anew_in_name_only),
    ("appends", _packing_anew_loses_headers),
    ("appends", _the_time_of_the_producer_stays),
    ("truncates", _indexed_under_the_time_of_the_producer),
    ("converts", _a_follower_converts),
    ("converts", _cleaning_unpacks),
    ("converts", _cleaning_forgets_whose_time_it_is),
    ("appends", _recovered_under_the_time_of_the_producer),
    ("compacts", _cleaned_under_the_time_of_the_producer),
]


@pytest.mark.parametrize(
    ("scenario", "undo"), BREAKS, ids=lambda value: getattr(value, "__name__", value)
)
def test_a_broken_rule_is_found(
    scenario: str, undo: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    undo(monkeypatch)
    for seed in range(SEEDS):
        try:
            play(seed, scenario)
        except BrokenPromiseError:
            return
    pytest.fail(f"{undo.__name__} was not found in {SEEDS} seeds of {scenario}")
