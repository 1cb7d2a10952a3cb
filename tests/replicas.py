"""What tests build replicas from: a broker around them, and metadata for them.

`tests/builders.py` has the logs. Not here: streams between brokers; a test that needs followers
plays them with `replica.fetched`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset
from ottla.replication.leader import PartitionView
from ottla.replication.log.group_commit import GroupCommit
from ottla.replication.log.log import Log
from ottla.replication.progress import FetchClaim
from ottla.replication.replica import Replica
from ottla.replication.surroundings import ReplicaEvents, Surroundings
from tests.builders import EPOCH, NOW_MS

ME = BrokerId(1)
LAG_MS = 10_000


def surroundings(
    executor: Executor,
    *,
    me: BrokerId = ME,
    now_ms: Callable[[], int] | None = None,
    events: ReplicaEvents | None = None,
) -> Surroundings:
    """Return a broker whose replicas are synced on this executor."""

    def make_syncs(
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> GroupCommit:
        return GroupCommit(log, executor, on_synced, on_failed=on_failed)

    return Surroundings(
        me=me,
        now_ms=_monotonic_ms if now_ms is None else now_ms,
        wall_ms=lambda: NOW_MS,
        lag_ms=lambda: LAG_MS,
        make_syncs=make_syncs,
        events=ReplicaEvents() if events is None else events,
    )


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def view(*replicas: int, epoch: LeaderEpoch = EPOCH, **changes: Any) -> PartitionView:
    """Return metadata of a partition whose replicas, only this one if none is named, are in sync.

    All brokers are active, and live their first life: their broker epoch is 1.
    """
    brokers = tuple(BrokerId(one) for one in replicas or (ME,))
    fields: dict[str, Any] = {
        "leader_epoch": epoch,
        "partition_epoch": 0,
        "replicas": brokers,
        "isr": brokers,
        "elr": (),
        "min_isr": 1,
        "broker_epochs": dict.fromkeys(brokers, 1),
        "active": frozenset(brokers),
    }
    return PartitionView(**{**fields, **changes})


def catch_up(replica: Replica, *followers: BrokerId, broker_epoch: int) -> None:
    """Play followers that fetch, and hold, all that the leader has."""
    log = replica.log
    end_offset = log.end_offset
    claim = FetchClaim(replica.leader_epoch, end_offset, end_offset, log.epochs.latest, True)
    for follower in followers:
        verdict = replica.fetched(follower, broker_epoch, claim)
        assert verdict is None, verdict


async def all_synced(replica: Replica) -> None:
    """Wait until all that was appended is durable, though nobody may have asked for it."""
    assert isinstance(replica.syncs, GroupCommit)
    await replica.syncs.synced(replica.log.end_offset)


class HeardFeed:
    """A follower of which only this is known: when it was heard. It notes what it is told."""

    def __init__(self, at_ms: int | None = None) -> None:
        self.at_ms = at_ms
        self.committed_count = 0

    def appended(self) -> None: ...

    def committed(self) -> None:
        self.committed_count += 1

    def changed(self) -> None: ...

    def heard_ms(self) -> int | None:
        return self.at_ms
