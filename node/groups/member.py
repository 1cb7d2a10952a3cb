"""One member of a group: what it said of itself, what it is to read, and what it waits for.

Not here: what its group makes of it (`group.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.node.groups.records import MemberValue
from ottla.node.groups.words import Join, Waiter


@dataclass(slots=True, kw_only=True)
class Member:
    """A member, from its first join until it leaves, is silent for too long, or is replaced."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    # Name and metadata, what it likes best first.
    protocols: tuple[tuple[str, bytes], ...]
    # When its session ends, unless it is heard before.
    deadline_ms: int
    assignment: bytes = b""
    # Who waits for the next generation, for an assignment, for a record about it to be committed.
    joining: Waiter | None = None
    syncing: Waiter | None = None
    replacing: Waiter | None = None
    # It has never been told a generation: nobody knows yet whether it still waits.
    is_new: bool = False

    @property
    def is_waiting(self) -> bool:
        return self.joining is not None or self.syncing is not None or self.replacing is not None

    @property
    def protocol_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.protocols)

    def metadata_for(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def says_the_same(self, wish: Join) -> bool:
        return self.protocols == wish.protocols

    def value(self, protocol: str | None, assignment: bytes) -> MemberValue:
        return MemberValue(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_ms=self.rebalance_ms,
            session_ms=self.session_ms,
            subscription=self.metadata_for(protocol),
            assignment=assignment,
        )


def new_member(member_id: str, wish: Join, deadline_ms: int) -> Member:
    return Member(
        member_id=member_id,
        instance_id=wish.instance_id,
        client_id=wish.client_id,
        client_host=wish.client_host,
        session_ms=wish.session_ms,
        rebalance_ms=wish.rebalance_ms,
        protocols=wish.protocols,
        deadline_ms=deadline_ms,
        is_new=True,
    )


def restored(value: MemberValue, protocol: str | None, now_ms: int) -> Member:
    """Return a member that the log knows. It has a whole session to be heard."""
    return Member(
        member_id=value.member_id,
        instance_id=value.instance_id,
        client_id=value.client_id,
        client_host=value.client_host,
        session_ms=value.session_ms,
        rebalance_ms=value.rebalance_ms,
        protocols=() if protocol is None else ((protocol, value.subscription),),
        deadline_ms=now_ms + value.session_ms,
        assignment=value.assignment,
    )
