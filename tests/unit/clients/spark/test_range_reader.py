"""What it means that nothing came in time, with a cluster that is made up."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.errors import UnreachableError
from ottla.clients.spark.errors import ReadLateError
from ottla.clients.spark.options import read_source_options
from ottla.clients.spark.range_reader import RangeReader, _LostError
from ottla.clients.spark.ranges import OffsetRange
from ottla.proto.ids import TopicPartition

WHERE = TopicPartition("t", 0)


class FakeCluster:
    """Says where the log ends for who reads all, and for who reads what is committed."""

    def __init__(self, high: int | None, stable: int = 0, *, has_leader: bool = True) -> None:
        self._ends = (high, stable)
        leader = SimpleNamespace(leader=1, leader_epoch=0) if has_leader else None
        self.metadata = SimpleNamespace(leader_of=lambda topic, partition: leader)

    async def call(self, node_id: int, row: object, fields: dict[str, Any]) -> Any:
        end = self._ends[fields["isolation_level"]]
        if end is None:
            raise UnreachableError("nobody is there.")
        place = SimpleNamespace(
            partition_index=0, error_code=0, offset=end, timestamp=-1, leader_epoch=0
        )
        place.get = lambda name, default=None: getattr(place, name, default)
        return SimpleNamespace(topics=[SimpleNamespace(name="t", partitions=[place])])


def _meaning(cluster: Any) -> Exception:
    options = read_source_options(
        {
            "kafka.bootstrap.servers": "nowhere:1",
            "subscribe": "t",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
        },
        is_stream=False,
    )
    reader = RangeReader(options, OffsetRange(WHERE, 3, 9))
    return asyncio.run(reader._late_or_lost(cluster, 5, "nothing is there"))


def test_what_is_behind_the_end_of_the_log_is_lost() -> None:
    assert isinstance(_meaning(FakeCluster(5)), _LostError)


@pytest.mark.parametrize(
    "cluster",
    [FakeCluster(6, 5), FakeCluster(9, 9), FakeCluster(None), FakeCluster(5, has_leader=False)],
    ids=["an open transaction", "slow", "unreachable", "no leader"],
)
def test_what_may_still_come_is_late_and_not_passed_over(cluster: FakeCluster) -> None:
    assert isinstance(_meaning(cluster), ReadLateError)
