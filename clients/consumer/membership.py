"""One member of a group, as it knows itself. A core: it is told what the coordinator said and says
what is to be done; `group.py` does it.

           joins            is given its part
    out ─────────▶ joining ─────────▶ settled
     ▲                ▲                  │ rebalance in progress, illegal generation, new partitions
     … │                └──────────────────┘
     └── unknown member, fenced, asked to leave

G1  an error code of any request of a group has one row in `REACTIONS`; others are fatal
G2  a member id and a generation are sent only to the coordinator's own requests, and forgotten
    together when the coordinator does not know them (RESET)
G3  eager: everything is let go before joining. Cooperative: only what the new assignment does not
    contain, after it has come; and then the member joins again, for others to have it (KIP-429)
G4  what was lost (the group went on without us) is not committed and is told as lost, not as
    revoked
G5  offsets that go with a transaction carry the generation and member id under which partitions
    were assigned last, also when we are out meanwhile: the coordinator then refuses them. -1 and ""
    would be taken, because that is what somebody without a group says

Not here: assignments (`assignors.py`), time (`group.py` keeps the deadlines).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ottla.clients.consumer.assignors import Assignor
from ottla.clients.consumer.protocol import (
    NO_GENERATION,
    PROTOCOL_TYPE,
    Subscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.ids import TopicPartition

NO_MEMBER: Final = ""


class Reaction(Enum):
    """What to do after an answer of the coordinator."""

    GO_ON = "go on"
    # Ask the same again after a pause.
    RETRY = "retry"
    # Find out who coordinates the group, then ask again.
    FIND = "find"
    # Join again with the same member id.
    REJOIN = "rejoin"
    # Forget member id and generation, then join: what was owned is lost.
    RESET = "reset"
    # Join again at once with the member id of the answer.
    TAKE_ID = "take id"
    # Nothing helps; tell the program.
    FATAL = "fatal"


_E: Final = ErrorCode
# The same for all requests of a group, where they can occur.
REACTIONS: Final[Mapping[ErrorCode, Reaction]] = {
    _E.NONE: Reaction.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    _E.REQUEST_TIMED_OUT: Reaction.RETRY,
    _E.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY,
    _E.THROTTLING_QUOTA_EXCEEDED: Reaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.FIND,
    _E.NOT_COORDINATOR: Reaction.FIND,
    _E.NETWORK_EXCEPTION: Reaction.FIND,
    _E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    _E.ILLEGAL_GENERATION: Reaction.RESET,
    _E.UNKNOWN_MEMBER_ID: Reaction.RESET,
    _E.MEMBER_ID_REQUIRED: Reaction.TAKE_ID,
}


def reaction_to(code: ErrorCode) -> Reaction:
    return REACTIONS.get(code, Reaction.FATAL)


@dataclass(frozen=True, slots=True)
class Change:
    """What a new assignment means for what is owned."""

    added: tuple[TopicPartition, ...]
    revoked: tuple[TopicPartition, ...]
    # Others wait for what is revoked.
    rejoin: bool


@dataclass(frozen=True, slots=True)
class Member:
    """Who we are in the group right now."""

    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    # The assignor the group has agreed on, once it has.
    protocol: str | None = None

    @property
    def is_in(self) -> bool:
        return self.generation != NO_GENERATION


class Membership:
    """The memory of one member: id, generation, what it owns, whether it must join again."""

    def __init__(
        self,
        *,
        group_id: str,
        instance_id: str | None,
        assignors: Sequence[Assignor],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        rack: str | None = None,
    ) -> None:
        self.group_id: Final = group_id
        self.instance_id: Final = instance_id
        self.assignors: Final = tuple(assignors)
        # A group is as cooperative as its least cooperative assignor.
        self.cooperative: Final = all(row.cooperative for row in assignors)
        self._session_timeout_ms: Final = session_timeout_ms
        self._rebalance_timeout_ms: Final = rebalance_timeout_ms
        self._rack: Final = rack
        self.member = Member()
        # Why the member has to join, or None: it is settled, or does not want to be in.
        self.join_reason: str | None = None
        self.owned: tuple[TopicPartition, ...] = ()
        # The last assignment, let go or not, and its generation: sticky assignors ask.
        self._assigned: tuple[TopicPartition, ...] = ()
        self._assigned_since = NO_GENERATION
        # Who we were when partitions were assigned last (G5).
        self._holder = Member()
        self.rebalances = 0

    # --- changes ------------------------------------------------------------------------------

    def want_join(self, reason: str) -> None:
        if self.join_reason is None:
            self.join_reason = reason

    def react(self, code: ErrorCode, request: str) -> Reaction:
        """Take an error of the coordinator in, and say what follows."""
        reaction = reaction_to(code)
        if reaction is Reaction.REJOIN:
            self.want_join(f"{request}: {code.name}")
        elif reaction is Reaction.RESET:
            self.forget(f"{request}: {code.name}", keep_id=code is ErrorCode.ILLEGAL_GENERATION)
        return reaction

    def forget(self, reason: str, *, keep_id: bool = False) -> None:
        """Be out of the group, and want back in (G2)."""
        self.member = Member(self.member.member_id if keep_id else NO_MEMBER)
        self.join_reason = None
        self.want_join(reason)

    def leave(self) -> None:
        """Be out of the group, and stay out."""
        self.member = self._holder = Member()
        self.join_reason = None
        self.owned = self._assigned = ()
        self._assigned_since = NO_GENERATION

    def take_id(self, member_id: str) -> None:
        self.member = Member(member_id)

    def joined(self, member_id: str, generation: int, protocol: str | None) -> None:
        self.member = Member(member_id, generation, protocol)

    def let_go(self, partitions: Iterable[TopicPartition]) -> None:
        """Own these no longer; sticky assignors still hear of them."""
        gone = set(partitions)
        self.owned = tuple(one for one in self.owned if one not in gone)

    def settle(self, assigned: Sequence[TopicPartition], reason: str | None) -> Change:
        """Take the new assignment; what is wrong with the old one follows (G3).

        `reason` is the one the round was begun for: one that came since makes another round.
        """
        change = change_of(self.owned, assigned)
        if self.join_reason == reason:
            self.join_reason = None
        self.owned = self._assigned = tuple(assigned)
        self._assigned_since = self.member.generation
        self._holder = self.member
        self.rebalances += 1
        if self.cooperative and change.rejoin:
            self.want_join("partitions were let go, and others wait for them")
        return change

    # --- requests -----------------------------------------------------------------------------

    def join_fields(self, topics: Iterable[str]) -> dict[str, Any]:
        """Return the body of JoinGroup."""
        wanted = tuple(sorted(topics))
        protocols = []
        for row in self.assignors:
            subscription = Subscription(
                wanted,
                row.user_data(self._assigned, self._assigned_since),
                self.owned,
                self._assigned_since,
                self._rack,
            )
            protocols.append({"name": row.name, "metadata": encode_subscription(subscription)})
        return {
            "group_id": self.group_id,
            "session_timeout": self._session_timeout_ms,
            "rebalance_timeout": self._rebalance_timeout_ms,
            "member_id": self.member.member_id,
            "group_instance_id": self.instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols,
            "reason": (self.join_reason or "")[:255],
        }

    def identity(self) -> dict[str, Any]:
        """Return the fields by which every later request says who we are."""
        return {
            "group_id": self.group_id,
            "generation_id": self.member.generation,
            "member_id": self.member.member_id,
            "group_instance_id": self.instance_id,
        }

    def holder(self) -> tuple[str, int, str, str | None]:
        """Return as whom the partitions are held that are given out from (G5)."""
        who = self._holder
        return self.group_id, who.generation, who.member_id, self.instance_id

    def sync_fields(self, assignments: Mapping[str, bytes]) -> dict[str, Any]:
        return {
            **self.identity(),
            "protocol_type": PROTOCOL_TYPE,
            "protocol_name": self.member.protocol,
            "assignments": [
                {"member_id": member, "assignment": data} for member, data in assignments.items()
            ],
        }


def change_of(owned: Sequence[TopicPartition], assigned: Sequence[TopicPartition]) -> Change:
    before, after = set(owned), set(assigned)
    revoked = tuple(sorted(before - after))
    return Change(tuple(sorted(after - before)), revoked, bool(revoked))


def subscriptions_of(
    members: Iterable[tuple[str, str | None, bytes]],
) -> dict[str, Subscription]:
    """Return what the members want, by member id; one that cannot be read wants nothing.

    A single member with broken bytes must not stop the group.
    """
    found = {}
    for member_id, instance_id, metadata in members:
        try:
            found[member_id] = decode_subscription(bytes(metadata), instance_id)
        except RemoteProtocolError:
            found[member_id] = Subscription((), instance_id=instance_id)
    return found


def make_assignments(
    assignor: Assignor, members: Mapping[str, Subscription], counts: Mapping[str, int]
) -> dict[str, bytes]:
    """Return what the leader sends out: an assignment in bytes for each member."""
    hands = assignor.assign(members, counts)
    return {member: encode_assignment(hand) for member, hand in hands.items()}


def unowned_of(counts: Mapping[str, int], assignments: Iterable[bytes]) -> set[TopicPartition]:
    """Return the partitions of these topics that no assignment has; one in bad bytes has none."""
    unowned = {
        TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)
    }
    for data in assignments:
        with suppress(RemoteProtocolError):
            unowned.difference_update(decode_assignment(bytes(data)))
    return unowned


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return our part of a round."""
    return decode_assignment(bytes(data))
