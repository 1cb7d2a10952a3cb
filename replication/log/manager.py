"""All the logs of a data directory: opened together, checkpointed together, closed together.

    <root>/<topic>-<n>/            one partition
    <root>/<topic>-<n>.<k>-delete/ one that was deleted and is being removed
    <root>/<topic>-<n>.<k>-stray/  one that nobody claimed, left alone

M1  the clean-shutdown marker is deleted before anything else happens at start      (rule 50)
M2  a partition is removed only when somebody said so, by rename first              (rule 56)
M3  one transaction moves the recovery points of all partitions
M4  an error of the disk itself takes every log on it offline                       (rule 48)

Not here: which partitions ought to exist (the metadata says that), and threads.
"""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from ottla.proto.errors import CorruptionError, StorageError, ensure
from ottla.proto.ids import NO_TIMESTAMP, TopicPartition
from ottla.replication.compaction.cleaner import CleaningReport, clean, facts_of
from ottla.replication.log.handles import Handles
from ottla.replication.log.log import Log
from ottla.replication.log.place import LogPlace, create_logs
from ottla.replication.log.recovery import RecoveryReport, open_log
from ottla.replication.log.retention import start_after_retention
from ottla.replication.log.state import (
    CLEAN_SHUTDOWN_KEY,
    PARTITION_PREFIX,
    Intent,
    Pending,
    decode_state,
    encode_state,
    forgotten,
    partition_key,
    producers_prefix,
)
from ottla.replication.log.surgery import delete_records, purge
from ottla.replication.log.sync import CheckpointJob
from ottla.replication.settings import LogSettings
from ottla.replication.storage.failpoints import hit
from ottla.replication.storage.ports import Files, StateStore

_PARTITION_NAME: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_DELETED_SUFFIX: Final = "-delete"
# Of a partition that is in nobody's metadata. It is never removed by us.
_STRAY_SUFFIX: Final = "-stray"
_DELETED_NAME: Final = re.compile(_PARTITION_NAME.pattern + r"\.[0-9]+" + _DELETED_SUFFIX)
# What a file system takes for a name.
_NAME_BYTES_MAX: Final = 255
_BROKER_EPOCH: Final = struct.Struct(">q")


def partition_named(name: str) -> TopicPartition | None:
    """Return the partition whose directory has this name, or None if it is no such directory."""
    match = _PARTITION_NAME.fullmatch(name)
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
        # Directories of deleted partitions that wait to be removed.
        self._buried: list[str] = []
        # Why the whole directory is offline, or None.
        self.offline: str | None = None

    # -- start and stop --------------------------------------------------------------------------

    def open(self, *, now_ms: int) -> StartReport:
        """Open every partition there is. A damaged one is kept, offline; the others go on."""
        report = StartReport(None, {}, {}, [])
        report.clean_broker_epoch = self._take_clean_marker(report)
        for name in self._files.list_dir(self._root):
            path = f"{self._root}/{name}"
            if _DELETED_NAME.fullmatch(name) and self._files.is_dir(path):
                self._remove_tree(path, report.notes)
            elif (partition := partition_named(name)) and self._files.is_dir(path):
                self._open_partition(partition, report, now_ms)
        self._settle(report)
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
        if self._is_deletion_pending(place):
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
            self._bury(place)
        except (OSError, StorageError) as error:
            report.notes.append(f"{place.name} was to be deleted: {error}")

    def _settle(self, report: StartReport) -> None:
        """Make what recovery found durable, and move all the recovery points at once (R4, M3)."""
        jobs = list[tuple[Log, CheckpointJob]]()
        try:
            for partition, recovered in report.recovered.items():
                log = self.logs[partition]
                if log.offline is None:
                    job = log.begin_checkpoint(force=recovered.is_rebuilt)
                    if job is not None:
                        jobs.append((log, job))
            self._run(jobs)
        except StorageError as error:
            report.notes.append(str(error))
        for log, _ in jobs:
            # Of thousands of logs few are written to at once: each opens its file when it is.
            for segment in log.segments:
                segment.release()

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
            self._forget(str(partition))
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
        self.adopt(made := self.make([partition]))
        return made[partition]

    def make(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Log]:
        """Make empty logs, durable when it returns, for `adopt`. May run on any thread."""
        self._require_online()
        try:
            made = create_logs([self._place(partition) for partition in partitions])
        except (OSError, StorageError) as error:
            told = f"create {partitions[0]}" + (" and others" if len(partitions) > 1 else "")
            if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
                sentence = f"{told}: too many open files (see `ulimit -n`)"
                raise StorageError(sentence) from error
            raise self._take_offline(told, error) from error
        return dict(zip(partitions, made, strict=True))

    def adopt(self, made: Mapping[TopicPartition, Log]) -> None:
        """Take in logs that were made: they are kept and closed with the others."""
        both = made.keys() & self.logs.keys()
        ensure(not both, "a partition is created once", partitions=sorted(both))
        self.logs.update(made)

    def delete(self, partition: TopicPartition) -> None:
        """Remove a partition, for ever (M2). Its files go with the next `retain`, or at next start.

        The order: the intent is committed; the directory gets another name; the record goes. After
        a crash in between, the next start finishes it.
        """
        self._require_online()
        log = self.logs.pop(partition)
        log.require_no_jobs()
        log.close()
        doomed = replace(log.state, pending=Pending(intent=Intent.DELETE))
        try:
            # Also if the log is offline: what is wrong with it does not matter any more.
            self._store.commit({partition_key(log.name): encode_state(doomed)})
            self._bury(self._place(partition))
        except (OSError, StorageError) as error:
            raise self._take_offline(f"delete {partition}", error) from error

    def set_aside(self, partition: TopicPartition) -> str:
        """Give the directory of a partition that nobody claims another name, and return that.

        Its record goes first: after a crash in between, the next start opens the directory without
        one, finds again that nobody claims it, and sets it aside.
        """
        self._require_online()
        log = self.logs.pop(partition)
        log.close()
        place = self._place(partition)
        try:
            self._forget(place.name)
            aside = self._free_name(place.directory, _STRAY_SUFFIX)
            self._files.rename(place.directory, aside)
            self._files.sync_dir(self._root)
        except (OSError, StorageError) as error:
            raise self._take_offline(f"set aside {partition}", error) from error
        return aside

    def _free_name(self, directory: str, suffix: str) -> str:
        """Return another name that nothing has; of a long topic's only the beginning."""
        topic, _, index = directory.removeprefix(f"{self._root}/").rpartition("-")
        for number in count():
            ending = f"-{index}.{number}{suffix}"
            free = f"{self._root}/{topic[: _NAME_BYTES_MAX - len(ending)]}{ending}"
            if not self._files.exists(free):
                return free
        raise AssertionError

    def _is_deletion_pending(self, place: LogPlace) -> bool:
        try:
            value = self._store.get(PARTITION_PREFIX + place.name.encode())
            state = None if value is None else decode_state(place.name, value)
        except StorageError:
            return False
        return state is not None and state.pending.intent is Intent.DELETE

    def _bury(self, place: LogPlace) -> None:
        if self._files.exists(place.directory):
            buried = self._free_name(place.directory, _DELETED_SUFFIX)
            self._files.rename(place.directory, buried)
            self._files.sync_dir(self._root)
            self._buried.append(buried)
        self._forget(place.name)

    def _forget(self, name: str) -> None:
        keys = [key for key, _ in self._store.scan(producers_prefix(name))]
        self._store.commit(forgotten(name, keys))

    def _remove_tree(self, path: str, notes: list[str]) -> None:
        try:
            for name in self._files.list_dir(path):
                self._files.remove(f"{path}/{name}")
            self._files.remove_dir(path)
        except OSError as error:
            notes.append(f"{path} was to be removed: {error}")

    # -- keeping house ---------------------------------------------------------------------------

    def begin_checkpoint(
        self, is_due: Callable[[Log], bool] = lambda log: True
    ) -> list[tuple[Log, CheckpointJob]]:
        """Return the jobs of all logs that are due and have something to checkpoint."""
        logs = [log for log in self.logs.values() if log.offline is None and is_due(log)]
        return [(log, job) for log in logs if (job := log.begin_checkpoint()) is not None]

    def finish_checkpoint(self, jobs: list[tuple[Log, CheckpointJob]]) -> None:
        """Commit the recovery points of jobs that ran, in one transaction (M3)."""
        changes: dict[bytes, bytes | None] = {}
        for log, job in jobs:
            if log.offline is None:
                changes.update(log.checkpoint_changes(job))
        hit("log.checkpoint.before")
        try:
            self._store.commit(changes)
        except (OSError, StorageError) as error:
            for log, _ in jobs:
                log.abandon(error)
            raise self._take_offline("checkpoint", error) from error
        hit("log.checkpoint.after")
        for log, job in jobs:
            if log.offline is None:
                log.finish_checkpoint(job)
            else:
                log.finish_sync(job.sync)

    def checkpoint(self) -> int:
        """Move the recovery point of every log to its end, here and now; return how many moved."""
        jobs = self.begin_checkpoint()
        self._run(jobs)
        return len(jobs)

    def _run(self, jobs: list[tuple[Log, CheckpointJob]]) -> None:
        if not jobs:
            return
        try:
            for _, job in jobs:
                job.run()
        except OSError as error:
            # One disk: what one log cannot sync, none can believe (M4).
            abandoned = [log.abandon(error) for log, _ in jobs]
            raise abandoned[0] from error
        self.finish_checkpoint(jobs)

    def retain(self, *, now_ms: int) -> int:
        """Roll what is old, remove what is too old or too much; return how many segments went."""
        self.remove_buried()
        logs = [log for log in self.logs.values() if log.offline is None]
        return sum(self.retain_in(log, now_ms=now_ms) for log in logs)

    def remove_buried(self) -> None:
        """Remove the files of deleted partitions. May run on any thread, one at a time."""
        while self._buried:
            # What cannot be removed now is removed at the next start, which also says so.
            self._remove_tree(self._buried.pop(), [])

    def retain_in(self, log: Log, *, now_ms: int) -> int:
        """The same for one log."""
        if not log.maybe_roll(now_ms):
            self._roll_if_expired(log, now_ms)
        before = len(log.segments)
        start = start_after_retention(
            facts_of(log),
            log.settings,
            start_offset=log.start_offset,
            high_watermark=log.high_watermark,
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
        if is_expired and log.end_offset <= log.high_watermark:
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

    def _place(self, partition: TopicPartition) -> LogPlace:
        return LogPlace(
            name=str(partition),
            directory=f"{self._root}/{partition}",
            files=self._files,
            store=self._store,
            handles=self.handles,
            settings=self._settings_of(partition.topic),
            on_failure=self._on_failure,
        )

    def _on_failure(self, log: Log, error: Exception) -> None:
        # Bad bytes, or no descriptor left, are that log's own trouble; a disk that refuses is
        # everybody's.
        is_shortage = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        if not (isinstance(error, CorruptionError) or is_shortage):
            self._take_offline(log.name, error)

    def _take_offline(self, what: str, error: Exception) -> StorageError:
        if self.offline is None:
            self.offline = f"{what}: {error}"
        for log in self.logs.values():
            if log.offline is None:
                log.offline = self.offline
        return StorageError(f"{self._root} is offline: {self.offline}")

    def _require_online(self) -> None:
        if self.offline is not None:
            raise StorageError(f"{self._root} is offline: {self.offline}")
