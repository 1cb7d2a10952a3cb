"""What a cluster tells of its partitions beyond their metadata: minimum, and who is eligible.

Not here: what that means (`conditions.py`, `verdict.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ottla.clients.cli.cluster import Cluster
from ottla.clients.errors import NoCommonVersionError
from ottla.proto.kafka.apis import DESCRIBE_CONFIGS, DESCRIBE_TOPIC_PARTITIONS
from ottla.proto.options.topic import MIN_INSYNC_REPLICAS

# Kafka's number for topics among the kinds of resources.
_TOPIC_TYPE: Final = 2
_AT_ONCE: Final = 500
_PARTITIONS_AT_ONCE: Final = 2_000
_PAGES_MAX: Final = 10_000


async def min_insync_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, int]:
    """Return min.insync.replicas of topics, as it was set: there may be fewer replicas."""
    found = dict[str, int]()
    for start in range(0, len(topics), _AT_ONCE):
        fields = {
            "resources": [
                {
                    "resource_type": _TOPIC_TYPE,
                    "resource_name": topic,
                    "configuration_keys": [MIN_INSYNC_REPLICAS.name],
                }
                for topic in topics[start : start + _AT_ONCE]
            ],
            "include_synonyms": False,
            "include_documentation": False,
        }
        for result in (await cluster.ask(DESCRIBE_CONFIGS, fields)).results:
            # A topic that was deleted in between is nobody's worry.
            for config in result.configs:
                if config.name == MIN_INSYNC_REPLICAS.name and (config.value or "").isdigit():
                    found[result.resource_name] = int(config.value)
    return found


async def eligible_of(
    cluster: Cluster, topics: Sequence[str]
) -> dict[tuple[str, int], list[int]] | None:
    """Return who is eligible to lead without being in sync, by topic and partition (KIP-966).

    None: the cluster does not tell.
    """
    if not topics:
        # It would tell of all.
        return {}
    found = dict[tuple[str, int], list[int]]()
    cursor: dict[str, Any] | None = None
    for _ in range(_PAGES_MAX):
        fields = {
            "topics": [{"name": topic} for topic in topics],
            "response_partition_limit": _PARTITIONS_AT_ONCE,
            "cursor": cursor,
        }
        try:
            answer = await cluster.ask(DESCRIBE_TOPIC_PARTITIONS, fields)
        except NoCommonVersionError:
            return None
        for topic in answer.topics:
            for one in topic.partitions:
                eligible = one.eligible_leader_replicas or ()
                found[topic.name, one.partition_index] = list(eligible)
        following = answer.next_cursor
        if following is None:
            break
        cursor = {
            "topic_name": following.topic_name,
            "partition_index": following.partition_index,
        }
    return found
