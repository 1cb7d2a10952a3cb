"""What a topic with several replicas cannot do yet: followers do not copy records.

Such a topic is made, led and failed over, and refuses writes. This file goes when followers copy,
and what imports it loses a line.

Not here: the refusal itself, which is the broker's.
"""

from __future__ import annotations

from typing import Final

from ottla.clients.cli.cluster import Cluster
from ottla.proto.errors import OttlaError
from ottla.proto.options.option import shown_name

NOTE: Final = (
    "note: followers do not copy records yet, so this topic refuses writes; --replication-factor 1 "
    "makes one that takes them."
)


class NoWritesError(OttlaError):
    """A topic has more replicas than take writes in this version."""

    def __init__(self, topic: str, replica_count: int) -> None:
        super().__init__(
            f"topic {shown_name(topic)} has {replica_count} replicas, and this version refuses "
            "writes to it (NOT_ENOUGH_REPLICAS): followers do not copy records yet. `ottla topics "
            "create` with --replication-factor 1 makes one that takes them."
        )


async def refuses_writes(cluster: Cluster, replica_count: int) -> bool:
    """Return whether so many replicas are too many; Kafka's followers do copy."""
    return replica_count > 1 and await cluster.is_ours()
