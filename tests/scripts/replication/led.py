"""A leader's core with a clock, and short words for what happens to it."""

from __future__ import annotations

from dataclasses import replace

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId, LeaderEpoch, Offset
from ottla.replication.epochs import EpochHistory, EpochStart
from ottla.replication.leader import IsrProposal, LeaderCore, PartitionView
from ottla.replication.progress import FetchClaim, Verdict

LAG_MS = 1000
EPOCH = 5


def view(*isr: int, min_isr: int = 2, partition_epoch: int = 1, **changes: object) -> PartitionView:
    """Return what the metadata says: brokers 1, 2 and 3, all active, broker 1 leads."""
    known = PartitionView(
        leader_epoch=LeaderEpoch(EPOCH),
        partition_epoch=partition_epoch,
        replicas=(BrokerId(1), BrokerId(2), BrokerId(3)),
        isr=tuple(map(BrokerId, isr)),
        min_isr=min_isr,
        broker_epochs={BrokerId(1): 11, BrokerId(2): 12, BrokerId(3): 13},
        active=frozenset({BrokerId(1), BrokerId(2), BrokerId(3)}),
    )
    return replace(known, **changes)  # type: ignore[arg-type]


class Led:
    """A core with a clock, and short words for what happens to it."""

    def __init__(self, seen: PartitionView, *, end: int = 10, high_watermark: int = 10) -> None:
        self.now_ms = 0
        self.view = seen
        self.epochs = EpochHistory([EpochStart(LeaderEpoch(2), Offset(0))])
        if end:
            self.epochs.assign(LeaderEpoch(EPOCH), Offset(end))
        self.core = LeaderCore(
            BrokerId(1),
            seen,
            epochs=self.epochs,
            end_offset=Offset(end),
            held_offset=Offset(end),
            high_watermark=Offset(high_watermark),
            lag_ms=LAG_MS,
            now_ms=0,
        )

    @property
    def high_watermark(self) -> int:
        return self.core.high_watermark

    def append(self, end: int, *, held: int | None = None) -> None:
        self.core.progressed(Offset(end), Offset(end if held is None else held), self.now_ms)

    def fetch(
        self,
        replica: int,
        held: int,
        *,
        fetch_offset: int | None = None,
        broker_epoch: int | None = None,
        last_epoch: int | None = None,
        leader_epoch: int = EPOCH,
        is_synced: bool = True,
        start: int = 0,
    ) -> Verdict:
        at = held if fetch_offset is None else fetch_offset
        last = self.epochs.epoch_at(Offset(at - 1)) if last_epoch is None else last_epoch
        claim = FetchClaim(
            LeaderEpoch(leader_epoch), Offset(at), Offset(held), LeaderEpoch(last), is_synced
        )
        life = 10 + replica if broker_epoch is None else broker_epoch
        return self.core.fetched(BrokerId(replica), life, claim, Offset(start), self.now_ms)

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.core.check_isr(self.now_ms)

    def learn(self, *isr: int, **changes: object) -> None:
        """The metadata has a new in-sync set, or other changes of this partition epoch's."""
        epoch = self.view.partition_epoch + 1
        changed = replace(self.view, isr=tuple(map(BrokerId, isr)), partition_epoch=epoch)
        self.view = replace(changed, **changes)  # type: ignore[arg-type]
        self.core.adopt(self.view, self.now_ms)

    def told(self, **changes: object) -> None:
        """The metadata has changed around this partition: its brokers, its topic's options."""
        self.view = replace(self.view, **changes)  # type: ignore[arg-type]
        self.core.adopt(self.view, self.now_ms)

    def send(self) -> IsrProposal:
        proposal = self.core.unsent
        assert proposal is not None
        self.core.sent()
        return proposal

    def answer(self, proposal: IsrProposal, code: ErrorCode) -> None:
        self.core.answered(proposal, code, self.now_ms)


def proposed(led: Led) -> tuple[int, ...] | None:
    return None if led.core.proposed is None else led.core.proposed.members
