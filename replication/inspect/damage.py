"""Where a segment goes on behind a batch that is not sound.

A page is torn out of the book: its neighbours can still be read, if one knows how thick it was. The
length of a damaged batch is believed if it leads to the end of the file, or to something that looks
like the next batch.

Not here: what is wrong with the batch (`log/scan.py`), and what follows from it (`partition.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.proto.ids import INT32_MAX, Offset
from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    read_header,
)
from ottla.replication.storage.ports import File


class Behind(NamedTuple):
    """The place behind a damaged batch: where the next one begins, or the end of the file."""

    position: int
    # Of the next batch; None at the end of the file.
    base_offset: Offset | None


def find_behind(file: File, position: int, size: int, due: Offset) -> Behind | None:
    """Return where the segment goes on behind the batch at `position`, or None if nobody can tell.

    `due` is the offset at which the damaged batch was due: the next one lies above it.
    """
    if size - position < HEADER_SIZE:
        return None
    header = read_header(file.read_at(position, HEADER_SIZE))
    end = position + header.size
    if header.batch_length < BATCH_LENGTH_MIN or end > size:
        return None
    if end == size:
        return Behind(end, None)
    if size - end < HEADER_SIZE:
        return None
    following = read_header(file.read_at(end, HEADER_SIZE))
    if not _is_plausible(following, size - end, due):
        return None
    return Behind(end, Offset(following.base_offset))


def _is_plausible(header: BatchHeader, left: int, due: Offset) -> bool:
    return (
        BATCH_LENGTH_MIN <= header.batch_length <= left - LENGTH_END
        and header.magic == MAGIC
        # The offsets of one segment lie no further apart.
        and due <= header.base_offset <= due + INT32_MAX
        and 0 <= header.count <= header.last_offset_delta + 1
    )
