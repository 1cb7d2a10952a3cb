"""What a log knows beside its batches, worked out again from them.

Not here: where to stop trusting the files (`recovery.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from ottla.proto.errors import CorruptionError
from ottla.proto.ids import Offset
from ottla.proto.records.control import read_marker
from ottla.replication.log.aborted import AbortedTransactions
from ottla.replication.log.scan import At, walk
from ottla.replication.log.segment import Segment
from ottla.replication.log.state import PartitionState, decode_producers, producers_key
from ottla.replication.producers import ProducerStates
from ottla.replication.storage.ports import StateStore


class Rebuildable(Protocol):
    """The part of a log that is needed here."""

    @property
    def name(self) -> str: ...
    @property
    def store(self) -> StateStore: ...
    @property
    def state(self) -> PartitionState: ...
    @property
    def segments(self) -> Sequence[Segment]: ...
    @property
    def snapshots(self) -> Sequence[Offset]: ...
    @property
    def aborted(self) -> AbortedTransactions: ...


def rebuild_producers(log: Rebuildable, end_offset: Offset, now_ms: int) -> ProducerStates:
    """Return the producers at the end of the log, by the newest snapshot that can be used (S2).

    What was aborted behind it is added to the index on the way.
    """
    producers, since = _newest_snapshot(log)
    if since >= end_offset:
        # The usual start: nothing was written since. No segment is opened for nothing.
        return producers
    for segment, at in batches_from(log.segments, since):
        header = at.header
        marker = None
        if header.is_control and header.producer_id >= 0:
            marker = read_marker(segment.reader().read_at(at.position, header.size))
        aborted = producers.record(header, Offset(header.base_offset), now_ms, marker)
        if aborted is not None:
            log.aborted.add(segment, aborted)
    return producers


def _newest_snapshot(log: Rebuildable) -> tuple[ProducerStates, Offset]:
    # Below it batches were deleted or cleaned away. What they said of a producer is lost to a
    # snapshot that is older than they, so it is not used (Kafka drops those below the start, too):
    #   1. a snapshot has an open transaction
    #   2. its marker is written, and then deleted with its segment or cleaned away
    #   3. power fails before the next checkpoint, or all newer snapshots are cut off
    #   4. the transaction would be open again, and nobody writes a marker any more: the last stable
    #      offset and retention would stand still
    # Likewise a sequence would be the next in line that was used meanwhile.
    whole_from = max(log.segments[0].base_offset, log.state.cleaned_to)
    for offset in sorted(log.snapshots, reverse=True):
        if offset < whole_from:
            break
        try:
            value = log.store.get(producers_key(log.name, offset))
            if value is not None:
                return decode_producers(log.name, value), offset
        except CorruptionError:
            # An older one, or the log itself, tells the same.
            continue
    return ProducerStates(), Offset(0)


def batches_from(segments: Sequence[Segment], offset: Offset) -> Iterator[tuple[Segment, At]]:
    """Yield all batches that lie wholly at or above `offset`, and where they are."""
    for number, segment in enumerate(segments):
        is_below = number + 1 < len(segments) and segments[number + 1].base_offset <= offset
        if is_below or segment.size == 0:
            continue
        at = segment.find(offset)
        if at is None:
            continue
        for found in walk(segment.reader(), at.position, segment.size):
            if found.header.base_offset >= offset:
                yield segment, found
