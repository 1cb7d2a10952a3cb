"""The follower's core over real logs: what a shell has to do for it, and that logs become equal.

As in `test_follower_properties.py` anybody may lead with whatever it has, so logs part badly; here
they have segments, indexes, and batches of several records.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import NO_EPOCH, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd
from ottla.replication.follower import Cut, FollowerCore, Reset
from ottla.replication.log.log import Log
from ottla.replication.log.place import create_log
from ottla.replication.log.surgery import delete_records, reset, truncate
from ottla.replication.progress import FetchClaim, judge_fetch
from tests.builders import NOW_MS, OneLog, append, batches_of, committed

# Each epoch: who leads, how many records each of its batches has, and how many fetches each of two
# followers makes.
EPOCHS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.lists(st.integers(1, 4), max_size=4),
        st.tuples(*[st.integers(0, 6)] * 3),
    ),
    min_size=1,
    max_size=7,
)


def new_log() -> Log:
    return create_log(OneLog().place)


class Following:
    """A log, its core, and the leader's log; every method is what a shell does."""

    def __init__(self, leader: Log, log: Log, epoch: int) -> None:
        self.leader, self.log, self.epoch = leader, log, LeaderEpoch(epoch)
        self.core = FollowerCore(
            epochs=log.epochs,
            start_offset=log.start_offset,
            end_offset=log.end_offset,
            held_offset=log.held_offset,
            high_watermark=log.high_watermark,
        )
        self.core.follow(self.epoch, is_led=True, last_unclean_epoch=NO_EPOCH)

    def step(self) -> bool:
        """Return whether anything was done."""
        step = self.core.next_step(0)
        assert step is not None
        if isinstance(step, FetchClaim):
            return self._fetch(step)
        if isinstance(step, Cut):
            truncate(self.log, step.offset, below_high_watermark=step.below_high_watermark)
        elif isinstance(step, Reset):
            reset(self.log, step.offset)
        self.core.was_cut(self.log.start_offset, self.log.end_offset, self.log.held_offset)
        return True

    def _fetch(self, claim: FetchClaim) -> bool:
        leader, log = self.leader, self.log
        verdict = judge_fetch(
            claim, leader.epochs, self.epoch, leader.start_offset, leader.end_offset
        )
        if isinstance(verdict, EpochEnd):
            self.core.diverged(claim, verdict, 0)
            return True
        if verdict is not None:
            assert verdict is ErrorCode.OFFSET_OUT_OF_RANGE
            bounds = {"leader_start": leader.start_offset, "leader_end": leader.end_offset}
            self.core.refused(claim, verdict, 0, **bounds)
            return True
        found = leader.read(claim.fetch_offset, bytes_max=1)
        if found is not None:
            log.append_as_follower(found.read(), now_ms=NOW_MS)
        self.core.served(
            claim,
            log.end_offset,
            log.held_offset,
            leader_high_watermark=leader.high_watermark,
            leader_start=leader.start_offset,
        )
        log.sync()
        self.core.progressed(log.start_offset, log.end_offset, log.held_offset)
        log.advance_high_watermark(self.core.high_watermark)
        return found is not None

    def catch_up(self) -> None:
        for _ in range(1000):
            if not self.step():
                return
        raise AssertionError("it never catches up")


@settings(max_examples=40, deadline=None)
@given(EPOCHS)
def test_rule_42_real_logs_become_equal(
    epochs: list[tuple[int, list[int], tuple[int, ...]]],
) -> None:
    logs = [new_log() for _ in range(3)]
    epoch = number = 0
    for epoch, (number, batches, shares) in enumerate(epochs):
        leader = logs[number]
        leader.assign_epoch(LeaderEpoch(epoch))
        for turn, count in enumerate(batches):
            append(leader, *[f"{epoch}.{turn}.{one}".encode() for one in range(count)])
        leader.sync()
        for log, share in zip(logs, shares, strict=True):
            if log is not leader:
                following = Following(leader, log, epoch)
                for _ in range(share):
                    following.step()
                # A leader has no step of its own under way: this one is carried out or forgotten.
    for log in logs:
        if log is not logs[number]:
            Following(logs[number], log, epoch).catch_up()
            assert batches_of(log) == batches_of(logs[number])
            assert log.epochs.latest <= epoch


def test_rule_46_a_follower_that_was_away_for_too_long_begins_anew() -> None:
    leader, log = new_log(), new_log()
    leader.assign_epoch(LeaderEpoch(0))
    append(leader, b"a", b"b")
    following = Following(leader, log, 0)
    following.catch_up()
    for value in (b"c", b"d", b"e"):
        append(leader, value)
    committed(leader)
    delete_records(leader, Offset(4), now_ms=NOW_MS)
    following.catch_up()
    assert (log.start_offset, log.end_offset, log.high_watermark) == (4, 5, 5)
    assert batches_of(log) == batches_of(leader)
