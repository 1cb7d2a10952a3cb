"""Which brokers there are, whom clients take for the controller, and forgetting a broker."""

from __future__ import annotations

import pytest

from ottla.node.kafka.cluster import controller_told, describe_cluster, unregister_broker
from ottla.proto.ids import BrokerId
from ottla.proto.kafka.apis import DESCRIBE_CLUSTER, UNREGISTER_BROKER
from ottla.proto.kafka.message import Message
from tests.unit.node.kafka.one_door import CLUSTER_ID, Cluster
from tests.unit.node.kafka.stage import HERE, NODE_ID, Stage

NOT_ASKED_FOR = -(2**31)
ALL_CLUSTER_OPERATIONS = 8096
TWO = BrokerId(2)


def ask(
    version: int,
    *,
    endpoint: int = 1,
    operations: bool = False,
    fenced: bool = True,
    stage: Stage | None = None,
) -> Message:
    fields = {
        "include_cluster_authorized_operations": operations,
        "endpoint_type": endpoint,
        "include_fenced_brokers": fenced,
    }
    return (stage or Stage()).ask(describe_cluster, DESCRIBE_CLUSTER, version, fields)


@pytest.fixture
def half_down() -> Stage:
    """Brokers 1 to 4; broker 1 is the active controller, and 3 and 4 are down."""
    cluster = Cluster(size=4)
    cluster.fence(3, 4)
    return Stage(cluster=cluster)


# ── DescribeCluster ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(version: int) -> None:
    answer = ask(version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, CLUSTER_ID, NODE_ID)
    (broker,) = answer.brokers
    assert (broker.broker_id, broker.host, broker.port) == (NODE_ID, HERE.host, HERE.port)
    assert broker.get("is_fenced", False) is False
    assert answer.cluster_authorized_operations == NOT_ASKED_FOR
    told = ask(version, operations=True)
    assert told.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


@pytest.mark.parametrize(("endpoint", "expected"), [(2, 114), (0, 115), (3, 115), (-1, 115)])
def test_other_kinds_of_endpoints_are_refused(endpoint: int, expected: int) -> None:
    answer = ask(2, endpoint=endpoint)
    assert (answer.error_code, answer.endpoint_type) == (expected, 1)
    assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])
    assert answer.error_message


@pytest.mark.parametrize("version", range(3))
def test_brokers_that_are_down_are_not_told(half_down: Stage, version: int) -> None:
    answer = ask(version, fenced=False, stage=half_down)
    assert [one.broker_id for one in answer.brokers] == [1, 2]


def test_brokers_that_are_down_are_told_to_who_asks_for_them(half_down: Stage) -> None:
    answer = ask(2, stage=half_down)
    told = [(one.broker_id, one.is_fenced) for one in answer.brokers]
    assert sorted(told) == [(1, False), (2, False), (3, True), (4, True)]


def test_the_active_controller_is_the_controller_if_clients_can_reach_it() -> None:
    cluster = Cluster(size=3)
    assert controller_told(cluster.image, TWO) == 1
    cluster.fence(1)
    # It is no broker at the moment, so whoever was asked takes what is meant for it.
    assert controller_told(cluster.image, TWO) == 2
    assert controller_told(cluster.image, BrokerId(1)) in (2, 3)
    cluster.fence(2, 3)
    assert controller_told(cluster.image, TWO) == -1


# ── UnregisterBroker ──────────────────────────────────────────────────────────────────────────


def unregister(stage: Stage, broker_id: int) -> tuple[int, str | None]:
    answer = stage.ask(unregister_broker, UNREGISTER_BROKER, 0, {"broker_id": broker_id})
    return answer.error_code, answer.error_message


def test_a_broker_that_is_down_and_holds_nothing_is_forgotten(half_down: Stage) -> None:
    assert unregister(half_down, 4) == (0, None)
    assert sorted(half_down.image.brokers) == [1, 2, 3]
    assert half_down.door.clients == ["127.0.0.1/a test"]


def test_a_broker_that_is_up_is_not_forgotten(half_down: Stage) -> None:
    code, sentence = unregister(half_down, 2)
    assert (code, sentence) == (42, "The broker is up; stop it first.")
    assert TWO in half_down.image.brokers


def test_a_broker_that_holds_partitions_is_not_forgotten() -> None:
    cluster = Cluster(size=2)
    cluster.create((1, 2))
    cluster.fence(2)
    code, sentence = unregister(Stage(cluster=cluster), 2)
    assert (code, sentence) == (42, "The broker holds partitions of the topic 't'.")


@pytest.mark.parametrize("broker_id", [77, 0, -1, 2**31 - 1])
def test_a_broker_that_is_not_there_cannot_be_forgotten(broker_id: int) -> None:
    assert unregister(Stage(), broker_id)[0] == 102


def test_without_a_controller_nobody_is_forgotten() -> None:
    stage = Stage(timeout_ms=30)
    stage.door.is_deposed = True
    assert unregister(stage, 77)[0] == 41
