"""`python -m tests.integration.groups.misses [TIMES]`: how often kafka-python misses what is new.

A consumer of kafka-python with a regular expression; then its topic gets partitions, and then
another topic appears. Now and then it notices neither within 20 s, on any cluster, because it
forgets a join whose answer comes between two polls (`test_forgotten_joins.py`). So the chance is
about the time that SyncGroup takes, which is told too, over the 100 ms that a poll takes, twice.

Tries take turns: one broker of Apache Kafka (which needs Java and Maven), one node of ours, and
three, where what a group shares out is copied before it is answered. Figures are in
docs/EVIDENCE.md.

Not here: what must hold (`test_members.py`).
"""

from __future__ import annotations

import statistics
import sys
import uuid
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.integration.clusters import running_cluster
from tests.integration.groups.conftest import OPTIONS
from tests.integration.groups.crew import KafkaPython, Readings
from tests.integration.nodes import running_node, wait_until
from tests.interop.broker import start_broker

_TIMES: Final = 25
_PATIENCE_S: Final = 20.0
_DELAY: Final = "group.initial.rebalance.delay.ms"


class _Cluster(NamedTuple):
    """Somebody who keeps topics."""

    name: str
    bootstrap: str
    replicas: int


class _Try(NamedTuple):
    """What became of one consumer."""

    # Whether the first partition, two more, and a later topic were noticed.
    noticed: list[bool]
    # How long SyncGroup took, on average.
    sync_ms: float


def _is_noticed(member: KafkaPython, count: int) -> bool:
    try:
        wait_until(lambda: len(member.owned) == count, _PATIENCE_S, f"{count} partitions")
    except TimeoutError:
        return False
    return True


def _one(cluster: _Cluster) -> _Try:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for made in admin.create_topics([NewTopic(topic, 1, cluster.replicas)]).values():
        made.result(30)
    member = KafkaPython(cluster.bootstrap, topic, f"^{topic}.*", Readings())
    member.start()
    noticed = [_is_noticed(member, 1)]
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result(30)
    noticed.append(_is_noticed(member, 3))
    for made in admin.create_topics([NewTopic(f"{topic}-later", 1, cluster.replicas)]).values():
        made.result(30)
    noticed.append(_is_noticed(member, 4))
    member.stop()
    return _Try(noticed, member.sync_ms)


def main(times: int) -> None:
    with TemporaryDirectory() as folder, ExitStack() as stack:
        places = [Path(folder) / name for name in ("apache", "one", "three")]
        for place in places:
            place.mkdir()
        apache = stack.enter_context(start_broker(places[0], {_DELAY: OPTIONS[_DELAY]}))
        one = stack.enter_context(running_node(places[1], options=OPTIONS))
        three = stack.enter_context(running_cluster(places[2], options=OPTIONS))
        clusters = (
            _Cluster("Apache Kafka", apache.address, 1),
            _Cluster("ours, one node", one.bootstrap, 1),
            _Cluster("ours, three nodes", three.bootstrap, 3),
        )
        tries = dict[str, list[_Try]]()
        for number in range(times):
            for cluster in clusters:
                done = _one(cluster)
                tries.setdefault(cluster.name, []).append(done)
                print(f"{number + 1}: {cluster.name}: {done}", flush=True)
        for name, all_of_it in tries.items():
            missed = sum(not all(one.noticed) for one in all_of_it)
            sync_ms = statistics.median(one.sync_ms for one in all_of_it)
            print(f"{name}: missed in {missed} of {times}; SyncGroup takes {sync_ms:.1f} ms")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else _TIMES)
