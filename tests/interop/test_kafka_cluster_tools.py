"""Kafka's own programs for the cluster as a whole, unchanged, against three of our nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from ottla.controller.image import FEATURE_LEVEL
from tests.interop.broker import wait_until
from tests.interop.target import Target, is_kafka, start_target
from tests.interop.tools import (
    CLUSTER,
    ELECTIONS,
    FEATURES,
    QUORUM,
    TOPICS,
    Tools,
    start_tools,
)

pytestmark = pytest.mark.interop

only_here = pytest.mark.skipif(is_kafka(), reason="it is about several nodes, or features, of ours")
OUR_LEVEL = "ottla.feature.level"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def target(kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with start_target(tmp_path_factory.mktemp("tools")) as running:
        yield running


@pytest.fixture(scope="module")
def tools(target: Target) -> Iterator[Tools]:
    with start_tools(target.bootstrap) as running:
        yield running


# MetadataQuorumCommand


def quorum_status(tools: Tools) -> dict[str, str]:
    ran = tools.ask(QUORUM, "describe", "--status")
    told = dict(line.split(":", 1) for line in ran.lines if line)
    return {name: value.strip() for name, value in told.items()}


def quorum_rows(tools: Tools, *options: str) -> list[dict[str, str]]:
    """Return what is told of each journal of the quorum."""
    ran = tools.ask(QUORUM, "describe", "--replication", *options)
    names, *rows = [[cell.strip() for cell in line.split("\t")] for line in ran.lines]
    return [dict(zip(names, row, strict=False)) for row in rows]


def test_the_quorum_is_described(tools: Tools, target: Target) -> None:
    wait_until(lambda: quorum_status(tools)["MaxFollowerLag"] == "0", DEADLINE_S, "nobody lags")
    told = quorum_status(tools)
    identity = tools.run(CLUSTER, "cluster-id", "--bootstrap-server", target.bootstrap)
    assert identity.out.strip() == f"Cluster ID: {told['ClusterId']}"
    assert told["LeaderId"] in target.ids
    assert int(told["LeaderEpoch"]) >= 1
    assert int(told["HighWatermark"]) >= 1
    assert re.findall(r'"id": (\d+)', told["CurrentVoters"]) == target.ids
    assert told["CurrentVoters"].count("CONTROLLER://127.0.0.1:") == len(target.ids)
    if target.ours is not None:
        assert told["LeaderId"] == str(target.ours.active_controller().node_id)
        for node in target.ours.nodes.values():
            assert f"CONTROLLER://{node.internal}" in told["CurrentVoters"]


@pytest.mark.parametrize("options", [(), ("--human-readable",)])
def test_the_journals_of_the_voters_are_described(
    tools: Tools, target: Target, options: tuple[str, ...]
) -> None:
    def lags() -> set[str]:
        return {one["Lag"] for one in quorum_rows(tools, *options)}

    wait_until(lambda: lags() == {"0"}, DEADLINE_S, "nobody lags")
    rows = quorum_rows(tools, *options)
    assert sorted(one["NodeId"] for one in rows) == target.ids
    followers = ["Follower"] * (len(target.ids) - 1)
    assert sorted(one["Status"] for one in rows) == [*followers, "Leader"]
    assert all(int(one["LogEndOffset"]) >= 1 for one in rows)


@only_here
def test_after_the_death_of_the_active_controller_the_next_one_is_described(
    tools: Tools, target: Target
) -> None:
    cluster = target.cluster
    dead, before = cluster.active_controller(), quorum_status(tools)
    dead.kill()
    after = quorum_status(tools)
    assert after["LeaderId"] != before["LeaderId"] == str(dead.node_id)
    assert int(after["LeaderEpoch"]) > int(before["LeaderEpoch"])
    assert after["ClusterId"] == before["ClusterId"]
    # Of whoever was never heard by this leader, the tool cannot tell a lag.
    rows = {one["NodeId"]: one for one in quorum_rows(tools)}
    assert rows[after["LeaderId"]]["Status"] == "Leader"
    # The others can change something.
    tools.ask(TOPICS, "--create", "--topic", "without-one", "--replication-factor", "1")
    dead.restart()

    def is_caught_up() -> bool:
        return {one["NodeId"]: one["Lag"] for one in quorum_rows(tools)}[before["LeaderId"]] == "0"

    wait_until(is_caught_up, DEADLINE_S, "it has caught up")


# FeatureCommand


@only_here
def test_our_own_level_is_described_beside_that_of_kafka(tools: Tools) -> None:
    ran = tools.ask(FEATURES, "describe")
    told = {line.split()[1]: line.split() for line in ran.lines}
    assert set(told) == {"metadata.version", "transaction.version", OUR_LEVEL}
    assert told[OUR_LEVEL][told[OUR_LEVEL].index("FinalizedVersionLevel:") + 1] == str(
        FEATURE_LEVEL
    )


@only_here
def test_a_level_is_raised_or_refused_with_a_sentence(tools: Tools) -> None:
    ran = tools.ask(FEATURES, "upgrade", "--feature", f"{OUR_LEVEL}={FEATURE_LEVEL}")
    assert ran.out.startswith(f"{OUR_LEVEL} was upgraded to {FEATURE_LEVEL}.")
    refused = tools.try_(FEATURES, "upgrade", "--feature", f"{OUR_LEVEL}={FEATURE_LEVEL + 1}")
    assert refused.code != 0
    assert f"This node knows levels up to {FEATURE_LEVEL}." in refused.said


def test_the_level_of_kafka_is_not_changed(tools: Tools) -> None:
    kept = tools.ask(FEATURES, "upgrade", "--feature", "metadata.version=30")
    assert kept.out.startswith("metadata.version was upgraded to 30.")
    refused = tools.try_(FEATURES, "downgrade", "--feature", "metadata.version=25")
    assert refused.code != 0
    assert "Could not downgrade metadata.version to 25." in refused.said


# LeaderElectionCommand


def create(tools: Tools, topic: str, *replicas: int, **settings: str) -> None:
    """Create a topic of one partition with its replicas where they are wanted."""
    configs = [part for key in settings for part in ("--config", f"{key}={settings[key]}")]
    configs = [one.replace("_", ".") for one in configs]
    assignment = ":".join(map(str, replicas))
    tools.ask(TOPICS, "--create", "--topic", topic, "--replica-assignment", assignment, *configs)


def leader(tools: Tools, topic: str) -> str:
    """Return who leads the one partition of a topic, or "none"."""
    found = re.search(r"Leader: (\w+)", tools.ask(TOPICS, "--describe", "--topic", topic).out)
    assert found is not None
    return found[1]


def wait_for_leader(tools: Tools, topic: str, wanted: set[int | None]) -> None:
    names = {"none" if one is None else str(one) for one in wanted}
    wait_until(lambda: leader(tools, topic) in names, DEADLINE_S, f"{names} lead {topic}")


def elect(tools: Tools, kind: str, topic: str) -> str:
    """Hold an election for partition 0 of a topic, and return what was said about it."""
    one = ("--topic", topic, "--partition", "0")
    return tools.try_(ELECTIONS, "--election-type", kind, *one).said


def test_partitions_with_the_right_leader_need_no_election(tools: Tools) -> None:
    tools.ask(TOPICS, "--create", "--topic", "elected", "--partitions", "2")
    assert "Valid replica already elected for partitions elected-0" in elect(
        tools, "preferred", "elected"
    )
    tools.ask(ELECTIONS, "--election-type", "preferred", "--all-topic-partitions")
    elect(tools, "unclean", "elected")


def test_a_partition_that_is_not_there_cannot_be_elected_for(tools: Tools) -> None:
    one = ("--topic", "never-made", "--partition", "9")
    ran = tools.try_(ELECTIONS, "--election-type", "preferred", *one)
    assert ran.code != 0
    assert "UnknownTopicOrPartition" in ran.said


@only_here
def test_leaders_move_when_brokers_die_and_move_back_when_they_are_told_to(
    tools: Tools, target: Target
) -> None:
    cluster = target.cluster
    controller = cluster.active_controller().node_id
    first, second = (key for key in cluster.nodes if key != controller)
    create(tools, "moved", first, controller, second)
    create(tools, "careful", first, second, min_insync_replicas="1")
    create(
        *(tools, "careless", first, second),
        min_insync_replicas="1",
        unclean_leader_election_enable="true",
    )
    create(tools, "lonely", second)

    cluster[first].kill()
    wait_for_leader(tools, "moved", {controller, second})
    wait_for_leader(tools, "careful", {second})
    told = tools.ask(TOPICS, "--describe", "--under-replicated-partitions").out
    assert {"moved", "careful", "careless"} <= set(re.findall(r"Topic: (\S+)", told))
    assert "PreferredLeaderNotAvailable" in elect(tools, "preferred", "moved")

    # The one that comes back lacks what the other one may have written since.
    cluster[second].kill()
    cluster[first].restart()
    wait_for_leader(tools, "careful", {None})
    # Its topic allows a leader that may lack records.
    wait_for_leader(tools, "careless", {first})
    told = tools.ask(TOPICS, "--describe", "--unavailable-partitions").out
    assert {"careful", "lonely"} <= set(re.findall(r"Topic: (\S+)", told))
    assert "PreferredLeaderNotAvailable" in elect(tools, "preferred", "careful")
    assert "EligibleLeadersNotAvailable" in elect(tools, "unclean", "lonely")
    # An operator who says so gets one.
    said = elect(tools, "unclean", "careful")
    assert "Successfully completed leader election (UNCLEAN) for partitions careful-0" in said
    wait_for_leader(tools, "careful", {first})

    cluster[second].restart()
    wait_for_leader(tools, "lonely", {second})

    def is_elected() -> bool:
        said = elect(tools, "preferred", "moved")
        return "Successfully completed" in said or "Valid replica already elected" in said

    wait_until(is_elected, DEADLINE_S, "the preferred leader is in sync again, and leads")
    wait_for_leader(tools, "moved", {first})


# ClusterTool


def test_a_broker_that_is_not_there_cannot_be_forgotten(tools: Tools, target: Target) -> None:
    address = ("--bootstrap-server", target.bootstrap)
    ran = tools.run(CLUSTER, "unregister", *address, "--id", "77")
    assert ran.code != 0
    assert "BrokerIdNotRegistered" in ran.said


@only_here
def test_a_broker_that_is_up_is_not_forgotten(tools: Tools, target: Target) -> None:
    address = ("--bootstrap-server", target.bootstrap)
    ran = tools.run(CLUSTER, "unregister", *address, "--id", "1")
    assert ran.code != 0
    assert "The broker is up; stop it first." in ran.said
    listed = tools.run(CLUSTER, "list-endpoints", *address).lines[1:]
    assert sorted(line.split()[0] for line in listed) == target.ids
