"""All the logs of a data directory: opened together, checkpointed together, closed together.

    <root>/<topic>-<n>/            one partition
    <root>/<topic>-<n>.<k>-delete/ one that was deleted and is being removed
    <root>/<topic>-<n>.<k>-stray/  one that nobody claimed, left alone

M1  the clean-shutdown marker is deleted before anything else happens at start      (rule 50)
M2  a partition is removed only when somebody said so, by rename first              (rule 56)
M3  one transaction moves the recovery points of many partitions, but never half of one's
M4  an error of the disk itself takes every log on it offline                       (rule 48)
M5  a checkpoint of any number of logs needs few descriptors, and one that finds none loses nothing

Not here: which partitions ought to exist (the metadata says that), and threads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ottla.proto.errors import CorruptionError, StorageError, ensure
from ottla.proto.ids import NO_TIMESTAMP, TopicPartition
from ottla.replication.compaction.cleaner import CleaningReport, clean, facts_of
from ottla.replication.log.graveyard import PARTITION_NAME, Graveyard
from ottla.replication.log.handles import Handles, is_shortage
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_logs
from ottla.replication.log.recovery import RecoveryReport, open_log
from ottla.replication.log.retention import start_after_retention
from ottla.replication.log.state import (
    CLEAN_SHUTDOWN_KEY,
    NO_TOPIC_ID,
    PARTITION_PREFIX,
    Intent,
    PartitionState,
    decode_state,
)
from ottla.replication.log.surgery import delete_records, purge
from ottla.replication.log.sync import CheckpointJob
from ottla.replication.settings import LogSettings
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import Files, StateStore

_BROKER_EPOCH: Final = struct.Struct(">q")
# So many logs share one transaction, with three descriptors each.
_CHECKPOINTED_AT_ONCE: Final = 32
# With more logs than this, one that rests gives its descriptors back.
_OPEN_FREELY: Final = 64
# Logs that are synced in a hurry when there is no descriptor left for a checkpoint.
_SYNCED_FOR_ROOM: Final = 8


def partition_named(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name, or None if it is no such directory."""
    match = PARTITION_NAME.fullmatch(name)
    return TopicPartition(match[1], int(match[2])) if match else None


@dataclass(slots=True)
class StartReport:
    """What opening a data directory found."""

    # The broker epoch of the clean shutdown before this start; None if it was not clean.
    clean_broker_epoch: int | None
    recovered: dict[TopicPartition, RecoveryReport]
    # Partitions that must not be elected, and why (rule 8).
    damaged: dict[TopicPartition, str]
    notes: list[str]


def _begun(log: Log, is_forced: bool) -> CheckpointJob | StorageError | None:
    if log.offline is not None:
        return None
    try:
        return log.begin_checkpoint(force=is_forced)
    except StorageError as error:
        return error


def _let_go(log: Log) -> bool:
    """Close the file of a log at rest, with its maps; return whether it was one.

    Only if all in it is synced: the kernel tells an error of writing to who has the file open.
    """
    is_at_rest = log.active.base_offset not in log.unsynced.segments
    if is_at_rest:
        log.active.release()
    return is_at_rest


class LogManager:
    """Owns the logs of one data directory. Opened once, closed once."""

    def __init__(
        self,
        files: Files,
        store: StateStore,
        root: str,
        settings_of: Callable[[str], LogSettings],
    ) -> None:
        self._files: Final = files
        self._store: Final = store
        self._root: Final = root
        self._settings_of: Final = settings_of
        self.handles: Final = Handles(files)
        self.logs: Final[dict[TopicPartition, Log]] = {}
        self._graveyard: Final = Graveyard(files, store, root)
        # Why the whole directory is offline, or None.
        self.offline: str | None = None
        # Told when that happens, and when one log alone cannot be believed; on any thread.
        self.on_offline: Callable[[str], None] = lambda reason: None
        self.on_log_damaged: Callable[[Log, str], None] = lambda log, reason: None

    # -- start and stop --------------------------------------------------------------------------

    def open(self, *, now_ms: int) -> StartReport:
        """Open every partition there is. A damaged one is kept, offline; the others go on."""
        report = StartReport(None, {}, {}, [])
        report.clean_broker_epoch = self._take_clean_marker(report)
        opened = list[TopicPartition]()
        for name in self._files.list_dir(self._root):
            path = f"{self._root}/{name}"
            if Graveyard.is_grave(name) and self._files.is_dir(path):
                self._graveyard.remove_tree(path, report.notes)
            elif (partition := partition_named(name)) and self._files.is_dir(path):
                self._open_partition(partition, report, now_ms)
                opened.append(partition)
                if len(opened) % _CHECKPOINTED_AT_ONCE == 0:
                    self._settle(report, opened[-_CHECKPOINTED_AT_ONCE:])
        self._settle(report, opened[len(opened) // _CHECKPOINTED_AT_ONCE * _CHECKPOINTED_AT_ONCE :])
        self._find_missing(report)
        return report

    def _take_clean_marker(self, report: StartReport) -> int | None:
        try:
            marker = self._store.get(CLEAN_SHUTDOWN_KEY)
        except CorruptionError:
            marker = b""
        if marker is None:
            return None
        # First of all (M1): a crash while loading must count as unclean.
        self._store.commit({CLEAN_SHUTDOWN_KEY: None})
        if len(marker) != _BROKER_EPOCH.size:
            report.notes.append("the marker of a clean shutdown cannot be read, and proves nothing")
            return None
        return int(_BROKER_EPOCH.unpack(marker)[0])

    def _open_partition(self, partition: TopicPartition, report: StartReport, now_ms: int) -> None:
        place = self._place(partition)
        if self._graveyard.is_deletion_pending(place.name):
            self._finish_deletion(place, report)
            return
        log, recovered = open_log(place, now_ms=now_ms)
        self.logs[partition] = log
        if recovered.damage is not None:
            report.damaged[partition] = recovered.damage
        if recovered.notes or recovered.checked_bytes or recovered.is_rebuilt:
            report.recovered[partition] = recovered

    def _finish_deletion(self, place: LogPlace, report: StartReport) -> None:
        try:
            self._graveyard.finish([place.name])
        except (OSError, StorageError) as error:
            report.notes.append(f"{place.name} was to be deleted: {error}")

    def _settle(self, report: StartReport, partitions: Sequence[TopicPartition]) -> None:
        """Make what recovery found durable, and move the recovery points (R4, M3)."""
        found = [
            (self.logs[partition], report.recovered[partition].is_rebuilt)
            for partition in partitions
            if partition in report.recovered
        ]
        try:
            for jobs in self._groups(found):
                self._run(jobs)
                for log, _ in jobs:
                    # Of thousands of logs few are written to at once: each opens its file then.
                    for segment in log.segments:
                        segment.release()
        except StorageError as error:
            report.notes.append(str(error))
        self.handles.let_go()

    def _find_missing(self, report: StartReport) -> None:
        """A record without a directory: synced data is gone (rule 8)."""
        try:
            for key, value in self._store.scan(PARTITION_PREFIX):
                name = key.removeprefix(PARTITION_PREFIX).decode(errors="replace")
                partition = partition_named(name)
                if partition is None:
                    report.notes.append(f"the state store has a record of {name!r}; left alone")
                elif partition not in self.logs:
                    self._judge_missing(partition, value, report)
        except CorruptionError as error:
            report.notes.append(str(error))

    def _judge_missing(self, partition: TopicPartition, value: bytes, report: StartReport) -> None:
        directory = f"{self._root}/{partition}"
        try:
            state = decode_state(str(partition), value)
        except StorageError as error:
            report.damaged[partition] = f"the directory {directory} is missing, and {error}"
            return
        if state.pending.intent is Intent.DELETE and not self._files.exists(directory):
            self._graveyard.forget([str(partition)])
        elif state.pending.intent is not Intent.DELETE:
            report.damaged[partition] = f"the directory {directory} is missing"

    def close(self, *, broker_epoch: int) -> None:
        """Checkpoint everything, then leave the marker that proves it (rule 50)."""
        self.checkpoint()
        for log in self.logs.values():
            log.close()
        if all(log.offline is None for log in self.logs.values()):
            self._store.commit({CLEAN_SHUTDOWN_KEY: _BROKER_EPOCH.pack(broker_epoch)})

    # -- partitions ------------------------------------------------------------------------------

    def create(self, partition: TopicPartition) -> Log:
        """Make an empty log. Durable when it returns."""
        self.adopt(made := self.make({partition: NO_TOPIC_ID}))
        return made[partition]

    def make(self, topic_ids: Mapping[TopicPartition, bytes]) -> dict[TopicPartition, Log]:
        """Make empty logs, durable when it returns, for `adopt`. May run on any thread."""
        self._require_online()
        partitions = tuple(topic_ids)
        try:
            made = create_logs([self._place(one, topic_ids[one]) for one in partitions])
        except (OSError, StorageError) as error:
            told = f"create {partitions[0]}" + (" and others" if len(partitions) > 1 else "")
            raise self._refusal(told, error) from error
        return dict(zip(partitions, made, strict=True))

    def adopt(self, made: Mapping[TopicPartition, Log]) -> None:
        """Take in logs that were made: they are kept and closed with the others."""
        both = made.keys() & self.logs.keys()
        ensure(not both, "a partition is created once", partitions=sorted(both))
        self.logs.update(made)

    def delete(self, partition: TopicPartition) -> None:
        """Remove a partition, for ever (M2)."""
        self.bury(self.take_out([partition]))

    def take_out(self, partitions: Iterable[TopicPartition]) -> dict[str, PartitionState]:
        """Take logs out of use, for `bury`: whoever still holds one can do nothing with it."""
        self._require_online()
        doomed = {}
        for partition in partitions:
            log = self.logs.pop(partition)
            log.require_no_jobs()
            log.close()
            log.offline = "it was deleted"
            doomed[log.name] = log.state
        return doomed

    def bury(self, doomed: Mapping[str, PartitionState]) -> None:
        """Remove logs that were taken out, for ever. May run on any thread."""
        try:
            # Also if a log was offline: what is wrong with it does not matter any more.
            self._graveyard.bury(doomed)
        except (OSError, StorageError) as error:
            told = ", ".join([*doomed][:3])
            raise self._refusal(f"delete {told}", error) from error

    def set_aside(self, partition: TopicPartition) -> str:
        """Give the directory of a partition that nobody claims another name, and return that."""
        self._require_online()
        log = self.logs.pop(partition)
        log.close()
        log.offline = "nobody claims it"
        try:
            return self._graveyard.set_aside(log.name)
        except (OSError, StorageError) as error:
            raise self._refusal(f"set aside {partition}", error) from error

    def forget(self, partition: TopicPartition) -> None:
        """Let go of what is remembered of a partition whose files are gone."""
        self._require_online()
        try:
            self._graveyard.forget([str(partition)])
        except (OSError, StorageError) as error:
            raise self._take_offline(f"forget {partition}", error) from error

    def remove_buried(self) -> None:
        """Remove the files of deleted partitions. May run on any thread, one at a time."""
        self._graveyard.remove_buried()

    # -- keeping house ---------------------------------------------------------------------------

    def begin_checkpoint(
        self, is_due: Callable[[Log], bool] = lambda log: True
    ) -> list[tuple[Log, CheckpointJob]]:
        """Return the jobs of all logs that are due, have something to checkpoint, and can."""
        jobs = list[tuple[Log, CheckpointJob]]()
        with suppress(StorageError):
            for some in self.checkpoint_groups(is_due):
                jobs += some
        return jobs

    def checkpoint_groups(
        self, is_due: Callable[[Log], bool] = lambda log: True
    ) -> Iterator[list[tuple[Log, CheckpointJob]]]:
        """Yield the same a group at a time: each is to be finished before the next is asked for.

        Raises `StorageError` at the end if a log could not take part.
        """
        return self._groups([(log, False) for log in self.logs.values() if is_due(log)])

    def _groups(
        self, logs: Sequence[tuple[Log, bool]]
    ) -> Iterator[list[tuple[Log, CheckpointJob]]]:
        jobs = list[tuple[Log, CheckpointJob]]()
        failure: StorageError | None = None
        for log, is_forced in logs:
            job = _begun(log, is_forced)
            if isinstance(job, StorageError) and log.offline is None:
                # No descriptor. A group that is finished gives its own back.
                if jobs:
                    yield jobs
                    jobs = []
                self._make_way()
                job = _begun(log, is_forced)
            if isinstance(job, StorageError):
                failure = failure or job
            elif job is not None:
                jobs.append((log, job))
            if len(jobs) >= _CHECKPOINTED_AT_ONCE:
                yield jobs
                jobs = []
        if jobs:
            yield jobs
        if failure is not None:
            raise failure

    def _make_way(self) -> None:
        """Give descriptors back: of logs at rest or, if there are none, of a few after a sync."""
        written = [log for log in self.logs.values() if log.active.is_open]
        if not sum(map(_let_go, written)):
            for log in written[:_SYNCED_FOR_ROOM]:
                with suppress(StorageError):
                    log.sync()
                    _let_go(log)

    @staticmethod
    def run_jobs(jobs: Sequence[tuple[Log, CheckpointJob]]) -> dict[Log, OSError]:
        """Run jobs, on any thread; return the logs whose job found no descriptor (Y4)."""
        lacking = {}
        for log, job in jobs:
            try:
                job.run()
            except OSError as error:
                if not is_shortage(error):
                    raise
                lacking[log] = error
        return lacking

    def finish_jobs(
        self, jobs: Sequence[tuple[Log, CheckpointJob]], lacking: Mapping[Log, OSError]
    ) -> StorageError | None:
        """Finish what ran, give back what did not; return what to tell about the latter."""
        told = [log.abandon(error) for log, error in lacking.items()]
        ran = [(log, job) for log, job in jobs if log not in lacking]
        if ran:
            self.finish_checkpoint(ran)
        return told[0] if told else None

    @staticmethod
    def abandon_jobs(jobs: Sequence[tuple[Log, CheckpointJob]], error: Exception) -> StorageError:
        """One disk: what one log cannot sync, none can believe (M4)."""
        told = [log.abandon(error) for log, _ in jobs]
        return told[0]

    def finish_checkpoint(self, jobs: list[tuple[Log, CheckpointJob]]) -> None:
        """Commit the recovery points of jobs that ran, in one transaction (M3)."""
        changes: dict[bytes, bytes | None] = {}
        for log, job in jobs:
            if log.offline is None:
                changes.update(log.checkpoint_changes(job))
        try:
            hit("log.checkpoint.before")
            self._store.commit(changes)
            hit("log.checkpoint.after")
        except (OSError, StorageError) as error:
            for log, _ in jobs:
                log.abandon(error)
            raise self._take_offline("checkpoint", error) from error
        for log, job in jobs:
            if log.offline is None:
                log.finish_checkpoint(job)
                if len(self.logs) > _OPEN_FREELY:
                    _let_go(log)
            else:
                log.finish_sync(job.sync)

    def checkpoint(self) -> int:
        """Move the recovery point of every log to its end, here and now; return how many moved."""
        moved = 0
        lacking = list[StorageError]()
        for jobs in self.checkpoint_groups():
            lacking += self._run(jobs)
            moved += len(jobs)
        if lacking:
            raise lacking[0]
        return moved

    def _run(self, jobs: list[tuple[Log, CheckpointJob]]) -> list[StorageError]:
        try:
            lacking = self.run_jobs(jobs)
        except OSError as error:
            raise self.abandon_jobs(jobs, error) from error
        told = self.finish_jobs(jobs, lacking)
        return [] if told is None else [told]

    def retain(self, *, now_ms: int) -> int:
        """Roll what is old, remove what is too old or too much; return how many segments went."""
        self.remove_buried()
        logs = [log for log in self.logs.values() if log.offline is None]
        return sum(self.retain_in(log, now_ms=now_ms) for log in logs)

    def retain_in(self, log: Log, *, now_ms: int) -> int:
        """The same for one log."""
        if not log.maybe_roll(now_ms):
            self._roll_if_expired(log, now_ms)
        before = len(log.segments)
        start = start_after_retention(
            facts_of(log),
            log.settings,
            start_offset=log.start_offset,
            high_watermark=log.last_stable_offset,
            now_ms=now_ms,
        )
        if start > log.start_offset:
            delete_records(log, start, now_ms=now_ms)
        dropped = before - len(log.segments)
        purge(log, now_ms=now_ms)
        log.producers.expire(now_ms, log.settings.producer_expiry_ms)
        return dropped

    def _roll_if_expired(self, log: Log, now_ms: int) -> None:
        """Let the newest segment go too, if all of it is too old: no record outlives its time."""
        limit, active = log.settings.retention_ms, log.active
        if not log.settings.delete or limit < 0 or active.size == 0:
            return
        newest = facts_of(log)[-1].max_timestamp
        is_expired = newest != NO_TIMESTAMP and now_ms - newest > limit
        if is_expired and log.end_offset <= log.last_stable_offset:
            log.roll()

    def clean(self, *, now_ms: int) -> dict[TopicPartition, CleaningReport]:
        """Clean every log that is due, here and now."""
        reports = {}
        for partition, log in list(self.logs.items()):
            if log.offline is None and log.settings.compact:
                done = clean(log, now_ms=now_ms)
                if done is not None:
                    reports[partition] = done
        return reports

    # -- failure ---------------------------------------------------------------------------------

    def _place(self, partition: TopicPartition, topic_id: bytes = NO_TOPIC_ID) -> LogPlace:
        return LogPlace(
            topic_id=topic_id,
            name=str(partition),
            directory=f"{self._root}/{partition}",
            files=self._files,
            store=self._store,
            handles=self.handles,
            settings=self._settings_of(partition.topic),
            on_failure=self._on_failure,
        )

    def _on_failure(self, log: Log, error: Exception) -> None:
        # Bad bytes, or no descriptor, are that log's own trouble; a disk's refusal is everybody's.
        if isinstance(error, CorruptionError):
            self.on_log_damaged(log, str(error))
        elif not is_shortage(error):
            self._take_offline(log.name, error)

    def _refusal(self, what: str, error: Exception) -> StorageError:
        """Take everything offline, unless nothing but a descriptor was missing."""
        if is_shortage(error):
            return StorageError(f"{what}: too many open files (see `ulimit -n`)")
        return self._take_offline(what, error)

    def _take_offline(self, what: str, error: Exception) -> StorageError:
        is_new, self.offline = self.offline is None, self.offline or f"{what}: {error}"
        for log in self.logs.values():
            log.offline = log.offline or self.offline
        if is_new:
            self.on_offline(self.offline)
        return StorageError(f"{self._root} is offline: {self.offline}")

    def _require_online(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self._root} is offline: {self.offline}")
