"""What a node knows of its place in the cluster, for people: its quorum, and its life as a broker.

`why_not_ready` makes one sentence of it, for whoever waits until a node is ready: what the node
itself is waiting for.

Not here: the pages (`status.py`), and deciding anything. Two members may think that they lead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.quorum.transport import Drop
from ottla.node import metric_table as table
from ottla.node.metrics import Reading


@dataclass(frozen=True, slots=True)
class VoterFacts:
    """One voter, as this member sees it."""

    node_id: int
    # The last entry that it has acknowledged, and how many it is behind. Only a leader knows.
    acknowledged: int | None = None
    lag: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumFacts:
    """This node as a controller."""

    # How far it has come as a member, and what it does as one.
    standing: str
    role: str | None = None
    term: int | None = None
    leader: int | None = None
    voters: tuple[VoterFacts, ...] = ()
    last_index: int | None = None
    commit_index: int | None = None
    applied_index: int | None = None
    # Voters that have not been heard yet, while the quorum forms.
    missing: tuple[int, ...] = ()
    # What keeps this member from voting, or its quorum from having a leader, in a sentence.
    trouble: str | None = None
    # Why this member stopped, if it did.
    halted: str | None = None
    # Messages of others that were not believed, by reason.
    drops: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFacts:
    """This node as a broker."""

    # Of this life; None before it has registered.
    broker_epoch: int | None = None
    is_fenced: bool = True
    # The active controller has answered within the session.
    is_heard: bool = True
    # How much of the metadata it has followed; None before the first image.
    metadata_version: int | None = None
    # Why no controller gives it any, if one said so.
    trouble: str | None = None


def quorum_facts(status: QuorumStatus, drops: Mapping[Drop, int]) -> QuorumFacts:
    """Return what is told of a member that runs."""
    return QuorumFacts(
        standing=status.standing.value,
        role=status.role.value,
        term=status.term,
        leader=status.leader,
        voters=tuple(_voters(status)),
        last_index=status.last_index,
        commit_index=status.commit_index,
        applied_index=status.applied_index,
        trouble=status.trouble,
        halted=status.halted,
        drops={drop.name.lower(): count for drop, count in drops.items()},
    )


def forming_facts(
    voters: Collection[int], missing: Collection[int], trouble: str | None = None
) -> QuorumFacts:
    """Return what is told before there is a member: who is still waited for, and what is wrong."""
    return QuorumFacts(
        standing=Standing.FORMING.value,
        voters=tuple(VoterFacts(one) for one in sorted(voters)),
        missing=tuple(sorted(missing)),
        trouble=trouble,
    )


def _voters(status: QuorumStatus) -> Iterator[VoterFacts]:
    is_leader = status.role is Role.LEADER
    for voter in status.voters:
        if not is_leader:
            yield VoterFacts(voter)
            continue
        mine = voter == status.node_id
        acknowledged = status.last_index if mine else status.acknowledged.get(voter)
        lag = None if acknowledged is None else status.last_index - acknowledged
        yield VoterFacts(voter, acknowledged, lag)


def why_not_ready(quorum: QuorumFacts | None, broker: BrokerFacts | None) -> str | None:
    """Return what keeps a node from serving that has read its logs, or None.

    `quorum` is None for a node that is no controller, `broker` for one that is no broker. The
    first reason is the one that the others follow from.
    """
    return (quorum and _quorum_problem(quorum)) or (broker and _broker_problem(broker)) or None


def _quorum_problem(quorum: QuorumFacts) -> str | None:
    if quorum.halted is not None:
        return f"the controller of this node has stopped: {quorum.halted}"
    why = "" if quorum.trouble is None else f" ({quorum.trouble})"
    if quorum.missing:
        told = ", ".join(map(str, quorum.missing))
        return f"waiting for voter{'s' if len(quorum.missing) > 1 else ''} {told}{why}"
    if quorum.standing == Standing.JOINING.value:
        return f"waiting to be admitted by the other voters: this node lost its disk{why}"
    if quorum.standing != Standing.VOTER.value:
        return f"the voters have not agreed yet who they are{why}"
    if quorum.leader is None:
        count = len(quorum.voters)
        return f"no controller is active: the {count} voters have not elected one{why}"
    return None


def _broker_problem(broker: BrokerFacts) -> str | None:
    if broker.metadata_version is None:
        why = "" if broker.trouble is None else f" ({broker.trouble})"
        return f"no controller has given the metadata yet{why}"
    if broker.broker_epoch is None:
        return "the active controller has not registered this broker yet"
    if not broker.is_heard:
        return "no active controller answers this broker"
    if broker.is_fenced:
        return "this broker is fenced: the active controller has not let it serve yet"
    return None


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def quorum_readings(quorum: QuorumFacts) -> Iterator[Reading]:
    """Yield what a controller tells of its quorum."""
    yield Reading(table.RAFT_VOTERS, len(quorum.voters))
    yield Reading(table.RAFT_STATE, 1, (quorum.role or quorum.standing,))
    yield Reading(table.RAFT_LEADER, -1 if quorum.leader is None else quorum.leader)
    for row, value in (
        (table.RAFT_EPOCH, quorum.term),
        (table.RAFT_HIGH_WATERMARK, quorum.commit_index),
        (table.RAFT_LOG_END, quorum.last_index),
    ):
        if value is not None:
            yield Reading(row, value)
    for voter in quorum.voters:
        if voter.lag is not None:
            yield Reading(table.VOTER_LAG, voter.lag, (str(voter.node_id),))
    for reason, count in quorum.drops.items():
        yield Reading(table.QUORUM_DROPS, count, (reason,))


def broker_readings(broker: BrokerFacts) -> Iterator[Reading]:
    """Yield what a broker tells of its place in the cluster."""
    yield Reading(table.BROKER_FENCED, int(broker.is_fenced))
    if broker.metadata_version is not None:
        yield Reading(table.METADATA_VERSION, broker.metadata_version)
