"""A piece of a log, as it lies in a file, and where it ends.

Not here: where it begins (`log.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.proto.ids import Offset
from ottla.replication.log.scan import At
from ottla.replication.log.segment import Segment
from ottla.replication.storage.ports import File


class LogSlice(NamedTuple):
    """Bytes of one segment, ready for sendfile. The first batch is whole, the last may be cut.

    It is cut only where batches are smaller than `index.interval.bytes`, and by less than that.
    """

    file: File
    position: int
    size: int
    # Of the first batch; it may lie below the offset that was asked for.
    first_offset: Offset

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)


def slice_from(segment: Segment, at: At, *, limit: int, bytes_max: int) -> LogSlice | None:
    """Return what lies from a batch on, below the position `limit`; None if that is nothing.

    At most `bytes_max` bytes, but the first batch always whole.
    """
    position, header = at
    first_size = header.size
    size = min(limit - position, max(bytes_max, first_size))
    if size <= 0:
        return None
    file = segment.reader()
    if position + size < limit:
        # A batch that is cut is sent again, whole: rather end where one is known to begin.
        border = segment.indexes.offsets.entry_up_to(position + size)
        if border is not None and border.value > position:
            size = max(border.value - position, first_size)
            segment.remember(border, file)
    return LogSlice(file, position, size, Offset(header.base_offset))
