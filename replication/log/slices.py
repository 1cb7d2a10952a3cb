"""A piece of a log, as it lies in a file.

Not here: finding it (`log.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.proto.ids import Offset
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
