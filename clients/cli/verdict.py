"""From what a cluster tells about itself to one verdict, and the reasons for it.

    unavailable   something that somebody may ask is refused now
    degraded      everything works, and fewer failures can be borne than there should be
    healthy       neither

Not here: asking (`health.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ottla.proto.options.option import shown_name


class Verdict(Enum):
    """How a cluster is; the number is the exit code."""

    HEALTHY = 0
    DEGRADED = 1
    UNAVAILABLE = 2

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    verdict: Verdict
    # For programs: it does not change when the sentence does.
    code: str
    sentence: str

    def as_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict.word, "code": self.code, "sentence": self.sentence}


@dataclass(frozen=True, slots=True)
class VoterFacts:
    """A controller that votes, as the leader of the quorum knows it."""

    node_id: int
    # None: the leader has not heard of it.
    end_offset: int | None
    # How much of what the leader had a moment ago it lacks still.
    behind: int


@dataclass(frozen=True, slots=True)
class QuorumFacts:
    """The controllers."""

    leader: int | None
    term: int
    voters: tuple[VoterFacts, ...]


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition, as the metadata has it."""

    topic: str
    partition: int
    leader: int | None
    replica_count: int
    in_sync_count: int
    # How many in-sync replicas acks=all needs; None if nobody had to look.
    in_sync_min: int | None = None

    def __str__(self) -> str:
        return f"{shown_name(self.topic)}-{self.partition}"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All that a verdict stands on."""

    # None: the cluster does not tell about its quorum.
    quorum: QuorumFacts | None
    brokers: tuple[int, ...]
    fenced: tuple[int, ...]
    partitions: tuple[PartitionFacts, ...]

    @property
    def leaderless(self) -> tuple[PartitionFacts, ...]:
        return tuple(one for one in self.partitions if one.leader is None)

    @property
    def under_replicated(self) -> tuple[PartitionFacts, ...]:
        return tuple(one for one in self.partitions if one.in_sync_count < one.replica_count)

    @property
    def under_min_isr(self) -> tuple[PartitionFacts, ...]:
        return tuple(
            one
            for one in self.partitions
            if one.in_sync_min is not None and one.in_sync_count < one.in_sync_min
        )


@dataclass(frozen=True, slots=True)
class ConditionTold:
    """One condition of readiness, as a node judges it."""

    name: str
    holds: bool
    # What it says if it does not hold.
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "holds": self.holds, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class NodeTold:
    """What a node says of itself at its HTTP listener."""

    address: str
    node_id: int | None = None
    is_ready: bool = False
    # Why it is not ready.
    reason: str | None = None
    conditions: tuple[ConditionTold, ...] = ()
    # Why it says nothing; None if it does.
    silent: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "address": self.address,
            "node_id": self.node_id,
            "ready": self.is_ready,
            "reason": self.silent or self.reason,
            "conditions": [one.as_json() for one in self.conditions],
        }


def node_findings(nodes: Sequence[NodeTold]) -> tuple[Finding, ...]:
    """Return which nodes are not ready; if none is, nobody is served."""
    is_any_ready = any(one.is_ready for one in nodes)
    verdict = Verdict.DEGRADED if is_any_ready else Verdict.UNAVAILABLE
    found = list[Finding]()
    for one in nodes:
        if one.silent is not None:
            found.append(Finding(verdict, "unreachable", f"{one.address}: {one.silent}."))
        elif not one.is_ready:
            told = f"node {one.node_id} at {one.address} is not ready: {one.reason}."
            found.append(Finding(verdict, "not_ready", told))
    return tuple(found)


def findings(facts: ClusterFacts) -> tuple[Finding, ...]:
    """Return what is wrong, the worst first."""
    found = [*_of_quorum(facts.quorum), *_of_brokers(facts), *_of_partitions(facts)]
    return tuple(sorted(found, key=lambda one: -one.verdict.value))


def verdict_of(found: Sequence[Finding]) -> Verdict:
    return max((one.verdict for one in found), key=lambda one: one.value, default=Verdict.HEALTHY)


def _of_quorum(quorum: QuorumFacts | None) -> Iterator[Finding]:
    if quorum is None:
        return
    if quorum.leader is None:
        yield Finding(
            Verdict.UNAVAILABLE,
            "no_controller",
            "the controllers have no leader: nothing can be changed, and no partition gets another "
            "leader. More than half of the voters must be running and reach each other. `ottla "
            "cluster status`, or /health/ready of each node, says what it waits for.",
        )
        return
    for voter in quorum.voters:
        if voter.end_offset is None:
            told = f"has not been heard from since node {quorum.leader} leads"
        elif voter.behind > 0:
            entries = "entry" if voter.behind == 1 else "entries"
            told = f"is {voter.behind} {entries} behind the leader and does not catch up"
        else:
            continue
        yield Finding(Verdict.DEGRADED, "voter_behind", f"controller {voter.node_id} {told}.")


def _of_brokers(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.brokers and len(facts.fenced) == len(facts.brokers):
        told = f"all {len(facts.brokers)} brokers are fenced: nobody may lead a partition."
        yield Finding(Verdict.UNAVAILABLE, "brokers_fenced", told)
    elif not facts.brokers:
        yield Finding(Verdict.UNAVAILABLE, "no_brokers", "no broker is registered.")
    elif facts.fenced:
        brokers = "broker" if len(facts.fenced) == 1 else "brokers"
        verb = "is" if len(facts.fenced) == 1 else "are"
        yield Finding(
            Verdict.DEGRADED,
            "brokers_fenced",
            f"{brokers} {_listed(facts.fenced)} {verb} fenced: dead, cut off, or still recovering.",
        )


def _of_partitions(facts: ClusterFacts) -> Iterator[Finding]:
    total = len(facts.partitions)
    # Of one without a leader nobody wants to hear as well that its replicas are not in sync.
    under_min_isr = tuple(one for one in facts.under_min_isr if one.leader is not None)
    under_replicated = tuple(one for one in facts.under_replicated if one.leader is not None)
    for verdict, code, some, told in (
        (Verdict.UNAVAILABLE, "leaderless", facts.leaderless, "no leader"),
        (
            Verdict.UNAVAILABLE,
            "under_min_isr",
            under_min_isr,
            "fewer replicas in sync than min.insync.replicas: writes with acks=all are refused",
        ),
        (
            Verdict.DEGRADED,
            "under_replicated",
            under_replicated,
            "replicas that are not in sync",
        ),
    ):
        if some:
            have = "has" if len(some) == 1 else "have"
            sentence = f"{len(some)} of {total} partitions {have} {told}{_examples(some)}."
            yield Finding(verdict, code, sentence)


def _examples(some: Sequence[PartitionFacts]) -> str:
    shown = ", ".join(map(str, some[:3]))
    return f" ({shown}{', …' if len(some) > 3 else ''})"


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
