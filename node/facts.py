"""What a node knows of its place in the cluster, for people: its quorum, and its life as a broker.

Not here: the pages (`status.py`), what the facts mean for whoever waits (`readiness.py`), and
deciding anything. Two members may think that they lead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.controller.broker_life import BrokerLife
from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.quorum.transport import Drop
from ottla.node import metric_table as table
from ottla.node.metrics import Reading

# A leader speaks ten times a second, and a quorum that lost it has another one within this time.
LEADER_SILENT_MS: Final = 2_000


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
    # As last heard; `silent_ms` says how long ago that was.
    leader: int | None = None
    # Since another node that leads was heard; 0 where this one leads.
    silent_ms: int = 0
    # Since this member has done anything at all.
    still_ms: int = 0
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
    # The active controller has answered within the session, and what it had then is followed.
    is_heard: bool = False
    # How much of the metadata it has followed; None before the first image.
    metadata_version: int | None = None
    # How far the metadata had come, by the last answer of the active controller.
    newest_version: int | None = None
    # Since the active controller answered, whatever it said; None: it never did.
    answered_ms_ago: int | None = None
    session_ms: int = 0
    # Why no controller gives it metadata, if one said so.
    trouble: str | None = None
    # Why this node does not do what the metadata says.
    not_obeyed: str | None = None
    # What was last said against its registration.
    denial: str | None = None
    # Why it asked to be fenced.
    fence_reason: str | None = None

    @property
    def is_answered(self) -> bool:
        return self.answered_ms_ago is not None and self.answered_ms_ago < self.session_ms

    @property
    def is_cut_off(self) -> bool:
        """Whether a life that has begun is not answered any more."""
        has_begun = self.broker_epoch is not None and self.answered_ms_ago is not None
        return has_begun and not self.is_answered

    @property
    def is_behind(self) -> bool:
        """Whether it lacks metadata, and has for so long that it may not rely on what it has."""
        have = -1 if self.metadata_version is None else self.metadata_version
        newest = -1 if self.newest_version is None else self.newest_version
        return have < newest and not self.is_heard


def quorum_facts(
    status: QuorumStatus, drops: Mapping[Drop, int], now_ms: int | None = None
) -> QuorumFacts:
    """Return what is told of a member that runs; `now_ms` is of the clock of `status.at_ms`."""
    now_ms = status.at_ms if now_ms is None else now_ms
    is_follower = status.role is not Role.LEADER and status.last_heard is not None
    heard_ms = status.last_heard[1] if is_follower and status.last_heard else now_ms
    return QuorumFacts(
        silent_ms=max(0, now_ms - heard_ms),
        still_ms=max(0, now_ms - status.at_ms),
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


def broker_facts(
    life: BrokerLife, now_ms: int, answered_ms: int | None, newest_version: int
) -> BrokerFacts:
    """Return what is told of a life: when it was answered last, and how far the metadata was."""
    version, denial = life.applied_version, life.last_denial
    return BrokerFacts(
        broker_epoch=life.broker_epoch,
        is_fenced=life.is_fenced,
        is_heard=life.is_heard(now_ms),
        metadata_version=version if version >= 0 else None,
        newest_version=newest_version if newest_version >= 0 else None,
        answered_ms_ago=None if answered_ms is None else now_ms - answered_ms,
        session_ms=life.session_ms,
        denial=None if denial is None else denial.sentence,
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


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def quorum_readings(quorum: QuorumFacts) -> Iterator[Reading]:
    """Yield what a controller tells of its quorum."""
    yield Reading(table.RAFT_VOTERS, len(quorum.voters))
    yield Reading(table.RAFT_STATE, 1, (quorum.role or quorum.standing,))
    # A voter that cannot win an election stays with the leader it knew; that one may be dead.
    leader = quorum.leader if quorum.silent_ms < LEADER_SILENT_MS else None
    yield Reading(table.RAFT_LEADER, -1 if leader is None else leader)
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
    for drop in Drop if quorum.role is not None else ():
        # Also those that never were: what a counter begins with is part of its increase.
        reason = drop.name.lower()
        yield Reading(table.QUORUM_DROPS, quorum.drops.get(reason, 0), (reason,))


def broker_readings(broker: BrokerFacts) -> Iterator[Reading]:
    """Yield what a broker tells of its place in the cluster."""
    yield Reading(table.BROKER_FENCED, int(broker.is_fenced))
    if broker.metadata_version is not None:
        yield Reading(table.METADATA_VERSION, broker.metadata_version)
