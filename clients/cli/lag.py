"""How far a group is behind: what it has committed, held against where its partitions end.

L1  a lag is told only if both offsets are known; it is never below 0
L2  a partition stands in the table if the group has committed something for it, or if a member
    reads it

Not here: asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.clients.admin.answers import CommittedOffset, GroupInfo, GroupMember
from ottla.clients.consumer.protocol import PROTOCOL_TYPE, decode_assignment
from ottla.proto.errors import RemoteProtocolError
from ottla.proto.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Standing:
    """One partition of a group."""

    partition: TopicPartition
    # None: nothing is committed.
    committed: int | None
    # Exclusive. None: the topic is gone, or its leader does not tell.
    end: int | None
    # None: nobody reads it now.
    member: GroupMember | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "committed_offset": self.committed,
            "end_offset": self.end,
            "lag": self.lag,
            "member_id": None if self.member is None else self.member.member_id,
        }


def partitions_read(group: GroupInfo) -> dict[TopicPartition, GroupMember]:
    """Return who reads what; nothing of a group whose assignments are not consumers'."""
    if group.protocol_type != PROTOCOL_TYPE:
        return {}
    return {part: member for member in group.members for part in partitions_of(member)}


def partitions_of(member: GroupMember) -> tuple[TopicPartition, ...]:
    """Return what a member reads; nothing if nobody can tell from its bytes."""
    try:
        return tuple(sorted(decode_assignment(member.assignment)))
    except RemoteProtocolError:
        # Any client may have written them, and only members have to understand them.
        return ()


def standings(
    read: Mapping[TopicPartition, GroupMember],
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[Standing]:
    """Return the partitions of a group, sorted (L2)."""
    return [
        Standing(
            one,
            committed[one].offset if one in committed else None,
            ends.get(one),
            read.get(one),
        )
        for one in sorted({*read, *committed})
    ]


def total_lag(found: list[Standing]) -> int | None:
    """Return the sum of all lags that are known; None if none is."""
    known = [one.lag for one in found if one.lag is not None]
    return sum(known) if known else None
