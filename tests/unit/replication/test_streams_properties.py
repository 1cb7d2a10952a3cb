"""Streams that break, frames on the way, slow disks, new epochs: at last the logs are equal."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.replica import Replica
from tests.builders import small_settings
from tests.unit.replication.stream import (
    EPOCH,
    FOLLOWER,
    LEADER,
    WAIT_MS,
    Stream,
    bytes_of,
    view,
)

COUNT = 3
INDEXES = st.integers(0, COUNT - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), INDEXES),
        st.tuples(st.just("write"), INDEXES),
        st.tuples(
            st.sampled_from(["ask", "take_ask", "answer", "take_answer", "turn"]), st.just(0)
        ),
        st.tuples(st.sampled_from(["ask", "take_ask", "answer", "take_answer"]), st.just(0)),
        st.tuples(st.sampled_from(["sync_leader", "sync_follower"]), INDEXES),
        st.tuples(st.sampled_from(["lead", "follow", "view", "leave", "join"]), INDEXES),
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 50, 500])),
        st.tuples(st.just("reconnect"), st.just(0)),
    ),
    max_size=60,
)


class Wire(Stream):
    """A stream whose frames lie between the two ends until the test lets them arrive."""

    def __init__(self) -> None:
        super().__init__(COUNT, small_settings())
        self.bytes_max = 400
        self.to_leader = deque[tuple[int, bytes]]()
        self.to_follower = deque[bytes]()
        self.epochs = [int(EPOCH)] * COUNT
        self.partition_epoch = 0
        self.written = 0
        # When the follower said what has come to the leader last.
        self.said_ms = 0

    # ── Steps ─────────────────────────────────────────────────────────────────────────────────

    def step(self, name: str, number: int) -> None:
        getattr(self, f"on_{name}")(number)
        for index in range(COUNT):
            self.check(index)

    def on_write(self, index: int) -> None:
        self.written += 1
        self.write(b"%d" % self.written * 20, index=index)

    def on_ask(self, _: int) -> None:
        for frame in self.puller.next_asks():
            self.to_leader.append((self.clock.now_ms, frame))

    def on_take_ask(self, _: int) -> None:
        if self.to_leader:
            self.said_ms, frame = self.to_leader.popleft()
            self.feeder.take(frame)

    def on_answer(self, _: int) -> None:
        frame = self.sent()
        if frame is not None:
            self.to_follower.append(frame)

    def on_take_answer(self, _: int) -> None:
        if self.to_follower:
            self.puller.take(self.to_follower.popleft())

    def on_turn(self, _: int) -> None:
        for step in (self.on_ask, self.on_take_ask, self.on_answer, self.on_take_answer):
            step(0)

    def on_sync_leader(self, index: int) -> None:
        self.leader.sync(self.led(index))

    def on_sync_follower(self, index: int) -> None:
        self.follower.sync(self.followed(index))

    def on_lead(self, index: int) -> None:
        self.epochs[index] += 1
        self.on_view(index)

    def on_view(self, index: int) -> None:
        self.partition_epoch += 1
        self.led(index).lead(view(self.epochs[index], self.partition_epoch))

    def on_follow(self, index: int) -> None:
        self.followed(index).follow(LeaderEpoch(self.epochs[index]), LEADER)

    def on_leave(self, index: int) -> None:
        self.puller.remove(self.followed(index))

    def on_join(self, index: int) -> None:
        self.puller.add(self.followed(index))

    def on_wait(self, ms: int) -> None:
        self.wait(ms)

    def on_reconnect(self, _: int) -> None:
        self.to_leader.clear()
        self.to_follower.clear()
        self.feeder.close()
        self.feeder = self.make_feeder()
        self.puller.connected()
        self.said_ms = 0

    # ── What always holds ─────────────────────────────────────────────────────────────────────

    def check(self, index: int) -> None:
        led, followed = self.led(index), self.followed(index)
        assert bytes_of(led.log).startswith(bytes_of(followed.log))
        assert followed.log.high_watermark <= led.log.high_watermark
        assert led.log.high_watermark <= min(_synced(led), _synced(followed))
        heard_ms = led.heard_ms(FOLLOWER)
        assert heard_ms is None or heard_ms <= self.said_ms

    def heal(self) -> None:
        self.leader.is_slow = self.follower.is_slow = False
        self.leader.sync()
        self.follower.sync()
        for index in range(COUNT):
            self.on_follow(index)
            self.on_join(index)
        while self.to_leader or self.to_follower:
            self.on_take_ask(0)
            self.on_take_answer(0)
        for _ in range(6):
            self.settle()
            self.wait(WAIT_MS)


def _synced(replica: Replica) -> Offset:
    return replica.log.synced_offset


@settings(max_examples=150)
@given(st.booleans(), st.booleans(), STEPS)
def test_whatever_happens_on_the_way_the_follower_has_a_prefix_and_in_the_end_everything(
    leader_is_slow: bool, follower_is_slow: bool, steps: list[tuple[str, int]]
) -> None:
    wire = Wire()
    wire.leader.is_slow, wire.follower.is_slow = leader_is_slow, follower_is_slow
    for name, number in steps:
        wire.step(name, number)
    wire.heal()
    for index in range(COUNT):
        led, followed = wire.led(index).log, wire.followed(index).log
        assert bytes_of(led) == bytes_of(followed)
        assert led.high_watermark == followed.high_watermark == led.end_offset
        heard_ms = wire.led(index).heard_ms(FOLLOWER)
        assert heard_ms is not None
        assert wire.clock.now_ms - heard_ms <= 2 * WAIT_MS
