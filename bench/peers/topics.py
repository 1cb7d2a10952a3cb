"""Topics of peers that speak the Kafka protocol, made and removed alike, with librdkafka.

Who leads the quorum is asked with our own connection: librdkafka does not tell.
Not here: streams of NATS (`nats.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from bench.peers.peer import NODES, PeerError, wait_until
from ottla.clients.connection import Connection
from ottla.proto.errors import OttlaError
from ottla.proto.kafka.apis import DESCRIBE_QUORUM

_ASK_S: Final = 2.0
_DO_S_MAX: Final = 120.0
_SETTLE_S_MAX: Final = 120.0
QUICK: Final = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}


def admin_to(bootstrap: str) -> AdminClient:
    # What a node that is not there yet costs is seen by its caller, and not worth a line each.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **QUICK})


def brokers_known(bootstrap: str) -> int:
    """Return how many brokers every node knows; 0 if one of them does not answer."""
    counts = list[int]()
    for address in bootstrap.split(","):
        try:
            counts.append(len(admin_to(address).list_topics(timeout=_ASK_S).brokers))
        except KafkaException:
            return 0
    return min(counts)


def spread(partitions: int, first: int = 1) -> list[list[int]]:
    """Return who holds each partition: leaders go round the nodes, beginning with one."""
    count = len(NODES)
    return [
        [(first - 1 + index + copy) % count + 1 for copy in range(count)]
        for index in range(partitions)
    ]


def create(
    bootstrap: str, topic: str, assignment: Sequence[Sequence[int]], configs: Mapping[str, str]
) -> float:
    """Make a topic, wait until it can be used, and return how long that took.

    Every copy is in sync, and every leader says where its partition ends: a controller may list
    copies as in sync that no broker has made yet.
    """
    admin = admin_to(bootstrap)
    start = time.perf_counter()
    row = NewTopic(
        topic,
        num_partitions=len(assignment),
        replica_assignment=[list(one) for one in assignment],
        config=dict(configs),
    )
    admin.create_topics([row], operation_timeout=_DO_S_MAX, request_timeout=_DO_S_MAX)[
        topic
    ].result(_DO_S_MAX)
    _wait_in_sync(admin, topic, len(assignment))
    wait_until(lambda: is_served(admin, topic, len(assignment)), _SETTLE_S_MAX, f"{topic} served")
    return time.perf_counter() - start


def wait_in_sync(bootstrap: str, topic: str, partitions: int) -> None:
    """Wait until all copies of all partitions are in sync."""
    _wait_in_sync(admin_to(bootstrap), topic, partitions)


def _wait_in_sync(admin: AdminClient, topic: str, partitions: int) -> None:
    wanted = partitions * len(NODES)
    wait_until(
        lambda: in_sync(admin, topic, partitions) == wanted, _SETTLE_S_MAX, f"{topic} in sync"
    )


def require_configs(bootstrap: str, topic: str, wanted: Mapping[str, str]) -> None:
    """Raise `PeerError` unless a topic has what it was made with: a promise that is not kept by
    the one who is compared would make the comparison void.
    """
    resource = ConfigResource(ResourceType.TOPIC, topic)
    # The client has a name: one that nobody holds ends, and with it what was asked.
    admin = admin_to(bootstrap)
    told = dict[str, str]()

    def is_told() -> bool:
        """Whether the broker that was asked has heard of the topic: any may be asked, and some
        hear of it later than the one that was asked who leads it.
        """
        found = admin.describe_configs([resource], request_timeout=_DO_S_MAX)[resource]
        try:
            told.update((name, entry.value) for name, entry in found.result(_DO_S_MAX).items())
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    wait_until(is_told, _SETTLE_S_MAX, f"{topic} known to the broker that tells its settings")
    wrong = {name: told.get(name) for name, value in wanted.items() if told.get(name) != value}
    if wrong:
        raise PeerError(f"{topic} has {wrong}, and not {dict(wanted)}")


def in_sync(admin: AdminClient, topic: str, partitions: int) -> int:
    """Return how many copies of all partitions are in sync; 0 if one has no leader."""
    try:
        found = admin.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
    except KafkaException:
        return 0
    led = [one for one in found.values() if one.leader >= 0 and one.error is None]
    return sum(len(one.isrs) for one in led) if len(led) == partitions else 0


def is_served(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Return whether the leader of each partition says where it ends."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # confluent's
    wanted = {TopicPartition(topic, at): latest for at in range(partitions)}
    try:
        for found in admin.list_offsets(wanted, request_timeout=_DO_S_MAX).values():
            found.result(_DO_S_MAX)
    except KafkaException:
        return False
    return True


def leaders(admin: AdminClient, topics: Sequence[str]) -> list[int]:
    """Return the leader of every partition of these topics; -1: none."""
    found = list[int]()
    for topic in topics:
        try:
            parts = admin.list_topics(topic, timeout=_ASK_S).topics[topic].partitions
        except KafkaException:
            return []
        found += [one.leader for one in parts.values()]
    return found


def delete(bootstrap: str, topic: str) -> None:
    # The client has a name: one that nobody holds ends, and with it what was asked.
    admin = admin_to(bootstrap)
    admin.delete_topics([topic], operation_timeout=_DO_S_MAX)[topic].result(_DO_S_MAX)


def quorum_leader(bootstrap: str) -> int:
    """Return the active controller."""

    async def asked(address: str) -> int:
        host, _, port = address.rpartition(":")
        async with await Connection.open(host, int(port), request_timeout_s=_ASK_S) as line:
            part = [{"partition_index": 0}]
            fields: dict[str, Any] = {
                "topics": [{"topic_name": "__cluster_metadata", "partitions": part}]
            }
            (topic,) = (await line.call(DESCRIBE_QUORUM, fields)).topics
            return int(topic.partitions[0].leader_id)

    for address in bootstrap.split(","):
        try:
            found = asyncio.run(asked(address))
        except (OttlaError, OSError, TimeoutError):
            continue
        if found > 0:
            return found
    raise PeerError("no node says who leads the quorum")
