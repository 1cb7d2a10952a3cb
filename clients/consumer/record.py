"""What a consumer gives out, and what it takes to remember where it was.

Not here: bytes of batches (`decoding.py`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from ottla.proto.records.header import TimestampType

EARLIEST_TIME: Final = -2
LATEST_TIME: Final = -1


class Record(NamedTuple):
    """One record as a program meets it. Without deserializers, key and value are bytes."""

    topic: str
    partition: int
    offset: int
    # Milliseconds since 1970, or -1 if the record has no time.
    timestamp_ms: int
    key: Any
    # None is a tombstone in a compacted topic.
    value: Any
    # In the order the producer gave them; a name may come more than once.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    # The epoch of the leader that placed it, or -1.
    leader_epoch: int = -1

    def header(self, name: str) -> bytes | None:
        """Return the last header of this name, or None if there is none."""
        for key, value in reversed(self.headers):
            if key == name:
                return value
        return None


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the *next* record to be read, and a text kept beside it."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class GroupMetadata(NamedTuple):
    """Who a consumer is in its group; what a transaction needs to commit its offsets."""

    group_id: str
    # -1 and "" if it was never given partitions by its group.
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_in(self) -> bool:
        return self.generation >= 0 and bool(self.member_id)


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1
