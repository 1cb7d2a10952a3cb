"""One partition on this broker: its log, the core that leads or follows, and who waits for it.

A post office counter: letters are taken in at once, stamped when the van has really left, and
whoever waits for news is called, not made to ask again.

A replica leads or follows, as the metadata says, and then holds the core of a leader or of a
follower, never both. Everything that happens to it goes through here: it is told to the core first,
then the log obeys what the core has decided, and last come those who wait.

V1  a record is visible to consumers only below the high watermark
V2  with fsync nothing counts as held before it is synced (rule 47)
V3  who waits is told exactly once: the offset was reached, or why it never will be
V4  who waits, waits for the leader in one epoch: another epoch ends the waiting (rule 28)
V5  the high watermark of the log is that of the core, and none but the core moves it
V6  who has failed as a follower never leads: it may lack what is committed (rule 44)

Not here: what a request looks like, which partitions this broker has (`replicas.py`), and the
streams between brokers (`pulling.py`, `feeding.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.proto.errors import ErrorCode, RequestError, StorageError, ensure
from ottla.proto.ids import FIRST_OFFSET, NO_EPOCH, BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.replication.copying import Sent, copy_into, follow_start
from ottla.replication.epochs import EpochEnd
from ottla.replication.follower import Cut, FollowerCore, FollowerState, Reset, Step
from ottla.replication.holding import held_in
from ottla.replication.leader import IsrProposal, LeaderCore, PartitionView
from ottla.replication.listeners import Feed, HeldWaiter, PullListener, ReadWaiter
from ottla.replication.log.append import Appended, Batch
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import reset, truncate
from ottla.replication.log.tail import Tail
from ottla.replication.progress import FetchClaim, Verdict
from ottla.replication.storage.failpoints import hit
from ottla.replication.surroundings import Surroundings
from ottla.replication.waiters import Waiters


class Replica:
    """One partition, led or followed here. Belongs to one thread; ends with `close`."""

    __slots__ = (
        "_around",
        "_tail",
        "_waiters",
        "cleaning",
        "failure",
        "feeds",
        "follower",
        "leader",
        "leader_epoch",
        "log",
        "partition",
        "puller",
        "readers",
        "source",
        "syncs",
    )

    def __init__(self, partition: TopicPartition, log: Log, around: Surroundings) -> None:
        self.partition: Final = partition
        self.log: Final = log
        self._around: Final = around
        self.leader: LeaderCore | None = None
        self.follower: FollowerCore | None = None
        self.leader_epoch = NO_EPOCH
        # Whom it follows; None while it leads, or nobody does.
        self.source: BrokerId | None = None
        # Why it can neither lead nor follow any more (V6).
        self.failure: str | None = None
        self.syncs: Final = around.make_syncs(log, self._on_synced, self._fail_waiting)
        # Held while the log is compacted: nothing is cut, and the log is not removed meanwhile.
        self.cleaning: Final = asyncio.Lock()
        # Fetches of clients that wait for the high watermark to move.
        self.readers: Final[set[ReadWaiter]] = set()
        # Followers, while it leads; and who fetches, while it follows.
        self.feeds: Final[dict[BrokerId, Feed]] = {}
        self.puller: PullListener | None = None
        self._tail: Tail | None = None
        self._waiters: Final = Waiters()
        log.held_by_all = FIRST_OFFSET

    @property
    def topic_id(self) -> bytes:
        return self.log.state.topic_id

    @property
    def is_leader(self) -> bool:
        return self.leader is not None

    @property
    def is_sole(self) -> bool:
        """Whether there is no other replica."""
        return self.leader is not None and len(self.leader.view.replicas) == 1

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits here, or something was written since the last checkpoint."""
        has_more = self.log.end_offset > self.log.state.recovery_point
        return has_more or self._waiters.count > 0 or bool(self.readers)

    @property
    def waiting_count(self) -> int:
        return self._waiters.count

    @property
    def held_offset(self) -> Offset:
        """What counts as held here (V2)."""
        return held_in(self.log, None if self.leader is None else self.leader.view)

    # ── Leading and following ─────────────────────────────────────────────────────────────────

    def lead(self, view: PartitionView) -> None:
        """Lead as the metadata says, or learn of newer metadata in the same epoch."""
        if view.leader_epoch < self.leader_epoch:
            return
        now_ms = self._around.now_ms()
        core = self.leader
        if core is None or core.leader_epoch != view.leader_epoch:
            hit("leader.lead.before")
            self._resign()
            if self.failure is not None:
                self.leader_epoch = view.leader_epoch
                return
            log, self.follower, self.source = self.log, None, None
            log.producers.transactions.forget_admissions()
            core = LeaderCore(
                self._around.me,
                view,
                epochs=log.epochs,
                end_offset=log.end_offset,
                held_offset=held_in(log, view),
                high_watermark=log.high_watermark,
                lag_ms=self._around.lag_ms(),
                now_ms=now_ms,
            )
            self.leader, self.leader_epoch = core, view.leader_epoch
            self._tail = Tail(self._around.tails) if len(view.replicas) > 1 else None
            self._tell_others()
            hit("leader.lead.after")
        else:
            hit("isr.commit.before")
            if view.is_fsync and not core.view.is_fsync:
                # First: the next in-sync set may be this replica alone, with its page cache.
                core.progressed(self.log.end_offset, self.log.synced_offset, now_ms)
            core.adopt(view, now_ms)
            hit("isr.commit.after")
            self._tell_others()
        self.log.held_by_all = core.held_by_all
        if view.is_recovering or not view.is_durable:
            # The controller waits for this leader's word, and not for the next look around.
            core.check_isr(now_ms)
        self._around.events.led(self)
        self.catch_up()
        self._settle()

    def follow(
        self,
        leader_epoch: LeaderEpoch,
        leader: BrokerId | None,
        *,
        last_unclean_epoch: LeaderEpoch = NO_EPOCH,
    ) -> None:
        """Follow another one in this epoch, or wait while nobody leads."""
        if leader_epoch < self.leader_epoch:
            return
        core, log = self.follower, self.log
        if core is not None and leader_epoch == self.leader_epoch:
            return
        self._resign()
        if core is None:
            core = self.follower = FollowerCore(
                epochs=log.epochs,
                start_offset=log.start_offset,
                end_offset=log.end_offset,
                held_offset=log.held_offset,
                high_watermark=log.high_watermark,
                is_fsync=log.settings.fsync,
            )
        self.leader_epoch, self.source, log.held_by_all = leader_epoch, leader, FIRST_OFFSET
        core.follow(leader_epoch, is_led=leader is not None, last_unclean_epoch=last_unclean_epoch)
        self._around.events.followed(self)
        self._tell_others()
        self.catch_up()

    def _resign(self) -> None:
        """Acknowledge nothing any more of what was appended as the leader (V4)."""
        core, self.leader = self.leader, None
        if core is None:
            return
        core.end()
        self._forget_tail()
        sentence = f"This node led {self.partition} in epoch {core.leader_epoch}, and that is over."
        self._fail_waiting(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, sentence))

    def _forget_tail(self) -> None:
        if self._tail is not None:
            self._tail.clear()
            self._tail = None

    def _tell_others(self) -> None:
        for feed in tuple(self.feeds.values()):
            feed.changed()
        self._tell_puller()

    def _tell_puller(self) -> None:
        if self.puller is not None:
            self.puller.changed(self)

    def settings_changed(self) -> None:
        """Obey changed options of the topic: what is held may be less, or more, than before."""
        if self.follower is not None:
            self.follower.is_fsync = self.log.settings.fsync
        if self.log.offline is None:
            self._on_synced(self.log.synced_offset)
            self.catch_up()

    def fail(self, why: str) -> None:
        """Neither lead nor follow from now on; every byte is kept."""
        if self.failure is None:
            self.failure = why
            self._resign()
            self._tell_others()
            self._around.events.failed(self, why)

    # ── The own log ───────────────────────────────────────────────────────────────────────────

    def append(self, batches: Sequence[Batch], *, now_ms: int) -> list[Appended | RequestError]:
        """Return for each batch where it is, or why it was refused; raises `StorageError`.

        `now_ms` is the time of day.
        """
        log, core = self.log, self.leader
        if core is None:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if log.epochs.latest != core.leader_epoch:
            # Only now: a start, or a failover, of thousands of idle partitions writes nothing.
            log.assign_epoch(core.leader_epoch)
        end_offset = log.end_offset
        answers = log.append_all_as_leader(
            batches, epoch=core.leader_epoch, now_ms=now_ms, tail=self._tail
        )
        if log.end_offset != end_offset:
            if self.held_offset < log.end_offset:
                self.syncs.request()
            core.progressed(log.end_offset, self.held_offset, self._around.now_ms())
            for feed in self.feeds.values():
                feed.appended()
            self._settle()
        return answers

    def catch_up(self) -> None:
        """Let what is here and not synced become so, though nobody waits for it.

        After a start that could not sync what it found, or a sync that found no descriptor; and
        take note of what a checkpoint has synced.
        """
        log = self.log
        if log.offline is not None:
            return
        if self.held_offset < log.end_offset:
            self.syncs.request()
        core = self.leader or self.follower
        if core is not None and core.held_offset != self.held_offset:
            self._on_synced(log.synced_offset)

    def _on_synced(self, _offset: Offset) -> None:
        log = self.log
        if self.leader is not None:
            self.leader.progressed(log.end_offset, self.held_offset, self._around.now_ms())
        elif self.follower is not None:
            self.follower.progressed(log.start_offset, log.end_offset, log.held_offset)
            self._tell_puller()
        self._around.events.synced(self)
        self._settle()

    def _settle(self) -> None:
        """Let the log have the core's high watermark, and tell those who waited (V5)."""
        log, core = self.log, self.leader or self.follower
        if log.offline is not None:
            return  # A disk that has failed vouches for nothing any more (rule 48).
        if core is not None and core.high_watermark > log.high_watermark:
            log.advance_high_watermark(core.high_watermark)
            hit("replica.commit")
            if self._tail is not None:
                self._tail.drop_below(core.high_watermark)
            for feed in self.feeds.values():
                feed.committed()
            self.wake_readers()
            self._around.events.committed(self)
        leader = self.leader
        self._waiters.release(leader, self.held_offset)
        if leader is not None and leader.unsent is not None:
            self._around.events.isr_wanted(self)

    # ── Who waits ─────────────────────────────────────────────────────────────────────────────

    def when_held(self, offset: Offset, waiter: HeldWaiter) -> bool:
        """Return True if all below `offset` is held; else tell `waiter` when it is (acks=1)."""
        is_held = self.held_offset >= offset
        if not is_held:
            self._waiters.hold(offset, waiter)
            self.syncs.request()
        return is_held

    def when_committed(
        self, offset: Offset, waiter: HeldWaiter, *, is_patient: bool = False
    ) -> ErrorCode | None:
        """Return what is to be said of all below `offset` (acks=all), NONE: it is committed.

        None: that is not known yet, and `waiter` will be told (rules 27 and 28). A patient one has
        no sync asked for: the last one failed, and another would at once.
        """
        core = self.leader
        if core is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        outcome = core.outcome_of_all(core.leader_epoch, offset)
        if outcome is None:
            self._waiters.commit(offset, waiter)
            if not is_patient:
                self.catch_up()
        return outcome

    def refusal_of_all(self) -> ErrorCode | None:
        """Return why nothing may be appended with acks=all, or None (rule 25)."""
        core = self.leader
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if core is None else core.refusal_of_all()

    def wake_readers(self) -> None:
        for reader in tuple(self.readers):
            reader.woken()

    def _fail_waiting(self, error: StorageError | RequestError) -> None:
        self._waiters.fail(error)
        self.wake_readers()

    # ── Followers ─────────────────────────────────────────────────────────────────────────────

    def fetched(self, follower: BrokerId, broker_epoch: int, claim: FetchClaim) -> Verdict:
        """Return whether to serve a follower's fetch, which is taken note of."""
        core = self.leader
        if core is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.log.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        start_offset = self.log.start_offset
        if claim.fetch_offset < start_offset:
            start_offset = self.readable_from
        verdict = core.fetched(follower, broker_epoch, claim, start_offset, self._around.now_ms())
        self.log.held_by_all = core.held_by_all
        self._settle()
        return verdict

    @property
    def readable_from(self) -> Offset:
        """Where the batch begins that the log starts in: a follower can have it only as a whole."""
        with suppress(StorageError):
            found = self.log.read(self.log.start_offset, bytes_max=1)
            if found is not None:
                return Offset(min(found.first_offset, self.log.start_offset))
        return self.log.start_offset

    def read(self, offset: Offset, wanted: int, bytes_max: int) -> list[bytes]:
        """Return batches from `offset` to the end of the log, for a follower, in pieces; raises
        `StorageError`, and `RequestError` outside of the log.

        The first batch is whole, the last may be cut. What is in memory may be more than wanted.
        """
        log, tail = self.log, self._tail
        if tail is not None and log.offline is None and offset >= log.start_offset:
            lately = tail.read(offset, wanted, bytes_max)
            if lately is not None:
                return lately
        found = log.read(Offset(max(offset, log.start_offset)), bytes_max=wanted)
        if offset < log.start_offset and (found is None or offset != found.first_offset):
            raise RequestError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return [b"" if found is None else found.read()]

    def start_moved(self) -> None:
        """The log starts later than before: followers are told with what is committed."""
        log = self.log
        if self.follower is not None:
            self.follower.progressed(log.start_offset, log.end_offset, log.held_offset)
        for feed in self.feeds.values():
            feed.committed()

    def check_isr(self) -> None:
        """Look who lags for too long (rule 36)."""
        if self.leader is not None:
            self.leader.check_isr(self._around.now_ms())
            self._settle()

    def isr_answered(self, proposal: IsrProposal, code: ErrorCode) -> None:
        """Take note of what became of a proposal (rule 38)."""
        if self.leader is not None:
            self.leader.answered(proposal, code, self._around.now_ms())
            self._settle()

    def heard_ms(self, follower: BrokerId) -> int | None:
        """Return when that broker was known to follow here, in this epoch (rule 13), or None."""
        feed = self.feeds.get(follower)
        return None if feed is None or self.leader is None else feed.heard_ms()

    # ── Following ─────────────────────────────────────────────────────────────────────────────

    def next_step(self) -> Step | None:
        """Return what to do now as a follower, or None: nothing, or not before `resume_at_ms`."""
        core = self.follower
        if core is None or self.failure is not None or self.log.offline is not None:
            return None
        return core.next_step(self._around.now_ms())

    @property
    def resume_at_ms(self) -> int | None:
        """When a follower that pauses goes on; None: it does not pause."""
        core = self.follower
        if core is None or core.state is not FollowerState.FETCHING:
            return None
        return core.resume_at_ms if core.resume_at_ms > self._around.now_ms() else None

    @property
    def may_cut(self) -> bool:
        """Whether nobody else is at work on the log, so that it can be cut at once."""
        return self.log.unsynced.jobs_running == 0 and not self.cleaning.locked()

    def carry_out(self, step: Cut | Reset) -> None:
        """Cut the log as the core wants it; only if it `may_cut`. A failure takes it offline."""
        core, log = self.follower, self.log
        ensure(core is not None and self.may_cut, "nobody else works on a log that is cut")
        assert core is not None
        old_end = log.end_offset
        try:
            if isinstance(step, Reset):
                reset(log, step.offset)
            else:
                truncate(log, step.offset, below_high_watermark=step.below_high_watermark)
        except StorageError:
            # It is offline now, and says so.
            return
        core.was_cut(log.start_offset, log.end_offset, log.held_offset)
        self._around.events.cut(self, old_end, is_reset=isinstance(step, Reset))
        self.catch_up()
        self._settle()
        self._tell_puller()

    def took(self, claim: FetchClaim, sent: Sent) -> None:
        """Append what the leader has sent in answer to a claim (rule 45)."""
        core, log, around = self.follower, self.log, self._around
        if core is None or self.failure is not None or not core.accepts(claim):
            return
        wall_ms = around.wall_ms()
        damage = copy_into(log, core, claim, sent, now_ms=around.now_ms(), wall_ms=wall_ms)
        if damage is not None:
            around.events.corrupted(self, str(damage))
        if log.held_offset < log.end_offset and log.offline is None:
            self.syncs.request()
        self._settle()
        follow_start(log, core, wall_ms=wall_ms)
        self._after_news()

    def diverged(self, claim: FetchClaim, end: EpochEnd) -> None:
        """Take note that the leader's log parts from this one."""
        if self.follower is not None:
            self.follower.diverged(claim, end, self._around.now_ms())
            self._after_news()

    def refused(
        self, claim: FetchClaim, code: ErrorCode, leader_start: Offset, leader_end: Offset
    ) -> None:
        """Take note that the leader does not serve a claim."""
        core, now_ms = self.follower, self._around.now_ms()
        if core is not None:
            core.refused(claim, code, now_ms, leader_start=leader_start, leader_end=leader_end)
            self._after_news()

    def _after_news(self) -> None:
        core = self.follower
        if core is not None and core.state is FollowerState.FAILED:
            self.fail(core.failure)

    # ── The end ───────────────────────────────────────────────────────────────────────────────

    def retire(self, reason: RequestError) -> None:
        """Serve nobody any more: the partition is to be deleted. Who waits is told the reason."""
        self._fail_waiting(reason)
        self._resign()
        self.follower = self.source = None
        self._tell_others()

    async def close(self) -> None:
        """Wait for the sync in flight."""
        await self.syncs.close()
        self._forget_tail()
