"""What is asked of a group, what it answers, and what it wishes to be done.

Not here: the group itself (`group.py`), and Kafka's requests (`node/kafka`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ottla.node.groups.records import GroupValue
from ottla.proto.errors import ErrorCode

# Whoever waits for an answer. A group passes it back with the answer, and never looks inside.
Waiter = object


class State(Enum):
    """What a group is doing, in Kafka's words."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Reason(Enum):
    """Why a group rebalances. These are the values of a metric's label: few, and never a name."""

    JOINED = "member_joined"
    LEFT = "member_left"
    REMOVED = "member_removed"
    SESSION = "session_expired"
    LEADER = "leader_rejoined"
    CHANGED = "member_changed"
    STATIC = "static_member_changed"
    NOT_SYNCED = "sync_timed_out"
    NOT_WRITTEN = "assignment_not_written"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the node's options say of groups."""

    # group.initial.rebalance.delay.ms
    initial_delay_ms: int
    # group.max.size
    size_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """Somebody wants to be a member, or to be one again."""

    # Empty: it has no id yet.
    member_id: str
    # group.instance.id of a static member.
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    # Name and metadata, what it likes best first.
    protocols: tuple[tuple[str, bytes], ...]
    # A member without an id gets one, and has to come again with it (JoinGroup 4 and later).
    is_id_needed: bool = True
    # It knows what "skip the assignment" means (JoinGroup 9).
    may_skip: bool = True
    # In the member's own words.
    reason: str = ""
    # What makes a new id different from all others.
    fresh: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The new generation, or why there is none for this member."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    # For the leader: id, group.instance.id and metadata of all.
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A member asks what it is to read; the leader brings what everybody is to read."""

    member_id: str
    instance_id: str | None = None
    generation: int
    # Told by SyncGroup 5 and later.
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """What a member is to read, in bytes that only members understand."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell this to whoever waits."""

    waiter: Waiter
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance has begun: tell people why."""

    reason: Reason
    # A sentence for the log.
    detail: str
    # The one that ends.
    generation: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """Written because the leader has brought the assignments of a generation."""

    generation: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replaced:
    """Written because a static member has come back under another id."""

    member_id: str
    old_id: str
    was_leader: bool
    may_skip: bool


@dataclass(frozen=True, slots=True)
class Emptied:
    """Written because nobody is left."""


Purpose = Assigned | Replaced | Emptied


@dataclass(frozen=True, slots=True)
class WriteGroup:
    """Write this to the log; `Group.written` wants to know when it is committed, or that not."""

    value: GroupValue
    purpose: Purpose


Effect = Answer | Rebalance | WriteGroup
