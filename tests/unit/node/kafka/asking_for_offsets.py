"""How tests ask for offsets, in few words."""

from __future__ import annotations

from typing import Final

from ottla.proto.kafka.apis import LIST_OFFSETS
from tests.builders import produced
from tests.unit.node.kafka.desk import Desk

# The answer of a log that has no such record.
NOTHING: Final = (0, -1, -1, -1)


def write_five(desk: Desk, topic: str) -> None:
    desk.write(topic, *(produced(b"v", timestamps=[1000 * n]) for n in range(1, 6)))


def listed(
    desk: Desk,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "t",
    index: int = 0,
    epoch: int = -1,
    replica_id: int = -1,
    isolation: int = 0,
) -> tuple[int, int, int, int]:
    """Ask for one offset; return error, timestamp, offset, leader epoch."""
    wanted = {"partition_index": index, "current_leader_epoch": epoch, "timestamp": timestamp}
    answer = desk.ask(
        LIST_OFFSETS,
        version,
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[{"name": topic, "partitions": [wanted]}],
        timeout=1000,
    )
    (told,) = answer["topics"]
    (one,) = told["partitions"]
    assert (told["name"], one["partition_index"]) == (topic, index)
    return one["error_code"], one["timestamp"], one["offset"], one.get("leader_epoch", -1)
