"""Logs that parted find each other again, whatever their history (rules 40 to 43, KIP-279).

Any replica may lead in any epoch here, with however much it has: nothing is committed, so logs part
as badly as logs can. The naive answer to "where?" is to compare them record by record.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto.ids import FIRST_OFFSET, NO_EPOCH, LeaderEpoch, Offset
from ottla.replication.epochs import EpochEnd
from ottla.replication.follower import FollowerCore
from ottla.replication.progress import FetchClaim, judge_fetch
from tests.scripts.replication.parts import Copy, Record

# Each epoch: who leads, whether it takes note of its epoch before it writes, how many records it
# writes, and how many of them each of three followers gets (−1: it does not hear of this leader).
EPOCHS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.booleans(),
        st.integers(0, 4),
        st.tuples(*[st.integers(-1, 6)] * 4),
    ),
    min_size=1,
    max_size=9,
)


class Pair:
    """A leader in an epoch, and one who follows it step by step."""

    def __init__(self, leader: Copy, copy: Copy, epoch: int) -> None:
        self.leader, self.copy, self.epoch = leader, copy, LeaderEpoch(epoch)
        self.lowest = copy.end
        self.rounds = 0
        self.core = FollowerCore(
            epochs=copy.epochs,
            start_offset=FIRST_OFFSET,
            end_offset=copy.end,
            held_offset=copy.end,
            high_watermark=FIRST_OFFSET,
        )
        self.core.follow(self.epoch, is_led=True, last_unclean_epoch=NO_EPOCH)

    def follow(self, limit: int) -> None:
        """Fetch until `limit` records came, or none are left."""
        while self.step(limit) and limit > 0:
            limit -= 1

    def step(self, limit: int) -> bool:
        """Return whether a record was appended, after as many cuts as it takes."""
        while True:
            step = self.core.next_step(0)
            assert step is not None
            if not isinstance(step, FetchClaim):
                before = (self.copy.end, self.copy.epochs.latest)
                self.copy.cut(step.offset)
                assert (self.copy.end, self.copy.epochs.latest) < before, "F4: every cut helps"
                self.core.was_cut(FIRST_OFFSET, self.copy.end, self.copy.end)
                self.lowest = min(self.lowest, self.copy.end)
                continue
            leader = self.leader
            verdict = judge_fetch(step, leader.epochs, self.epoch, FIRST_OFFSET, leader.end)
            if isinstance(verdict, EpochEnd):
                self.rounds += 1
                self.core.diverged(step, verdict, 0)
                continue
            assert verdict is None
            assert leader.log[: self.copy.end] == self.copy.log, "P1: served, and not the same"
            found = leader.log[self.copy.end : self.copy.end + min(limit, 1)]
            for record in found:
                self.copy.take(record)
            self.core.served(
                step,
                self.copy.end,
                self.copy.end,
                leader_high_watermark=FIRST_OFFSET,
                leader_start=FIRST_OFFSET,
            )
            return bool(found)


def common(first: list[Record], second: list[Record]) -> int:
    """Return how many records two logs share, the naive way."""
    pairs = zip(first, second, strict=False)
    differ = (n for n, (one, other) in enumerate(pairs) if one != other)
    return next(differ, min(len(first), len(second)))


def played(
    epochs: list[tuple[int, bool, int, tuple[int, ...]]],
) -> tuple[list[Copy], int, int]:
    """Return four copies after these epochs, who leads last, and in which epoch."""
    copies = [Copy(number) for number in range(4)]
    epoch = number = 0
    for epoch, (number, takes_note, count, shares) in enumerate(epochs):
        leader = copies[number]
        if takes_note or count:
            leader.epochs.assign(LeaderEpoch(epoch), leader.end)
        for turn in range(count):
            leader.take(Record(LeaderEpoch(epoch), f"{epoch}.{turn}"))
        for copy, share in zip(copies, shares, strict=True):
            if copy is not leader and share >= 0:
                Pair(leader, copy, epoch).follow(share)
    return copies, number, epoch


@settings(max_examples=150, deadline=None)
@given(EPOCHS)
def test_rule_42_every_follower_goes_back_to_where_the_logs_part_and_no_further(
    epochs: list[tuple[int, bool, int, tuple[int, ...]]],
) -> None:
    copies, number, epoch = played(epochs)
    leader = copies[number]
    for copy in copies:
        if copy is leader:
            continue
        shared = common(leader.log, copy.log)
        pair = Pair(leader, copy, epoch)
        pair.follow(len(leader.log) + 1)
        assert copy.log == leader.log
        assert pair.lowest == shared
        assert pair.rounds <= len(epochs) + 1


@settings(max_examples=150, deadline=None)
@given(EPOCHS)
def test_rule_41_a_leader_serves_nobody_whose_log_is_another(
    epochs: list[tuple[int, bool, int, tuple[int, ...]]],
) -> None:
    copies, number, epoch = played(epochs)
    leader = copies[number]
    for copy in copies:
        claim = FetchClaim(LeaderEpoch(epoch), copy.end, copy.end, copy.epochs.latest)
        verdict = judge_fetch(claim, leader.epochs, LeaderEpoch(epoch), Offset(0), leader.end)
        agrees = leader.log[: copy.end] == copy.log
        assert agrees or isinstance(verdict, EpochEnd)
        # A log that agrees may hear of an epoch in which nothing was written, and lose only that.
        if agrees and isinstance(verdict, EpochEnd):
            assert copy.epochs.entries[-1].start_offset == copy.end
