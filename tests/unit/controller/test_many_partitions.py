"""5,000 partitions: what one command does to them, and that it does not take for ever.

The bounds in time are ten times what it takes on a quiet machine; they find a step that became
quadratic, and nothing less.
"""

from __future__ import annotations

from time import perf_counter

from ottla.controller.commands import CreateTopic
from ottla.controller.delta import encode_delta
from ottla.controller.port import NewTopic
from ottla.controller.snapshot import encode_state
from tests.unit.controller.cluster import ONE, Cluster
from tests.unit.controller.metadata import topic_id


def _grown(topics: int, partitions: int) -> Cluster:
    cluster = Cluster(3)
    for number in range(1, topics + 1):
        wanted = NewTopic(f"topic-{number}", partitions, 3)
        cluster.ok(CreateTopic(wanted, topic_id(number), ONE, seed=number * 7919))
    return cluster


def test_a_hundred_topics_of_fifty_partitions_are_a_hundred_small_commands() -> None:
    start = perf_counter()
    cluster = _grown(100, 50)
    assert perf_counter() - start < 2
    assert sum(len(topic.partitions) for topic in cluster.image.topics.values()) == 5000
    assert max(map(len, cluster.log)) < 200


def test_fencing_the_leader_of_a_third_of_them_is_one_command_and_quick() -> None:
    cluster = _grown(100, 50)
    partitions = [one for topic in cluster.image.topics.values() for one in topic.partitions]
    assert 1600 < sum(one.leader == 2 for one in partitions) < 1750
    version, start = cluster.image.version, perf_counter()
    cluster.fence(2)
    assert perf_counter() - start < 1
    assert cluster.image.version == version + 1
    partitions = [one for topic in cluster.image.topics.values() for one in topic.partitions]
    assert all(one.leader in (1, 3) for one in partitions)
    assert all(sorted(one.isr) == [1, 3] for one in partitions)
    assert len(cluster.log[-1]) < 40
    delta = cluster.machine.last_delta
    assert delta is not None
    # About 45 bytes each on the way to a broker.
    assert len(encode_delta(delta)) < 60 * 5000
    assert len(encode_state(cluster.machine.state)) < 60 * 5000
