"""What the conversations about groups are made of: requests, and how somebody becomes a member.

A group has the name that belongs to its conversation alone. Groups here have one member, or one
that is replaced: a second one would wait for the first, and a conversation does one thing after
the other.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ottla.proto.kafka.apis import JOIN_GROUP, SYNC_GROUP
from tests.interop.differential.case import Answer, Ask, Send
from tests.interop.differential.messages import Fields
from tests.interop.differential.stage import FILLED

# Long enough for any conversation, on any machine.
SESSION_MS: Final = 60_000
CONSUMER: Final = "consumer"
RANGE: Final = "range"
ID_NEEDED: Final = "79 member_id_required"
# A version in which a member may have a name, and is asked to come back with its id.
JOINS: Final = 5
SYNCS: Final = 3


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(*topics: str) -> bytes:
    """Return what a consumer says it wants to read."""
    head = struct.pack(">hi", 0, len(topics))
    return head + b"".join(_text(one) for one in topics) + struct.pack(">i", -1)


def assignment(topic: str, *partitions: int) -> bytes:
    """Return what the leader of a group says that a consumer reads."""
    told = struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return struct.pack(">hi", 0, 1) + _text(topic) + told + struct.pack(">i", -1)


def join_fields(group: str, member_id: str = "", **changes: Any) -> Fields:
    protocols = [{"name": RANGE, "metadata": subscription(FILLED)}]
    return {
        "group_id": group,
        "session_timeout": SESSION_MS,
        "rebalance_timeout": SESSION_MS,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": CONSUMER,
        "protocols": protocols,
        "reason": None,
        **changes,
    }


def protocols_of(*named: tuple[str, bytes]) -> list[dict[str, Any]]:
    return [{"name": name, "metadata": metadata} for name, metadata in named]


def sync_fields(
    group: str,
    member_id: str,
    generation: int,
    assignments: Iterable[tuple[str, bytes]] | None = None,
    **changes: Any,
) -> Fields:
    if assignments is None:
        assignments = [(member_id, assignment(FILLED, 0, 1))]
    return {
        "group_id": group,
        "generation_id": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "protocol_type": CONSUMER,
        "protocol_name": RANGE,
        "assignments": [{"member_id": who, "assignment": what} for who, what in assignments],
        **changes,
    }


def commit_fields(
    group: str,
    topics: Sequence[Fields],
    *,
    member_id: str = "",
    generation: int = -1,
    **changes: Any,
) -> Fields:
    return {
        "group_id": group,
        "generation_id_or_member_epoch": generation,
        "member_id": member_id,
        "group_instance_id": None,
        "topics": list(topics),
        **changes,
    }


def committed(
    index: int = 0, offset: int = 5, *, epoch: int = -1, metadata: str | None = ""
) -> Fields:
    return {
        "partition_index": index,
        "committed_offset": offset,
        "committed_leader_epoch": epoch,
        "committed_metadata": metadata,
    }


class Membership(NamedTuple):
    """Who one is, and since when."""

    member_id: str
    generation: int


Joining = Generator[Send, Answer, Membership]


def joined(ask: Ask, version: int = JOINS, *, is_recorded: bool = False, **changes: Any) -> Joining:
    """Join, with the id that one is given if one is asked to, and return as whom."""
    answer = yield Send(
        JOIN_GROUP, version, join_fields(ask.topic, **changes), is_recorded=is_recorded
    )
    assert not isinstance(answer, str), answer
    if answer["error_code"] == ID_NEEDED:
        fields = join_fields(ask.topic, answer["member_id"], **changes)
        answer = yield Send(JOIN_GROUP, version, fields, is_recorded=is_recorded)
        assert not isinstance(answer, str), answer
    return Membership(answer["member_id"], answer["generation_id"])


def settled(ask: Ask, **changes: Any) -> Joining:
    """Join, lead, and take all partitions: the group is stable then."""
    member = yield from joined(ask, **changes)
    yield Send(SYNC_GROUP, SYNCS, sync_fields(ask.topic, *member), is_recorded=False)
    return member
