"""What a node tells of its place in the cluster."""

from __future__ import annotations

from dataclasses import replace

from ottla.controller.quorum.membership import Standing
from ottla.controller.quorum.port import QuorumStatus, Role
from ottla.controller.quorum.transport import Drop
from ottla.node.facts import (
    LEADER_SILENT_MS,
    BrokerFacts,
    QuorumFacts,
    VoterFacts,
    broker_readings,
    forming_facts,
    quorum_facts,
    quorum_readings,
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


def test_a_follower_tells_how_long_its_leader_has_been_silent() -> None:
    follower = replace(FOLLOWER, last_heard=(1, 5_000), at_ms=6_000)
    facts = quorum_facts(follower, {}, 8_500)
    assert (facts.leader, facts.silent_ms, facts.still_ms) == (1, 3_500, 2_500)


def test_a_leader_is_not_silent_whoever_led_before() -> None:
    leader = replace(LEADER, last_heard=(2, 5_000), at_ms=8_500)
    assert quorum_facts(leader, {}, 8_500).silent_ms == 0


# ── Gauges ────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_tells_gauges_under_the_names_of_kafka() -> None:
    found = told(list(quorum_readings(quorum_facts(LEADER, {Drop.REPEATED: 2}))))
    drops = {("ottla_quorum_messages_dropped_total", drop.name.lower()): 0 for drop in Drop}
    assert found == drops | {
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


def test_a_leader_that_was_not_heard_for_long_is_told_as_none() -> None:
    facts = QuorumFacts(standing="voter", role="follower", leader=2, silent_ms=LEADER_SILENT_MS - 1)
    name = ("kafka_server_raft_metrics_current_leader",)
    assert told(list(quorum_readings(facts)))[name] == 2
    silent = replace(facts, silent_ms=LEADER_SILENT_MS)
    assert told(list(quorum_readings(silent)))[name] == -1


def test_a_broker_tells_whether_it_is_fenced_and_how_far_it_follows() -> None:
    assert told(list(broker_readings(SERVING))) == {
        ("ottla_broker_fenced",): 0,
        ("ottla_metadata_version",): 30,
    }
    assert told(list(broker_readings(BrokerFacts()))) == {("ottla_broker_fenced",): 1}
