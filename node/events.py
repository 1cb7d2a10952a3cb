"""Where what becomes of replicas is passed on: to the keeper of in-sync sets, to the controller
when one is damaged, to the log and to the trace.

Not here: what each of them makes of it.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.node.logs import logger
from ottla.proto.ids import Offset
from ottla.replication.replica import Replica
from ottla.replication.surroundings import ReplicaEvents

_log = logger("node.replicas")


class NodeEvents(ReplicaEvents):
    """Passes everything on. Who listens is told later: replicas are there before them."""

    def __init__(self) -> None:
        self.trace: ReplicaEvents = ReplicaEvents()
        self.on_isr_wanted: Callable[[Replica], None] = lambda replica: None
        self.on_failed: Callable[[Replica, str], None] = lambda replica, why: None
        # Told when a replica begins or ceases to lead.
        self.on_role: Callable[[Replica], None] = lambda replica: None

    def led(self, replica: Replica) -> None:
        self.trace.led(replica)
        self.on_role(replica)

    def followed(self, replica: Replica) -> None:
        self.trace.followed(replica)
        self.on_role(replica)

    def committed(self, replica: Replica) -> None:
        self.trace.committed(replica)

    def synced(self, replica: Replica) -> None:
        self.trace.synced(replica)

    def cut(self, replica: Replica, old_end: Offset, *, is_reset: bool) -> None:
        end = replica.log.end_offset
        if end < old_end or is_reset:
            _log.info(
                "log_reset" if is_reset else "log_cut",
                partition=str(replica.partition),
                leader_epoch=replica.leader_epoch,
                ended=old_end,
                ends=end,
            )
        self.trace.cut(replica, old_end, is_reset=is_reset)

    def corrupted(self, replica: Replica, why: str) -> None:
        _log.error(
            "copy_is_damaged", partition=str(replica.partition), leader=replica.source, why=why
        )

    def isr_wanted(self, replica: Replica) -> None:
        self.on_isr_wanted(replica)

    def failed(self, replica: Replica, why: str) -> None:
        _log.error("replica_failed", partition=str(replica.partition), why=why)
        self.on_failed(replica, why)
        self.on_role(replica)
        self.trace.failed(replica, why)
