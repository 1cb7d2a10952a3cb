"""What a node tells of its place in the cluster, and why it is not ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.quorum.transport import Drop
from ottla.node.facts import (
    BrokerFacts,
    QuorumFacts,
    VoterFacts,
    broker_readings,
    forming_facts,
    quorum_facts,
    quorum_readings,
    why_not_ready,
)
from ottla.node.metrics import Reading

LEADER = QuorumStatus(
    node_id=1,
    standing=Standing.VOTER,
    role=Role.LEADER,
    term=4,
    leader=1,
    voters=(1, 2, 3),
    first_index=1,
    last_index=20,
    commit_index=19,
    applied_index=18,
    acknowledged={2: 19},
)
FOLLOWER = replace(LEADER, node_id=2, role=Role.FOLLOWER, acknowledged={})
SERVING = BrokerFacts(broker_epoch=7, is_fenced=False, metadata_version=30)
WELL = quorum_facts(LEADER, {})


def told(readings: list[Reading]) -> dict[tuple[str, ...], int]:
    found = {}
    for reading in readings:
        assert isinstance(reading.value, int)
        found[reading.row.name, *reading.labels] = reading.value
    return found


# ── Facts ─────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_tells_how_far_each_voter_is() -> None:
    assert WELL.voters == (VoterFacts(1, 20, 0), VoterFacts(2, 19, 1), VoterFacts(3, None, None))
    assert (WELL.role, WELL.term, WELL.commit_index) == ("leader", 4, 19)


def test_a_follower_does_not_know_how_far_the_others_are() -> None:
    assert quorum_facts(FOLLOWER, {}).voters == tuple(VoterFacts(one) for one in (1, 2, 3))


def test_what_was_not_believed_is_told_by_its_reason() -> None:
    assert quorum_facts(LEADER, {Drop.OTHER_CLUSTER: 3}).drops == {"other_cluster": 3}


# ── Ready or not ──────────────────────────────────────────────────────────────────────────────


def test_a_node_with_a_controller_and_a_life_is_ready() -> None:
    assert why_not_ready(WELL, SERVING) is None
    assert why_not_ready(quorum_facts(FOLLOWER, {}), SERVING) is None


def test_a_node_with_one_role_needs_only_that() -> None:
    assert why_not_ready(WELL, None) is None
    assert why_not_ready(None, SERVING) is None
    assert why_not_ready(None, None) is None


@pytest.mark.parametrize(
    ("quorum", "reason"),
    [
        (forming_facts((1, 2, 3), (3, 2)), "waiting for voters 2, 3"),
        (forming_facts((1, 2, 3), (3,)), "waiting for voter 3"),
        (forming_facts((1, 2, 3), ()), "the voters have not agreed yet who they are"),
        (QuorumFacts(standing="joining", leader=1), "waiting to be admitted"),
        (replace(WELL, leader=None), "no controller is active: the 3 voters have not elected one"),
        (replace(WELL, leader=None, trouble="Too few are up."), "(Too few are up.)"),
        (replace(WELL, halted="the disk is full"), "has stopped: the disk is full"),
    ],
)
def test_a_controller_says_what_it_waits_for(quorum: QuorumFacts, reason: str) -> None:
    found = why_not_ready(quorum, SERVING)
    assert found is not None
    assert reason in found


@pytest.mark.parametrize(
    ("broker", "reason"),
    [
        (BrokerFacts(), "no controller has given the metadata yet"),
        (BrokerFacts(metadata_version=3), "has not registered this broker yet"),
        (replace(SERVING, is_heard=False), "no active controller answers this broker"),
        (replace(SERVING, is_fenced=True), "this broker is fenced"),
    ],
)
def test_a_broker_says_what_it_waits_for(broker: BrokerFacts, reason: str) -> None:
    found = why_not_ready(WELL, broker)
    assert found is not None
    assert reason in found


def test_the_quorum_comes_first_because_the_broker_waits_for_it() -> None:
    found = why_not_ready(forming_facts((1, 2), (2,)), BrokerFacts())
    assert found == "waiting for voter 2"


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_tells_gauges_under_the_names_of_kafka() -> None:
    found = told(list(quorum_readings(quorum_facts(LEADER, {Drop.REPEATED: 2}))))
    assert found == {
        ("kafka_server_raft_metrics_current_leader",): 1,
        ("kafka_server_raft_metrics_current_epoch",): 4,
        ("kafka_server_raft_metrics_current_state", "leader"): 1,
        ("kafka_server_raft_metrics_high_watermark",): 19,
        ("kafka_server_raft_metrics_log_end_offset",): 20,
        ("kafka_server_raft_metrics_number_of_voters",): 3,
        ("ottla_quorum_voter_lag", "1"): 0,
        ("ottla_quorum_voter_lag", "2"): 1,
        ("ottla_quorum_messages_dropped_total", "repeated"): 2,
    }


def test_before_there_is_a_member_only_its_voters_are_known() -> None:
    found = told(list(quorum_readings(forming_facts((1, 2, 3), (2,)))))
    assert found == {
        ("kafka_server_raft_metrics_current_leader",): -1,
        ("kafka_server_raft_metrics_current_state", "forming"): 1,
        ("kafka_server_raft_metrics_number_of_voters",): 3,
    }


def test_a_broker_tells_whether_it_is_fenced_and_how_far_it_follows() -> None:
    assert told(list(broker_readings(SERVING))) == {
        ("ottla_broker_fenced",): 0,
        ("ottla_metadata_version",): 30,
    }
    assert told(list(broker_readings(BrokerFacts()))) == {("ottla_broker_fenced",): 1}
