"""Nodes that forget every producer without an open transaction: its id, and what logs know of it.

Coordinators forget transactional ids by an option that they read when they start. Logs forget
producers that were silent, by an option that may change; a log that is opened again remembers them,
as far as its snapshots do. So the ids go first, and no node is restarted after the producers went.
"""

from __future__ import annotations

from ottla.clients.admin.blocking import Admin
from ottla.clients.metadata import TopicInfo
from ottla.proto.ids import TopicPartition
from tests.integration.clusters import RunningCluster
from tests.integration.nodes import wait_until

DEADLINE_S = 120.0
# What the cluster is to be started with: it is with retention that a log forgets.
OFTEN = {"log.retention.check.interval.ms": "500"}
_FORGETFUL = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "500",
}
_EXPIRATION = "producer.id.expiration.ms"


def forget_producers(cluster: RunningCluster, admin: Admin, topic: str) -> int:
    """Restart all nodes twice; return how many transactional ids that had ended were known.

    In the end no leader remembers a producer that has nothing open.
    """
    known = len(ended_ids(admin))
    _restart_all(cluster, admin, _FORGETFUL)
    wait_until(lambda: not ended_ids(admin), DEADLINE_S, "every id is forgotten")
    _restart_all(cluster, admin, {})
    admin.alter_configs("broker", "", {_EXPIRATION: "1000"})
    wait_until(lambda: not remembered(admin, topic), DEADLINE_S, "logs have forgotten producers")
    admin.alter_configs("broker", "", {_EXPIRATION: None})
    return known


def ended_ids(admin: Admin) -> list[str]:
    listed = admin.list_transactions(states=["CompleteCommit", "CompleteAbort", "Empty"])
    return [one.transactional_id for one in listed]


def remembered(admin: Admin, topic: str) -> list[tuple[int, int]]:
    """Return which producers the leaders know that have nothing open: partition, producer id."""
    found = admin.describe_topics([topic])[topic]
    assert isinstance(found, TopicInfo), found
    places = [TopicPartition(topic, index) for index in range(len(found.partitions))]
    known = list[tuple[int, int]]()
    for place, told in admin.describe_producers(places).items():
        if not isinstance(told, list):
            raise told
        known += [
            (place.partition, one.producer_id) for one in told if one.open_since_offset is None
        ]
    return known


def wait_in_sync(admin: Admin, *topics: str) -> None:
    def holds() -> bool:
        return all(
            isinstance(one, TopicInfo) and all(len(each.in_sync) == 3 for each in one.partitions)
            for one in admin.describe_topics(list(topics)).values()
        )

    wait_until(holds, DEADLINE_S, "all are in sync")


def _restart_all(cluster: RunningCluster, admin: Admin, options: dict[str, str]) -> None:
    for node in cluster.nodes.values():
        for name in _FORGETFUL:
            node.options.pop(name, None)
        node.options.update(options)
        node.restart()
        wait_in_sync(admin, *admin.list_topics(), "__transaction_state")
