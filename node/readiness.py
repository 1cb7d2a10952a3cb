"""Whether a node is ready: one table of conditions, judged from facts.

A node is ready while every condition of its roles holds. `/health/ready`, `/status`, `ottla
cluster` and `ottla health` show what is decided here and decide nothing themselves. The rows are in
the order in which one thing follows from another: the first that does not hold is the reason.

Not here: where facts come from (`lifecycle.py`), and how they are shown (`status.py`).

C1  a condition that does not hold says why, in a sentence with what to do or what to wait for
C2  what nobody can know at the moment does not hold: a node that is cut off is not ready
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.controller.quorum.membership import Standing
from ottla.node.facts import LEADER_SILENT_MS, BrokerFacts, QuorumFacts

# A member ticks a hundred times a second. What stands still for so long may be wrong by now.
STANDS_STILL_MS: Final = 2_000
# What a member applies in one tick: so much may be under way.
BACKLOG_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All that readiness stands on."""

    is_stopping: bool = False
    # Why the data directory is not used any more; None while it is.
    offline: str | None = None
    is_recovered: bool = False
    # The clients of this node are let in; of a controller: it votes and answers.
    is_listening: bool = False
    # None for a node that is no controller, or no broker.
    quorum: QuorumFacts | None = None
    broker: BrokerFacts | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """One row of the table, as it is now."""

    name: str
    # Why it does not hold (C1); None if it does.
    reason: str | None

    @property
    def holds(self) -> bool:
        return self.reason is None


@dataclass(frozen=True, slots=True)
class Row:
    """One condition of readiness, and who judges it."""

    name: str
    meaning: str
    judge: Callable[[NodeFacts], str | None]
    # Only a broker must meet it.
    is_for_brokers: bool = False


def conditions_of(facts: NodeFacts) -> tuple[Condition, ...]:
    """Return every condition that a node of these roles must meet, as it is now."""
    return tuple(
        Condition(row.name, row.judge(facts))
        for row in TABLE
        if facts.broker is not None or not row.is_for_brokers
    )


def why_not_ready(conditions: tuple[Condition, ...]) -> str | None:
    """Return the reason that the others follow from; None: the node is ready."""
    return next((one.reason for one in conditions if one.reason is not None), None)


# ── Who judges ────────────────────────────────────────────────────────────────────────────────


def _not_staying(facts: NodeFacts) -> str | None:
    if not facts.is_stopping:
        return None
    return "the node is stopping: it gives away what it leads, and ends. Clients go to the others"


def _no_disk(facts: NodeFacts) -> str | None:
    if facts.offline is None:
        return None
    return (
        f"the data directory is offline: {facts.offline}. Make room on the disk of log.dirs, or "
        "mend it, and start the node again"
    )


def _no_leader(facts: NodeFacts) -> str | None:
    quorum, broker = facts.quorum, facts.broker
    found = None if quorum is None else (_not_voting(quorum) or _leaderless(quorum))
    if found is not None or broker is None:
        return found
    if quorum is None and not broker.is_answered and broker.denial is None:
        return _unanswered(broker)
    # What this node's own controller believes is not enough for a life that has begun.
    return _unanswered(broker) if broker.is_cut_off else None


def _not_voting(quorum: QuorumFacts) -> str | None:
    if quorum.halted is not None:
        return (
            f"the controller of this node has stopped: {quorum.halted}. Mend that, and start the "
            "node again"
        )
    why = _in_brackets(quorum.trouble)
    if quorum.missing:
        told = ", ".join(map(str, quorum.missing))
        return (
            f"waiting for voter{'s' if len(quorum.missing) > 1 else ''} {told}{why}: a first start "
            "needs all of controller.quorum.voters. Start them, and see that they can be reached "
            "from here"
        )
    if quorum.standing == Standing.JOINING.value:
        return (
            f"waiting to be admitted by the other voters: this node lost its disk{why}. More than "
            "half of controller.quorum.voters must run without it"
        )
    if quorum.standing != Standing.VOTER.value:
        return (
            f"the voters have not agreed yet who they are{why}: all of controller.quorum.voters "
            "must run and have the same list"
        )
    return None


def _leaderless(quorum: QuorumFacts) -> str | None:
    why, count = _in_brackets(quorum.trouble), len(quorum.voters)
    needed = f"{count // 2 + 1} of the {count} in controller.quorum.voters"
    if quorum.still_ms >= STANDS_STILL_MS:
        return (
            f"the controller of this node has stood still for {_seconds(quorum.still_ms)}: its "
            "disk or its machine does not keep up"
        )
    if quorum.leader is None:
        return (
            f"no controller is active: the {count} voters have not elected one{why}. {needed} must "
            "run and reach each other"
        )
    if quorum.silent_ms >= LEADER_SILENT_MS:
        return (
            f"no controller is active, as far as this node can tell: node {quorum.leader} was "
            f"heard last {_seconds(quorum.silent_ms)} ago{why}. {needed} must run, and be reached "
            "from here"
        )
    return None


def _unanswered(broker: BrokerFacts) -> str:
    why = _in_brackets(broker.trouble)
    if broker.answered_ms_ago is None:
        return (
            f"no active controller has answered this broker yet{why}. More than half of "
            "controller.quorum.voters must run, and be reached from here"
        )
    return (
        f"no active controller has answered this broker for {_seconds(broker.answered_ms_ago)}"
        f"{why}. More than half of controller.quorum.voters must run, and be reached from here"
    )


def _not_recovered(facts: NodeFacts) -> str | None:
    if facts.is_recovered:
        return None
    return (
        "the logs are being recovered: wait. After a crash everything above the recovery points "
        "is read, which takes as long as the disk needs"
    )


def _unregistered(facts: NodeFacts) -> str | None:
    broker = facts.broker
    if broker is None or broker.broker_epoch is not None:
        return None
    if broker.denial is not None:
        return f"the active controller does not register this broker: {broker.denial}"
    return "the active controller has not registered this broker yet: wait, it is asked again"


def _not_caught_up(facts: NodeFacts) -> str | None:
    quorum, broker = facts.quorum, facts.broker
    found = None if quorum is None else _backlog(quorum)
    if found is not None or broker is None:
        return found
    if broker.metadata_version is None:
        why = _in_brackets(broker.trouble)
        return f"no controller has given the metadata yet{why}: wait, all of them are asked in turn"
    if broker.not_obeyed is not None:
        return f"the metadata cannot be obeyed: {broker.not_obeyed}. It is tried again every second"
    if broker.is_cut_off:
        return "how far the metadata has come is not known, because no active controller answers"
    if broker.is_behind:
        return (
            f"this broker has followed the metadata up to version {broker.metadata_version}, and "
            f"the active controller is at {broker.newest_version}{_in_brackets(broker.trouble)}: "
            "wait until it has caught up"
        )
    return None


def _backlog(quorum: QuorumFacts) -> str | None:
    if quorum.applied_index is None or quorum.commit_index is None:
        return "this controller holds no metadata yet: wait until it is a voter"
    if quorum.commit_index - quorum.applied_index <= BACKLOG_MAX:
        return None
    return (
        f"this controller has applied the metadata up to {quorum.applied_index} of "
        f"{quorum.commit_index}: wait until it has caught up"
    )


def _fenced(facts: NodeFacts) -> str | None:
    broker = facts.broker
    if broker is None:
        return None
    if broker.broker_epoch is None:
        return "this broker is fenced, because it is not registered"
    if broker.fence_reason is not None:
        return f"this broker is fenced, as it asked to be: {broker.fence_reason}"
    if broker.is_fenced:
        return (
            "this broker is fenced: the active controller has not let it serve yet. Wait; it does "
            "so once this broker has read its logs and followed the metadata"
        )
    if broker.is_cut_off:
        return "this broker may be fenced by now, because no active controller answers it"
    if not broker.is_heard:
        return (
            "what the active controller says of this broker lies in metadata that it has not "
            "followed yet: wait until it has caught up"
        )
    return None


def _not_listening(facts: NodeFacts) -> str | None:
    if facts.is_listening:
        return None
    if facts.broker is None:
        return "this controller does not answer brokers yet: wait"
    return "clients are not let in yet: wait until what stands above holds"


def _in_brackets(why: str | None) -> str:
    return "" if why is None else f" ({why})"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s"


# The order is that in which one follows from another.
TABLE: Final = (
    Row("staying", "the node was not told to stop", _not_staying),
    Row("disk_works", "the data directory is in use", _no_disk, is_for_brokers=True),
    Row("quorum_has_leader", "a controller is active, and was heard a moment ago", _no_leader),
    Row("logs_recovered", "every log was read and mended", _not_recovered, is_for_brokers=True),
    Row("registered", "the controllers know this life of it", _unregistered, is_for_brokers=True),
    Row("metadata_caught_up", "it follows the metadata to its end", _not_caught_up),
    Row("unfenced", "it may lead and serve", _fenced, is_for_brokers=True),
    Row("listening", "clients, or brokers, are let in", _not_listening),
)
