"""Finishes what was begun on the files of a partition before the process died.

The intent was committed before the first file was touched (X1), so whatever is left is a step on
the way, and going on from any step ends at the same place.

J1  finishing twice is finishing once
J2  a source of a swap goes only when the segment that replaces it is known to be there, byte for
    byte: by its name while it waits, by size and checksum afterwards

Not here: deleting a partition, which concerns the directory above (`manager.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from crc32c import crc32c

from ottla.proto.errors import CorruptionError
from ottla.replication.log.files import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    base_of,
)
from ottla.replication.log.state import (
    NOTHING_PENDING,
    Intent,
    PartitionState,
    Pending,
    encode_state,
    partition_key,
)
from ottla.replication.storage.ports import Files, StateStore

_READ_BYTES: Final = 1 << 20


def finish_pending(
    files: Files, store: StateStore, name: str, directory: str, state: PartitionState
) -> PartitionState:
    """Return the state with nothing pending, durable, and the files as it says."""
    if state.pending.intent is Intent.NOTHING:
        return state
    present = set(files.list_dir(directory))
    if state.pending.intent is Intent.SWAP:
        _finish_swap(files, directory, state.pending, present)
    elif state.pending.intent is Intent.RESET:
        for found in sorted(present):
            if any(base_of(found, suffix) is not None for suffix in SUFFIXES):
                files.remove(f"{directory}/{found}")
    files.sync_dir(directory)
    state = replace(state, pending=NOTHING_PENDING)
    store.commit({partition_key(name): encode_state(state)})
    return state


def _finish_swap(files: Files, directory: str, pending: Pending, present: set[str]) -> None:
    """The cleaned segment replaces its sources; its indexes are rebuilt when first needed."""
    target = f"{directory}/{pending.offset:020d}{LOG_SUFFIX}"
    waits = f"{pending.offset:020d}{LOG_SUFFIX}{CLEANED_SUFFIX}" in present
    cleaned = target + CLEANED_SUFFIX if waits else target
    if not files.exists(cleaned) or crc_of_file(files, cleaned) != (pending.size, pending.crc):
        raise CorruptionError(
            f"{cleaned} was to replace {len(pending.sources)} segments, and is not there as it "
            f"was written"
        )
    aborted = f"{pending.offset:020d}{TRANSACTION_INDEX_SUFFIX}"
    # It is renamed before the segment, and always made where a source has one: if it does not wait
    # any more, what stands under its name is the new one.
    is_aborted_new = aborted + CLEANED_SUFFIX not in present
    for base in pending.sources:
        if base == pending.offset and not waits:
            continue
        for suffix in SUFFIXES:
            name = f"{base:020d}{suffix}"
            if name in present and not (name == aborted and is_aborted_new):
                files.remove(f"{directory}/{name}")
    if not is_aborted_new:
        files.rename(f"{directory}/{aborted}{CLEANED_SUFFIX}", f"{directory}/{aborted}")
    if waits:
        files.rename(cleaned, target)


def crc_of_file(files: Files, path: str) -> tuple[int, int]:
    """Return the size and the checksum of a whole file, reading it piece by piece."""
    file = files.open(path, writable=False)
    try:
        size, crc = file.size(), 0
        for position in range(0, size, _READ_BYTES):
            crc = crc32c(file.read_at(position, _READ_BYTES), crc)
        return size, crc
    finally:
        file.close()
