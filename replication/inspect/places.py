"""What there is to look at: data directories, partitions, and the segments of one.

A crash may have interrupted a swap or a reset. What is listed here is what the next start will
find once it has finished that: nothing is finished now, because nothing may be written.

Not here: what is inside a segment.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ottla.proto.ids import Offset
from ottla.replication.inspect.kafka_files import CHECKPOINT_NAMES, is_kafkas
from ottla.replication.inspect.state_file import STATE_NAME
from ottla.replication.inspect.words import counted
from ottla.replication.log.files import CLEANED_SUFFIX, LOG_SUFFIX, read_names
from ottla.replication.log.manager import partition_named
from ottla.replication.log.state import Intent, PartitionState
from ottla.replication.storage.directory import META_NAME
from ottla.replication.storage.ports import Files

# Said of a path that `find_place` does not know.
NO_LOG: Final = "holds no log: it is neither a data directory nor the directory of a log."
_MARKS: Final = frozenset((META_NAME, STATE_NAME, *CHECKPOINT_NAMES))


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """One segment by its names."""

    base_offset: Offset
    log_name: str

    def index_name(self, suffix: str) -> str | None:
        """Return None for a cleaned segment that waits to be swapped in: its indexes are remade."""
        if not self.log_name.endswith(LOG_SUFFIX):
            return None
        return self.log_name.removesuffix(LOG_SUFFIX) + suffix


@dataclass(slots=True)
class PartitionFiles:
    """The segments of one partition, in order, and what is to be said about the other files."""

    segments: list[SegmentPlace]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DataPlace:
    """A data directory, or as much of it as was asked for."""

    root: str
    # Directories of partitions, by name.
    partitions: tuple[str, ...]
    # Every partition of the root is in `partitions`.
    is_whole: bool


def find_place(files: Files, path: str, *, has_state: bool = False) -> DataPlace | None:
    """Return what `path` is, or None if it is no directory that holds logs.

    Many a directory is called like a partition (`/etc/dbus-1`). That of a log has segments, or
    stands where a node or a broker has left its mark, or its state is known from elsewhere.
    """
    if not files.is_dir(path):
        return None
    root, _, name = path.rpartition("/")
    names = files.list_dir(path)
    if partition_named(name) and _has_segments(files, path):
        return DataPlace(root or "/", (name,), is_whole=False)
    partitions = tuple(
        name for name in names if partition_named(name) and files.is_dir(f"{path}/{name}")
    )
    is_marked = has_state or not _MARKS.isdisjoint(names)
    if not is_marked and not any(_has_segments(files, f"{path}/{name}") for name in partitions):
        return None
    return DataPlace(path, partitions, is_whole=True)


def _has_segments(files: Files, directory: str) -> bool:
    return bool(read_names(files, directory).bases)


def read_partition_files(
    files: Files, directory: str, state: PartitionState | None
) -> PartitionFiles:
    """Return the segments as the next start would find them."""
    names = read_names(files, directory)
    segments = [SegmentPlace(base, f"{base:020d}{LOG_SUFFIX}") for base in names.bases]
    leftovers = list(names.leftovers)
    notes = list[str]()
    if state is not None:
        segments = _after_pending(segments, leftovers, state, notes)
        segments = _after_start(segments, state, notes)
    if leftovers:
        waiting = counted(len(leftovers), "file")
        notes.append(f"the next start removes {waiting}, the first is {leftovers[0]}")
    for name in names.strangers:
        if state is not None or not is_kafkas(name):
            notes.append(f"{name} is not a file of a log")
    return PartitionFiles(segments, notes)


_PENDING: Final = {
    Intent.SWAP: "a cleaned segment at {offset} is being swapped in; the next start finishes it",
    Intent.RESET: "the log is being started anew at {offset}; the next start finishes it",
    Intent.DELETE: "the partition is being deleted; the next start finishes it",
}


def _after_pending(
    segments: list[SegmentPlace], leftovers: list[str], state: PartitionState, notes: list[str]
) -> list[SegmentPlace]:
    pending = state.pending
    if pending.intent is Intent.NOTHING:
        return segments
    notes.append(_PENDING[pending.intent].format(offset=pending.offset))
    if pending.intent is not Intent.SWAP:
        return []
    target = SegmentPlace(pending.offset, f"{pending.offset:020d}{LOG_SUFFIX}{CLEANED_SUFFIX}")
    waits = target.log_name in leftovers
    kept = [
        segment
        for segment in segments
        if segment.base_offset not in pending.sources
        or (segment.base_offset == pending.offset and not waits)
    ]
    if waits:
        leftovers.remove(target.log_name)
        kept.append(target)
    return sorted(kept, key=lambda segment: segment.base_offset)


def _after_start(
    segments: list[SegmentPlace], state: PartitionState, notes: list[str]
) -> list[SegmentPlace]:
    below = 0
    while below + 1 < len(segments) and segments[below + 1].base_offset <= state.start_offset:
        below += 1
    if below:
        notes.append(
            f"the next start removes {counted(below, 'segment')} below the start offset "
            f"{state.start_offset}"
        )
    return segments[below:]
