"""DescribeLogDirs: what lies where on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.proto.kafka.apis import DESCRIBE_LOG_DIRS
from tests.interop.differential.case import Case, one
from tests.interop.differential.stage import EMPTY, FILLED


def _sizes(name: str, *topics: tuple[str, Sequence[int]]) -> Case:
    told = [{"topic": topic, "partitions": list(partitions)} for topic, partitions in topics]
    return one(name, DESCRIBE_LOG_DIRS, lambda _: {"topics": told})


CLUSTER_CASES: Final[tuple[Case, ...]] = (
    _sizes("two topics", (FILLED, (0, 1)), (EMPTY, (0,))),
    _sizes("a known and an unknown partition", (FILLED, (0, 9))),
    _sizes("partition -1", (FILLED, (-1,))),
    _sizes("a partition twice", (FILLED, (0, 0))),
    _sizes("an unknown topic", ("missing", (0,))),
    _sizes("a name that cannot be", ("../../etc/x", (0,))),
    _sizes("no partitions", (FILLED, ())),
    _sizes("no topics"),
    one("all topics", DESCRIBE_LOG_DIRS, lambda _: {"topics": None}, about_all_topics=True),
)
