"""When a node is ready, and what it says while it is not: every row of the table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.node.facts import LEADER_SILENT_MS, BrokerFacts, QuorumFacts, VoterFacts, forming_facts
from ottla.node.readiness import (
    BACKLOG_MAX,
    STANDS_STILL_MS,
    TABLE,
    NodeFacts,
    conditions_of,
    why_not_ready,
)

VOTER = QuorumFacts(
    standing="voter",
    role="follower",
    term=4,
    leader=1,
    voters=tuple(VoterFacts(one) for one in (1, 2, 3)),
    last_index=20,
    commit_index=20,
    applied_index=20,
)
SERVING = BrokerFacts(
    broker_epoch=7,
    is_fenced=False,
    is_heard=True,
    metadata_version=30,
    newest_version=30,
    answered_ms_ago=100,
    session_ms=2_000,
)
BOTH = NodeFacts(is_recovered=True, is_listening=True, quorum=VOTER, broker=SERVING)
BROKER = replace(BOTH, quorum=None)
CONTROLLER = replace(BOTH, is_recovered=False, broker=None)
LOST = replace(SERVING, answered_ms_ago=2_000, is_heard=False)
BEGINNING = BrokerFacts(session_ms=2_000)
REFUSED = replace(BEGINNING, metadata_version=30, denial="Another process is broker 2.")
BEHIND = replace(SERVING, newest_version=35, is_heard=False)


def broken(facts: NodeFacts) -> dict[str, str]:
    """Return the conditions that do not hold, with what they say."""
    return {one.name: one.reason for one in conditions_of(facts) if one.reason is not None}


def as_voter(facts: NodeFacts, **changes: object) -> NodeFacts:
    return replace(facts, quorum=replace(VOTER, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("facts", [BOTH, BROKER, CONTROLLER], ids=["both", "broker", "controller"])
def test_a_node_that_meets_every_condition_of_its_roles_is_ready(facts: NodeFacts) -> None:
    assert broken(facts) == {}
    assert why_not_ready(conditions_of(facts)) is None


def test_a_controller_alone_has_only_the_conditions_of_controllers() -> None:
    names = [one.name for one in conditions_of(CONTROLLER)]
    assert names == ["staying", "quorum_has_leader", "metadata_caught_up", "listening"]
    assert [one.name for one in conditions_of(BROKER)] == [row.name for row in TABLE]


# What is wrong, which conditions that breaks, and what the reason says.
ROWS: dict[str, tuple[NodeFacts, set[str], str]] = {
    "told to stop": (replace(BOTH, is_stopping=True), {"staying"}, "the node is stopping"),
    "the disk failed": (
        replace(BOTH, offline="no space left", broker=replace(SERVING, fence_reason="full")),
        {"disk_works", "unfenced"},
        "the data directory is offline: no space left. Make room on the disk of log.dirs",
    ),
    "a first start that waits for two": (
        replace(BOTH, quorum=forming_facts((1, 2, 3), (3, 2))),
        {"quorum_has_leader", "metadata_caught_up"},
        "waiting for voters 2, 3: a first start needs all of controller.quorum.voters",
    ),
    "a first start that is refused": (
        replace(BOTH, quorum=forming_facts((1, 2, 3), (3,), "Node 3 has other voters.")),
        {"quorum_has_leader", "metadata_caught_up"},
        "waiting for voter 3 (Node 3 has other voters.)",
    ),
    "voters that have not agreed": (
        replace(BOTH, quorum=forming_facts((1, 2, 3), ())),
        {"quorum_has_leader", "metadata_caught_up"},
        "the voters have not agreed yet who they are",
    ),
    "a voter without its disk": (
        as_voter(BOTH, standing="joining"),
        {"quorum_has_leader"},
        "waiting to be admitted by the other voters",
    ),
    "an election": (
        as_voter(BOTH, leader=None, trouble="Too few are up."),
        {"quorum_has_leader"},
        "the 3 voters have not elected one (Too few are up.). 2 of the 3 in",
    ),
    "a leader that is not heard": (
        as_voter(CONTROLLER, silent_ms=LEADER_SILENT_MS),
        {"quorum_has_leader"},
        "node 1 was heard last 2.0 s ago. 2 of the 3 in controller.quorum.voters must run",
    ),
    "a member that stands still": (
        as_voter(BOTH, still_ms=STANDS_STILL_MS),
        {"quorum_has_leader"},
        "has stood still for 2.0 s",
    ),
    "a member that halted": (
        as_voter(BOTH, halted="the disk is full"),
        {"quorum_has_leader"},
        "the controller of this node has stopped: the disk is full",
    ),
    "a controller with much to apply": (
        as_voter(CONTROLLER, commit_index=20 + BACKLOG_MAX + 1),
        {"metadata_caught_up"},
        "has applied the metadata up to 20 of 221",
    ),
    "logs that are read": (
        replace(BOTH, is_recovered=False),
        {"logs_recovered"},
        "the logs are being recovered: wait",
    ),
    "a broker that begins": (
        replace(BROKER, broker=BEGINNING, is_listening=False),
        {"quorum_has_leader", "registered", "metadata_caught_up", "unfenced", "listening"},
        "no active controller has answered this broker yet. More than half of",
    ),
    "a broker that is refused": (
        replace(BROKER, broker=REFUSED),
        {"registered", "unfenced"},
        "does not register this broker: Another process is broker 2.",
    ),
    "a broker that lost its epoch, beside a controller": (
        replace(BOTH, broker=replace(LOST, broker_epoch=None, is_fenced=True)),
        {"registered", "unfenced"},
        "has not registered this broker yet",
    ),
    "a broker that is not answered any more": (
        replace(BOTH, broker=LOST),
        {"quorum_has_leader", "metadata_caught_up", "unfenced"},
        "no active controller has answered this broker for 2.0 s",
    ),
    "metadata that lag": (
        replace(BROKER, broker=BEHIND),
        {"metadata_caught_up", "unfenced"},
        "up to version 30, and the active controller is at 35: wait",
    ),
    "metadata that nobody gives": (
        replace(BOTH, broker=replace(BEGINNING, trouble="another cluster"), is_listening=False),
        {"registered", "metadata_caught_up", "unfenced", "listening"},
        "has not registered this broker yet",
    ),
    "metadata that cannot be obeyed": (
        replace(BOTH, broker=replace(SERVING, not_obeyed="the disk is full")),
        {"metadata_caught_up"},
        "the metadata cannot be obeyed: the disk is full",
    ),
    "fenced": (
        replace(BOTH, broker=replace(SERVING, is_fenced=True, is_heard=False)),
        {"unfenced"},
        "this broker is fenced: the active controller has not let it serve yet",
    ),
    "clients that are not let in": (
        replace(BOTH, is_listening=False),
        {"listening"},
        "clients are not let in yet",
    ),
}


@pytest.mark.parametrize(("facts", "names", "reason"), ROWS.values(), ids=ROWS.keys())
def test_what_is_wrong_breaks_its_conditions_and_the_reason_says_it(
    facts: NodeFacts, names: set[str], reason: str
) -> None:
    found = broken(facts)
    assert set(found) == names
    told = why_not_ready(conditions_of(facts))
    assert told is not None
    assert reason in told


def test_every_condition_is_broken_by_some_row() -> None:
    assert {name for _, names, _ in ROWS.values() for name in names} == {row.name for row in TABLE}


def test_a_moment_behind_is_no_reason_while_what_is_followed_is_no_older_than_a_session() -> None:
    a_moment = replace(SERVING, newest_version=31)
    assert broken(replace(BOTH, broker=a_moment)) == {}
    assert broken(as_voter(CONTROLLER, commit_index=20 + BACKLOG_MAX)) == {}
    assert broken(as_voter(CONTROLLER, silent_ms=LEADER_SILENT_MS - 1)) == {}
