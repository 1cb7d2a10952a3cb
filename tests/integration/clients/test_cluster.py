"""Every client against three nodes, of which it is told one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.clients.cases import assert_same
from tests.integration.clients.port import (
    DEADLINE_S,
    Admin,
    AtBeginning,
    Client,
    IncrementalAdmin,
    NewTopic,
    PartitionView,
    RefusedError,
    Sending,
)
from tests.integration.clusters import RunningCluster, running_cluster
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration

NODES = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def bootstrap(cluster: RunningCluster) -> str:
    """Where clients begin: at a node that is not the active controller."""
    active = cluster.active_controller()
    first, _ = cluster.others(active.node_id)
    return first.bootstrap


def test_what_a_client_writes_at_three_leaders_every_client_reads(
    client: Client, readers: list[Client], new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)

    with client.producing(Sending(idempotent=True)) as send:
        for partition in range(3):
            send(topic, client.sample, partition=partition)

    for reader in readers:
        for partition in range(3):
            read = reader.consume(topic, AtBeginning(), partitions=(partition,))
            assert_same(read, client.sample)


def described(admin: Admin, topic: str, partitions: int) -> list[PartitionView]:
    """Return the partitions as soon as whichever node is asked has heard of all of them."""
    found: list[PartitionView] = []

    def holds() -> bool:
        found[:] = admin.describe_topic(topic) if topic in admin.topics() else []
        return len(found) == partitions

    wait_until(holds, DEADLINE_S, f"{topic} is known")
    return found


def test_partitions_are_spread_over_all_nodes(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3)
    views = described(admin, name, 3)
    assert sorted(view.leader for view in views) == list(NODES)
    assert all(view.replicas == view.in_sync == (view.leader,) for view in views)


def test_replicas_are_on_different_nodes(admin: Admin, name: str) -> None:
    admin.create_topic(name, partitions=3, replication_factor=3)
    views = described(admin, name, 3)
    assert all(sorted(view.replicas) == list(NODES) for view in views)
    assert sorted(view.leader for view in views) == list(NODES)


def test_more_replicas_than_nodes_are_refused(admin: Admin, name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        admin.create_topic(name, replication_factor=4)
    assert refused.value.code == 38


def test_all_nodes_are_described(admin: Admin, cluster: RunningCluster) -> None:
    view = admin.describe_cluster()
    assert view.brokers == {(one, cluster[one].bootstrap) for one in NODES}
    assert view.controller == cluster.active_controller().node_id


def test_topics_are_changed_through_any_node(
    incremental_admin: IncrementalAdmin, name: str
) -> None:
    admin = incremental_admin
    admin.create_topic(name)
    described(admin, name, 1)
    admin.add_partitions(name, 3)
    described(admin, name, 3)
    admin.change_topic_configs(name, {"retention.ms": "12345"})
    wait_until(
        lambda: admin.topic_configs(name)["retention.ms"].value == "12345",
        DEADLINE_S,
        "the option is known",
    )
    admin.delete_topic(name)
    wait_until(lambda: name not in admin.topics(), DEADLINE_S, f"{name} is gone")


@pytest.mark.parametrize("broker", NODES)
def test_each_broker_has_options_of_its_own(
    incremental_admin: IncrementalAdmin, broker: int
) -> None:
    option = "max.connections.per.ip"
    incremental_admin.change_broker_configs(broker, {option: "1000"})
    found = [incremental_admin.broker_configs(one)[option].value == "1000" for one in NODES]
    assert found == [one == broker for one in NODES]
    incremental_admin.change_broker_configs(broker, {option: None})
