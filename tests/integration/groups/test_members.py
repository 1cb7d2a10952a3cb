"""Real clients in one group on three real nodes: they join, leave, crash, restart, find more.

Every record is read, each partition by one member at a time.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as MadeTopic

from tests.integration.clusters import RunningCluster
from tests.integration.groups import mortal
from tests.integration.groups.crew import (
    CLIENTS,
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

# One of them in the quick run; the others take long, and stand for the same.
QUICK = "confluent-kafka"
EACH = [
    name if name == QUICK else pytest.param(name, marks=pytest.mark.long)
    for name in CLIENTS
    if CLIENTS[name] is not Cooperative
]
# Without kafka-python, which misses now and then what is new, on Apache Kafka too (`misses.py`).
WATCHFUL = [one for one in EACH if one == QUICK or "kafka-python" not in str(one)]
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


@pytest.mark.parametrize("name", EACH)
def test_a_static_member_restarts_without_a_rebalance(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(2), Readings()
    one, two = (CLIENTS[name](cluster.bootstrap, topic, topic, readings) for _ in range(2))
    one.instance_id, two.instance_id = "desk-1", "desk-2"
    one.start()
    two.start()
    share_out([one, two], 2, topic)
    before, mine = _generations(cluster, topic), two.owned
    two.vanish()
    again = CLIENTS[name](cluster.bootstrap, topic, topic, readings)
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


@pytest.mark.parametrize("name", WATCHFUL)
def test_new_partitions_and_topics_are_found(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, name: str
) -> None:
    topic, readings = new_topic(1), Readings()
    member = CLIENTS[name](cluster.bootstrap, topic, f"^{topic}.*", readings)
    member.start()
    share_out([member], 1, topic)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result(30)
    share_out([member], 3, topic)
    write(topic, 3, 5)
    until(lambda: readings.has_all({0: 5, 1: 5, 2: 5}), "everything is read")
    later = f"{topic}-later"
    for made in admin.create_topics([MadeTopic(later, 1, 3)]).values():
        made.result(30)
    everything = {(topic, 0), (topic, 1), (topic, 2), (later, 0)}
    until(lambda: member.owned == everything, f"{later} is found")
    # More than the first topic has: they must come from the later one.
    write(later, 1, 8)
    until(lambda: readings.has_all({0: 8, 1: 5, 2: 5}), "everything is read")
    member.stop()


@pytest.mark.parametrize("name", EACH)
def test_the_partitions_of_a_member_that_is_killed_go_to_the_others(
    cluster: RunningCluster, new_topic: NewTopic, write: Write, tmp_path: Path, name: str
) -> None:
    topic, readings, said = new_topic(2), Readings(), tmp_path / "said"
    write(topic, 2, 10)
    survivor = CLIENTS[name](cluster.bootstrap, topic, topic, readings)
    survivor.start()
    share_out([survivor], 2, topic)
    command = [sys.executable, "-m", mortal.__name__, name, cluster.bootstrap, topic, topic]
    with said.open("wb") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            until(lambda: len(survivor.owned) == 1, "they share")
            ((_, kept),) = survivor.owned
            write(topic, 2, 10)
            until(lambda: f"{1 - kept} 19" in said.read_text().splitlines(), "the other one reads")
        finally:
            process.kill()
    write(topic, 2, 10)
    share_out([survivor], 2, topic)
    for line in said.read_text().splitlines():
        readings.note(*map(int, line.split()))
    until(lambda: readings.has_all({0: 30, 1: 30}), "everything is read")
    survivor.stop()
