"""`python -m tests.integration.groups.misses apache`: how often kafka-python misses what is new.

A consumer of kafka-python with a regular expression; then its topic gets partitions, and then
another topic appears. Now and then it notices neither: on Apache Kafka (`apache`, needs Java and
Maven) as on three nodes of ours (`ours`), so that is its own. Figures are in docs/EVIDENCE.md.

Not here: what must hold (`test_members.py`).
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.integration.clusters import running_cluster
from tests.integration.groups.conftest import OPTIONS
from tests.integration.groups.crew import KafkaPython, Readings
from tests.integration.nodes import wait_until
from tests.interop.broker import start_broker

TIMES: Final = 25
_PATIENCE_S: Final = 20.0


def _is_noticed(member: KafkaPython, count: int) -> bool:
    try:
        wait_until(lambda: len(member.owned) == count, _PATIENCE_S, f"{count} partitions")
    except TimeoutError:
        return False
    return True


def _one(bootstrap: str, replicas: int) -> list[bool]:
    """Return whether the first partition, two more, and a later topic were noticed."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"t-{uuid.uuid4().hex[:8]}"
    for made in admin.create_topics([NewTopic(topic, 1, replicas)]).values():
        made.result(30)
    member = KafkaPython(bootstrap, topic, f"^{topic}.*", Readings())
    member.start()
    noticed = [_is_noticed(member, 1)]
    for made in admin.create_partitions([NewPartitions(topic, 3)]).values():
        made.result(30)
    noticed.append(_is_noticed(member, 3))
    for made in admin.create_topics([NewTopic(f"{topic}-later", 1, replicas)]).values():
        made.result(30)
    noticed.append(_is_noticed(member, 4))
    member.stop()
    return noticed


def _count(bootstrap: str, replicas: int) -> None:
    missed = 0
    for number in range(TIMES):
        noticed = _one(bootstrap, replicas)
        missed += not all(noticed)
        print(f"{number + 1}: {noticed}", flush=True)
    print(f"something was missed in {missed} of {TIMES}")


def main(which: str) -> None:
    with TemporaryDirectory() as folder:
        if which == "apache":
            delay = "group.initial.rebalance.delay.ms"
            with start_broker(Path(folder), {delay: OPTIONS[delay]}) as broker:
                _count(broker.address, 1)
        else:
            with running_cluster(Path(folder), options=OPTIONS) as cluster:
                _count(cluster.bootstrap, 3)


if __name__ == "__main__":
    if sys.argv[1:] not in (["apache"], ["ours"]):
        sys.exit("usage: python -m tests.integration.groups.misses apache|ours")
    main(sys.argv[1])
