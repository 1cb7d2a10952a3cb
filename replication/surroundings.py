"""What a replica needs of the broker that it lives on, and what it tells that broker.

All of it is handed over, so that the simulator runs the very same replicas on a clock and on disks
of its own.

Not here: the replica itself (`replica.py`), and who listens (`ottla.node`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla.proto.errors import StorageError
from ottla.proto.ids import BrokerId, Offset
from ottla.replication.log.log import Log
from ottla.replication.log.tail import TailBudget

if TYPE_CHECKING:
    from ottla.replication.replica import Replica


class Syncs(Protocol):
    """Makes what a log has appended durable, one sync after another (`log/group_commit.py`)."""

    def request(self) -> None:
        """Let everything appended so far become durable soon."""

    async def close(self) -> None:
        """Wait for the sync in flight."""


class MakeSyncs(Protocol):
    """Gives a log its syncs, and says whom they tell."""

    def __call__(
        self,
        log: Log,
        on_synced: Callable[[Offset], None],
        on_failed: Callable[[StorageError], None],
    ) -> Syncs: ...


class ReplicaEvents:
    """Told what becomes of replicas, at once and on the owner's thread. Here: nobody listens."""

    def led(self, replica: Replica) -> None:
        """It leads, or its metadata is newer."""

    def followed(self, replica: Replica) -> None:
        """It follows, or nobody leads."""

    def committed(self, replica: Replica) -> None:
        """Its high watermark has moved."""

    def synced(self, replica: Replica) -> None:
        """More of its log is durable."""

    def cut(self, replica: Replica, old_end: Offset, *, is_reset: bool) -> None:
        """Its log was cut."""

    def corrupted(self, replica: Replica, why: str) -> None:
        """What its leader has sent is damaged, and was not appended."""

    def isr_wanted(self, replica: Replica) -> None:
        """It has an in-sync set to propose: `replica.leader.unsent`."""

    def failed(self, replica: Replica, why: str) -> None:
        """It must not lead, and does not follow any more: a person has to look at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The broker, as its replicas know it."""

    me: BrokerId
    # Never jumps, and counts from anywhere.
    now_ms: Callable[[], int]
    # Of day, for the age of segments.
    wall_ms: Callable[[], int]
    # replica.lag.time.max.ms
    lag_ms: Callable[[], int]
    make_syncs: MakeSyncs
    events: ReplicaEvents
    # Shared by all that lead.
    tails: TailBudget = field(default_factory=TailBudget)
