"""What a follower gets from its leader, checked before a byte of it is written (rule 45).

O1  every checksum is right, offsets follow one another, epochs never go back, and none is later
    than that of the leader who sent them
O2  with one bad batch nothing is taken: never append it, never skip it

Not here: what a producer sends (`proto/records/validate.py`), and fetching again.
"""

from __future__ import annotations

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import INT32_MAX, LeaderEpoch, Offset
from ottla.proto.records.header import (
    BATCH_LENGTH_MIN,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
    read_batch_length,
)
from ottla.proto.records.validate import validate_stored


def checked_headers(
    batches: memoryview,
    *,
    end_offset: Offset,
    epoch: LeaderEpoch,
    gaps_allowed: bool,
    leader_epoch: LeaderEpoch | None = None,
) -> list[BatchHeader]:
    """Return the headers of the whole batches, or raise `CorruptionError` for the first bad one.

    A batch that is cut off at the end, as a fetch may have it, is left out. Gaps are what
    compaction leaves. Without a leader epoch, batches may be of any.
    """
    latest = INT32_MAX if leader_epoch is None else leader_epoch
    headers: list[BatchHeader] = []
    position = 0
    while len(batches) - position >= HEADER_SIZE:
        length = read_batch_length(batches, position)
        if length < BATCH_LENGTH_MIN:
            raise CorruptionError(f"a batch of length {length} at offset {end_offset}")
        if length + LENGTH_END > len(batches) - position:
            break
        header = validate_stored(batches[position : position + length + LENGTH_END])
        if header.base_offset != end_offset and not (
            gaps_allowed and header.base_offset > end_offset
        ):
            raise CorruptionError(
                f"a batch at offset {header.base_offset} where {end_offset} was due"
            )
        if header.last_offset - end_offset > INT32_MAX:
            raise CorruptionError(
                f"a gap of {header.base_offset - end_offset} offsets at {end_offset}, more than a "
                f"segment can span"
            )
        if header.leader_epoch < epoch:
            raise CorruptionError(
                f"epoch {header.leader_epoch} at offset {header.base_offset}, after epoch {epoch}"
            )
        if header.leader_epoch > latest:
            raise CorruptionError(
                f"epoch {header.leader_epoch} at offset {header.base_offset}, from a leader of "
                f"epoch {latest}"
            )
        headers.append(header)
        position += header.size
        end_offset, epoch = header.next_offset, LeaderEpoch(header.leader_epoch)
    return headers
