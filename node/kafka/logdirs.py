"""DescribeLogDirs: how much lies in the data directory, and how much would still fit.

Not here: what a partition's files are (`replication/log`).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.node.kafka.requests import Request
from ottla.node.logs import logger
from ottla.proto.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.node.broker import Broker

_log = logger("kafka.logdirs")

# How far the end is behind the high watermark that is known here: never, also on followers (Kafka
# asks the same, and answers the same).
_NO_LAG: Final = 0
_UNKNOWN: Final = -1


async def describe_log_dirs(broker: Broker, request: Request) -> dict[str, Any]:
    asked = request.body.topics
    wanted = None if asked is None else {(one.topic, n) for one in asked for n in one.partitions}
    return {"throttle_time": 0, "error_code": 0, "results": [_directory(broker, wanted)]}


def _directory(broker: Broker, wanted: set[tuple[str, int]] | None) -> dict[str, Any]:
    path = Path(broker.data_dir).absolute()
    answer: dict[str, Any] = {
        "error_code": 0,
        "log_dir": str(path),
        "topics": [],
        "total_bytes": _UNKNOWN,
        "usable_bytes": _UNKNOWN,
        "is_cordoned": False,
    }
    if broker.replicas.manager.offline is not None:
        return {**answer, "error_code": int(ErrorCode.KAFKA_STORAGE_ERROR)}
    try:
        usage = shutil.disk_usage(path)
    except OSError as error:
        _log.error("disk_usage_failed", path=str(path), error=str(error))
        return {**answer, "error_code": int(ErrorCode.KAFKA_STORAGE_ERROR)}
    topics = _topics(broker, wanted)
    return {**answer, "topics": topics, "total_bytes": usage.total, "usable_bytes": usage.free}


def _topics(broker: Broker, wanted: set[tuple[str, int]] | None) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for replica in broker.replicas:
        name, index = replica.partition.topic, replica.partition.partition
        if wanted is None or (name, index) in wanted:
            topics.setdefault(name, []).append(
                {
                    "partition_index": index,
                    "partition_size": replica.log.size_bytes,
                    "offset_lag": _NO_LAG,
                    "is_future_key": False,
                }
            )
    return [{"name": name, "partitions": partitions} for name, partitions in topics.items()]
