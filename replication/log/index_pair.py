"""The two indexes of a segment, made and loaded together.

Not here: what an index is (`index.py`), what is put into it and when it is rebuilt (`segment.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.replication.log.index import SparseIndex, offset_index, time_index
from ottla.replication.log.state import Trusted
from ottla.replication.storage.ports import Files

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
# Where the offset index is, and where the time index.
Paths = tuple[str, str]


@dataclass(slots=True)
class Indexes:
    """The offset index and the time index of one segment."""

    offsets: SparseIndex
    times: SparseIndex

    @classmethod
    def made(cls, files: Files, paths: Paths, bytes_max: int) -> Indexes:
        """Return empty ones."""
        return cls(
            offset_index(files, paths[0], bytes_max=bytes_max),
            time_index(files, paths[1], bytes_max=bytes_max),
        )

    @classmethod
    def loaded(
        cls, files: Files, paths: Paths, bytes_max: int, trusted: Trusted | None
    ) -> Indexes | None:
        """Return the indexes as their files have them, or None if they cannot be right.

        If it is known how much of them may be trusted, they end there.
        """
        if not all(files.exists(path) for path in paths):
            return None
        offset_bytes, time_bytes = (files.size_of(path) for path in paths)
        if trusted is not None:
            known_offset_bytes = trusted.index_entries * _OFFSET_ENTRY_BYTES
            known_time_bytes = trusted.time_entries * _TIME_ENTRY_BYTES
            if offset_bytes < known_offset_bytes or time_bytes < known_time_bytes:
                return None
            offset_bytes, time_bytes = known_offset_bytes, known_time_bytes
        if offset_bytes % _OFFSET_ENTRY_BYTES or time_bytes % _TIME_ENTRY_BYTES:
            return None
        found = cls(
            offset_index(files, paths[0], bytes_max=bytes_max, saved_bytes=offset_bytes),
            time_index(files, paths[1], bytes_max=bytes_max, saved_bytes=time_bytes),
        )
        if trusted is not None:
            found.offsets.save(trim=True)
            found.times.save(trim=True)
        return found

    def fit(self, size: int) -> bool:
        """Return whether they can be those of a segment of `size` bytes (I1, I2)."""
        last = self.offsets.last
        if last is not None and not (last.key >= 0 and 0 <= last.value < size):
            return False
        return self.offsets.is_ordered() and self.times.is_ordered()
