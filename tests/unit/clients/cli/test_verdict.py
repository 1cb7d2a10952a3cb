"""What makes a cluster healthy, degraded or unavailable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.clients.cli.quorum import told_in
from ottla.clients.cli.verdict import (
    ClusterFacts,
    PartitionFacts,
    QuorumFacts,
    Verdict,
    VoterFacts,
    findings,
    verdict_of,
)
from ottla.proto.kafka.message import Message

VOTERS = tuple(VoterFacts(number, 100, 0) for number in (1, 2, 3))
WHOLE = PartitionFacts("orders", 0, leader=1, replica_count=3, in_sync_count=3)
HEALTHY = ClusterFacts(
    quorum=QuorumFacts(2, 5, VOTERS), brokers=(1, 2, 3), fenced=(), partitions=(WHOLE,)
)


def test_a_cluster_in_which_nothing_is_amiss_is_healthy() -> None:
    assert findings(HEALTHY) == ()
    assert verdict_of(()) is Verdict.HEALTHY
    assert verdict_of(findings(replace(HEALTHY, quorum=None))) is Verdict.HEALTHY


@pytest.mark.parametrize(
    ("change", "verdict", "code", "told"),
    [
        (
            {"quorum": QuorumFacts(None, -1, ())},
            Verdict.UNAVAILABLE,
            "no_controller",
            "no leader",
        ),
        (
            {"quorum": QuorumFacts(2, 5, (*VOTERS[:2], VoterFacts(3, 90, 10)))},
            Verdict.DEGRADED,
            "voter_behind",
            "controller 3 is 10 entries behind",
        ),
        (
            {"quorum": QuorumFacts(2, 5, (*VOTERS[:2], VoterFacts(3, None, 0)))},
            Verdict.DEGRADED,
            "voter_behind",
            "controller 3 has not been heard from since node 2 leads.",
        ),
        ({"fenced": (3,)}, Verdict.DEGRADED, "brokers_fenced", "broker 3 is fenced: "),
        ({"fenced": (1, 2, 3)}, Verdict.UNAVAILABLE, "brokers_fenced", "all 3 brokers"),
        ({"brokers": ()}, Verdict.UNAVAILABLE, "no_brokers", "no broker"),
        (
            {"partitions": (replace(WHOLE, leader=None),)},
            Verdict.UNAVAILABLE,
            "leaderless",
            "1 of 1 partitions has no leader (orders-0).",
        ),
        (
            {"partitions": (WHOLE, replace(WHOLE, in_sync_count=2, in_sync_min=2))},
            Verdict.DEGRADED,
            "under_replicated",
            "1 of 2 partitions has replicas that are not in sync (orders-0).",
        ),
        (
            {"partitions": (replace(WHOLE, in_sync_count=1, in_sync_min=2),) * 4},
            Verdict.UNAVAILABLE,
            "under_min_isr",
            "acks=all are refused (orders-0, orders-0, orders-0, …).",
        ),
    ],
)
def test_what_is_amiss_is_said_with_its_weight(
    change: dict[str, Any], verdict: Verdict, code: str, told: str
) -> None:
    found = findings(replace(HEALTHY, **change))
    assert verdict_of(found) is verdict
    assert found[0].code == code
    assert told in found[0].sentence


def test_a_partition_without_a_leader_is_named_once() -> None:
    lost = replace(WHOLE, leader=None, in_sync_count=1, in_sync_min=2)
    short = replace(WHOLE, partition=1, in_sync_count=1, in_sync_min=2)
    told = {one.code: one.sentence for one in findings(replace(HEALTHY, partitions=(lost, short)))}
    assert set(told) == {"leaderless", "under_min_isr", "under_replicated"}
    assert "(orders-0)" in told["leaderless"]
    assert "(orders-1)" in told["under_min_isr"]
    assert "(orders-1)" in told["under_replicated"]
    assert [one.code for one in findings(replace(HEALTHY, partitions=(lost,)))] == ["leaderless"]


def test_the_worst_is_said_first() -> None:
    facts = replace(HEALTHY, fenced=(3,), partitions=(replace(WHOLE, leader=None),))
    assert [one.verdict for one in findings(facts)] == [Verdict.UNAVAILABLE, Verdict.DEGRADED]


def _part(**fields: Any) -> Message:
    return Message(fields)


def _replica(node_id: int, end_offset: int, caught_up_ms: int = -1) -> Message:
    return _part(
        replica_id=node_id, log_end_offset=end_offset, last_caught_up_timestamp=caught_up_ms
    )


def test_a_quorum_is_read_with_the_lag_of_everybody_and_voters_first() -> None:
    partition = _part(
        leader_id=2,
        leader_epoch=5,
        high_watermark=100,
        current_voters=[_replica(3, -1), _replica(2, 101, 5000), _replica(1, 90, 2000)],
        observers=[_replica(0, 50)],
    )
    listener = _part(name="CONTROLLER", host="there", port=9)
    told = told_in(partition, [_part(node_id=1, listeners=[listener])])
    assert (told.leader, told.term, told.end_offset) == (2, 5, 101)
    assert [(one.node_id, one.votes, one.lag) for one in told.members] == [
        (1, True, 11),
        (2, True, 0),
        (3, True, None),
        (0, False, 51),
    ]
    assert [one.caught_up_ms_ago for one in told.members] == [3000, 0, None, None]
    assert told.members[0].address == "there:9"


def test_a_leader_that_nobody_knows_is_none() -> None:
    partition = _part(
        leader_id=-1, leader_epoch=0, high_watermark=0, current_voters=[], observers=[]
    )
    assert told_in(partition, []).leader is None
