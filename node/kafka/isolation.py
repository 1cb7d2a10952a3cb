"""What `isolation.level` means to a reader: how far it may read, and what it is to leave out.

Who reads uncommitted gets everything below the high watermark. Who reads committed gets what is
below the last stable offset, where every transaction is decided, with a list of the aborted ones:
their records are in the bytes that are sent, and the client leaves them out.

Not here: keeping the index of aborted transactions (`replication/log/aborted.py`).
"""

from __future__ import annotations

from typing import Final

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import Offset
from ottla.replication.log.log import Log
from ottla.replication.log.slices import LogSlice

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
ISOLATION_LEVELS: Final = (READ_UNCOMMITTED, READ_COMMITTED)


def readable_end(log: Log, isolation_level: int) -> Offset:
    """Return below which offset a client may read."""
    is_committed = isolation_level == READ_COMMITTED
    return log.last_stable_offset if is_committed else log.high_watermark


def aborted_in(
    log: Log, offset: int, found: LogSlice | None, isolation_level: int
) -> list[tuple[int, int]] | None:
    """Return producer id and first offset of what was aborted in a slice that begins at `offset`.

    None for who reads uncommitted. Raises `StorageError`.
    """
    if isolation_level != READ_COMMITTED:
        return None
    if found is None:
        return []
    number = log.segment_number(found.first_offset)
    try:
        end = _end_of(log, number, found, log.last_stable_offset)
        first = Offset(min(offset, found.first_offset))
        aborted = log.aborted.overlapping(log.segments[number:], first, end)
    except (OSError, CorruptionError) as error:
        raise log.fail_reading("look at aborted transactions", error) from error
    return [(one.producer_id, one.first_offset) for one in aborted]


def _end_of(log: Log, number: int, found: LogSlice, bound: Offset) -> Offset:
    """Return an offset that no record of the slice reaches, not far behind it."""
    segment = log.segments[number]
    index = segment.indexes.offsets
    slot = index.count_below(found.position + found.size)
    if slot < len(index):
        return min(bound, Offset(segment.base_offset + index.entry_at(slot).key + 1))
    return min(bound, log.end_of_segment(number))
