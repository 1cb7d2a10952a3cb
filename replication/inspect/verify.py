"""Proves a data directory sound while nobody uses it: all its partitions, one after another.

It reads directories of ours, whose state store says what to expect, and those of a Kafka broker,
which keeps the same in small files.

Nothing is written. The lock is held meanwhile if it is there to be held, so that a node does not
start to change what is being looked at. Not here: what makes a partition sound (`partition.py`),
and how it is told to people (`node/commands/log.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.proto.errors import CorruptionError, StorageError
from ottla.replication.inspect.kafka_files import CHECKPOINT_NAMES, EPOCHS_NAME
from ottla.replication.inspect.known import known_to_kafka, known_to_us
from ottla.replication.inspect.partition import PartitionReport, check_partition
from ottla.replication.inspect.places import NO_LOG, DataPlace, find_place
from ottla.replication.inspect.state_file import STATE_NAME, StateReader, read_state_file
from ottla.replication.log.manager import partition_named
from ottla.replication.log.state import PARTITION_PREFIX, Intent, decode_state
from ottla.replication.storage.directory import LOCK_NAME, META_NAME
from ottla.replication.storage.ports import Files


class CannotLookError(StorageError):
    """There is nothing to look at, or somebody is using it."""


@dataclass(slots=True)
class VerifyReport:
    """What was found out about a data directory."""

    partitions: list[PartitionReport] = field(default_factory=list)
    # Of the directory itself.
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems and all(partition.ok for partition in self.partitions)

    def as_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "partitions": [_partition_as_json(partition) for partition in self.partitions],
            "problems": self.problems,
        }


def _partition_as_json(report: PartitionReport) -> dict[str, Any]:
    return {
        "partition": report.partition,
        "ok": report.ok,
        "problems": report.problems,
        "notes": report.notes,
        "batches": report.batches,
        "records": report.records,
        "start_offset": report.start_offset,
        "end_offset": report.end_offset,
        "bytes": report.bytes,
    }


def verify_directory(
    files: Files,
    path: str,
    *,
    state_path: str | None = None,
    force: bool = False,
    gaps_allowed: bool = False,
    read_state: Callable[[str], StateReader] = read_state_file,
) -> VerifyReport:
    """Read every byte of a data directory, or of one partition, or raise `CannotLookError`."""
    path = path.rstrip("/") or "/"
    try:
        if not files.exists(path):
            raise CannotLookError(f"{path}: no such file or directory.")
        place = find_place(files, path, has_state=state_path is not None)
    except OSError as error:
        raise CannotLookError(f"{path} cannot be read: {error}.") from error
    if place is None:
        raise CannotLookError(f"{path} {NO_LOG}")
    with _locked(files, place.root, force=force):
        return _verify_place(files, place, state_path, read_state, gaps_allowed=gaps_allowed)


@contextmanager
def _locked(files: Files, root: str, *, force: bool) -> Iterator[None]:
    path = f"{root}/{LOCK_NAME}"
    # Taking a lock that is not there would make its file.
    if not files.exists(path):
        yield
        return
    try:
        lock = files.lock(path)
    except BlockingIOError:
        if not force:
            raise CannotLookError(
                f"{root} is in use by a node. Stop it first, or use --force and expect to be told "
                "of problems that are only work in progress."
            ) from None
        yield
        return
    except OSError:
        # Not ours to lock, or a disk that cannot be written: then no node can run on it either.
        yield
        return
    try:
        yield
    finally:
        lock.close()


def _verify_place(
    files: Files,
    place: DataPlace,
    state_path: str | None,
    read_state: Callable[[str], StateReader],
    *,
    gaps_allowed: bool,
) -> VerifyReport:
    report = VerifyReport()
    store = _open_state(files, place, state_path, read_state, report)
    for name in place.partitions:
        directory = f"{place.root}/{name}"
        try:
            if store is None:
                known = known_to_kafka(files, directory, name)
            else:
                known = known_to_us(files, directory, name, store)
        except OSError as error:
            report.partitions.append(PartitionReport(name, [f"it cannot be read: {error}"]))
            continue
        known.gaps_allowed = gaps_allowed
        report.partitions.append(check_partition(files, directory, known))
    if store is not None and place.is_whole:
        _find_missing(place, store, report)
    return report


def _open_state(
    files: Files,
    place: DataPlace,
    state_path: str | None,
    read_state: Callable[[str], StateReader],
    report: VerifyReport,
) -> StateReader | None:
    path = state_path or f"{place.root}/{STATE_NAME}"
    if state_path is None and not files.exists(path):
        if place.is_whole and _is_ours(files, place):
            report.problems.append(
                f"the state store {path} is missing; if it is elsewhere, --state says where"
            )
        return None
    try:
        return read_state(path)
    except StorageError as error:
        report.problems.append(str(error))
        return None


def _is_ours(files: Files, place: DataPlace) -> bool:
    """Return whether a node of ours has kept logs here: a broker leaves files that we never make.

    Before there is a partition, a node may have come no further than its identity.
    """
    names = files.list_dir(place.root)
    if META_NAME not in names or not place.partitions:
        return False
    if any(name in names for name in CHECKPOINT_NAMES):
        return False
    return not any(
        files.exists(f"{place.root}/{partition}/{EPOCHS_NAME}") for partition in place.partitions
    )


def _find_missing(place: DataPlace, store: StateReader, report: VerifyReport) -> None:
    """A record without a directory: synced data is gone (rule 8)."""
    pairs = store.scan(PARTITION_PREFIX)
    while True:
        try:
            key, value = next(pairs)
        except StopIteration:
            return
        except CorruptionError as error:
            # Told already if its directory is there; what comes after it cannot be listed.
            report.problems.append(f"the list of partitions cannot be read: {error}")
            return
        name = key.removeprefix(PARTITION_PREFIX).decode(errors="backslashreplace")
        if name in place.partitions or partition_named(name) is None:
            continue
        try:
            is_going = decode_state(name, value).pending.intent is Intent.DELETE
        except CorruptionError as error:
            report.problems.append(str(error))
            continue
        if not is_going:
            report.problems.append(f"the directory {place.root}/{name} is missing")
