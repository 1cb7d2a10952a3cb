"""Counts what is copied and what becomes of in-sync sets, on the way to who does it.

Not here: the numbers (`metrics.py`), the streams (`ottla.replication`), the in-sync sets
(`isr.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.node.isr import IsrListener
from ottla.node.metrics import ReplicationMetrics
from ottla.node.stream_counts import StreamCount
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from ottla.proto.replication import Buffer
from ottla.replication.feeding import Feeder
from ottla.replication.leader import IsrProposal
from ottla.replication.pulling import Puller
from ottla.replication.replica import Replica


class IsrCounts(IsrListener):
    """Counts in-sync sets that were won, lost and refused, and passes everything on."""

    def __init__(self, counts: ReplicationMetrics, then: IsrListener | None = None) -> None:
        self._counts: Final = counts
        self._then: Final = IsrListener() if then is None else then
        # Who was in sync when the set was proposed that is under way.
        self._before: Final[dict[Replica, tuple[BrokerId, ...]]] = {}

    def isr_proposed(self, replica: Replica, proposal: IsrProposal) -> None:
        if replica.leader is not None:
            self._before[replica] = replica.leader.view.isr
        self._then.isr_proposed(replica, proposal)

    def isr_answered(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        before = self._before.pop(replica, proposal.members)
        self._counts.isr_answered(before, proposal.members, code)
        self._then.isr_answered(replica, proposal, code)


class CountedPuller(Puller):
    """Counts what comes from a leader."""

    def __init__(
        self,
        counts: ReplicationMetrics,
        leader: BrokerId,
        *,
        broker_epoch: Callable[[], int],
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        stream: StreamCount | None = None,
    ) -> None:
        super().__init__(leader, broker_epoch=broker_epoch, now_ms=now_ms, wake=wake)
        self._counts: Final = counts
        self._stream: Final = StreamCount() if stream is None else stream

    def take(self, frame: Buffer) -> None:
        self._counts.bytes_in += len(frame)
        self._stream.heard_ms = self._now_ms()
        super().take(frame)


class CountedFeeder(Feeder):
    """Counts what goes to a follower."""

    def __init__(
        self,
        counts: ReplicationMetrics,
        follower: BrokerId,
        find: Callable[[bytes, int], Replica | None],
        *,
        bytes_max: Callable[[], int],
        wait_ms: Callable[[], int],
        now_ms: Callable[[], int],
        wake: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        super().__init__(
            follower,
            find,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
            now_ms=now_ms,
            wake=wake,
            look=look,
        )
        self._counts: Final = counts

    def next_answer(self) -> list[Buffer] | None:
        pieces = super().next_answer()
        if pieces is not None:
            self._counts.bytes_out += sum(map(len, pieces))
        return pieces
