"""Leaders die under our producer: nothing is lost, doubled, disordered, or told wrongly."""

from __future__ import annotations

import uuid

import pytest

from ottla import Admin, NewTopic, Producer, Report
from ottla.clients.metadata import TopicInfo
from ottla.clients.producer.batch import State
from tests.integration.clients_own.reading import read_all
from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration
DEADLINE_S = 60.0
PARTITIONS = 3
BEFORE, DURING, AFTER = 600, 1200, 600


def test_a_killed_leader_costs_a_producer_nothing_but_time(three_nodes: RunningCluster) -> None:
    topic = f"failover-{uuid.uuid4().hex[:8]}"
    with Admin({"bootstrap.servers": three_nodes.bootstrap}) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
        found = admin.describe_topics([topic])[topic]
    assert isinstance(found, TopicInfo)
    victim = three_nodes[found.partitions[0].leader]
    told = list[Report]()
    with Producer({"bootstrap.servers": three_nodes.bootstrap, "linger.ms": 1}) as producer:

        def write(start: int, count: int) -> None:
            for at in range(start, start + count):
                producer.send(topic, b"%d" % at, partition=at % 3, on_delivery=told.append)

        write(0, BEFORE)
        wait_until(lambda: len(told) > BEFORE // 2, DEADLINE_S, "half of it is acknowledged")
        victim.kill()
        write(BEFORE, DURING)
        wait_until(lambda: len(told) > BEFORE + DURING // 2, DEADLINE_S, "others lead")
        write(BEFORE + DURING, AFTER)
        producer.flush(DEADLINE_S)
        retried = producer.metrics().get("batches.retried", 0)
    victim.start()
    three_nodes.wait_until_ready()
    assert {report.state for report in told} == {State.OK}
    assert len(told) == BEFORE + DURING + AFTER
    seen = read_all(three_nodes.bootstrap, topic, PARTITIONS)
    for partition in range(PARTITIONS):
        values = [one.value for one in seen if one.partition == partition]
        assert values == [b"%d" % at for at in range(partition, len(told), 3)], f"{retried=}"
    offsets = {(one.partition, one.offset) for one in seen}
    assert {(one.partition, one.offset) for one in told} == offsets
