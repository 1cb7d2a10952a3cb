"""Real clients in one group on three real nodes: they join, leave, crash, restart, find more.

Every record is read, each partition by one member at a time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.integration.clusters import RunningCluster
from tests.integration.groups.crew import (
    Aio,
    Confluent,
    Cooperative,
    KafkaPython,
    Member,
    Readings,
    committed,
    share_out,
    until,
)

pytestmark = pytest.mark.integration

CLIENTS: dict[str, type[Member]] = {
    "confluent-kafka": Confluent,
    "confluent-kafka, cooperative": Cooperative,
    "kafka-python": KafkaPython,
    "aiokafka": Aio,
}
NewTopic = Callable[[int], str]
Write = Callable[[str, int, int], None]


@pytest.mark.parametrize("name", CLIENTS)
def test_members_join_and_leave_and_nothing_is_missed(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(2), Readings()
    write(topic, 2, 10)
    one, two = (CLIENTS[name](cluster.bootstrap, topic, topic, readings) for _ in range(2))
    one.start()
    share_out([one], 2, topic)
    two.start()
    share_out([one, two], 2, topic)
    one.stop()
    share_out([two], 2, topic)
    write(topic, 2, 10)
    ends = {0: 20, 1: 20}
    until(lambda: readings.has_all(ends), "everything is read")
    until(lambda: committed(cluster.bootstrap, topic, topic, 2) == ends, "all is committed")
    two.stop()


def test_foreign_clients_share_a_group(
    cluster: RunningCluster, new_topic: NewTopic, write: Write
) -> None:
    topic, readings = new_topic(2), Readings()
    members: list[Member] = [
        kind(cluster.bootstrap, topic, topic, readings) for kind in (Confluent, KafkaPython)
    ]
    for member in members:
        member.start()
    share_out(members, 2, topic)
    write(topic, 2, 10)
    until(lambda: readings.has_all({0: 10, 1: 10}), "everything is read")
    for member in members:
        member.stop()


def test_a_static_member_restarts_without_a_rebalance(
    cluster: RunningCluster, new_topic: NewTopic, write: Write
) -> None:
    topic, readings = new_topic(2), Readings()
    one, two = (Confluent(cluster.bootstrap, topic, topic, readings) for _ in range(2))
    one.instance_id, two.instance_id = "desk-1", "desk-2"
    one.start()
    two.start()
    share_out([one, two], 2, topic)
    before, mine = _generations(cluster, topic), two.owned
    two.vanish()
    again = Confluent(cluster.bootstrap, topic, topic, readings)
    again.instance_id = "desk-2"
    again.start()
    share_out([one, again], 2, topic)
    assert again.owned == mine
    assert _generations(cluster, topic) == before, "nobody was disturbed"
    write(topic, 2, 5)
    until(lambda: readings.has_all({0: 5, 1: 5}), "everything is read")
    one.stop()
    again.stop()


def _generations(cluster: RunningCluster, group: str) -> int:
    """Return how many rebalances of a group its coordinators have told of."""
    lines = (line for node in cluster.running for line in node.log_path.read_text().splitlines())
    return sum("group_rebalances" in line and f"group={group} " in line for line in lines)


def test_new_partitions_and_topics_are_found(
    cluster: RunningCluster, new_topic: NewTopic, write: Write
) -> None:
    topic, readings = new_topic(1), Readings()
    member = Confluent(cluster.bootstrap, topic, f"^{topic}.*", readings)
    member.start()
    share_out([member], 1, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result(30)
    share_out([member], 3, topic)
    write(topic, 3, 5)
    until(lambda: readings.has_all({0: 5, 1: 5, 2: 5}), "everything is read")
    member.stop()
