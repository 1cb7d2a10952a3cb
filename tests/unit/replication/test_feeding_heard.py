"""When a follower was surely heard (rule 13), and claims that stand while the metadata changes."""

from __future__ import annotations

from ottla.proto.ids import LeaderEpoch
from ottla.proto.replication import Ask, encode_asks
from ottla.replication.feeding import JUDGE_AGAIN_MS
from tests.builders import NOW_MS, produced
from tests.unit.replication.stream import EPOCH, FOLLOWER, LEADER, WAIT_MS, Stream, view

# Who follows and is not in the in-sync set.
ALONE = (LEADER,)


# ── Rule 13 ───────────────────────────────────────────────────────────────────────────────────


def test_d5_a_first_ask_proves_nothing_and_the_next_one_dates_from_the_first_answer() -> None:
    stream = Stream()
    stream.ask()
    assert stream.led().heard_ms(FOLLOWER) is None
    sent_ms = stream.clock.now_ms
    frame = stream.sent()
    assert frame is not None
    stream.wait(70)
    stream.puller.take(frame)
    stream.wait(30)
    stream.ask()
    assert stream.led().heard_ms(FOLLOWER) == sent_ms


def test_d5_an_ask_that_lay_in_a_buffer_is_as_old_as_the_answer_it_follows() -> None:
    stream = Stream()
    stream.settle()
    heard_ms = stream.led().heard_ms(FOLLOWER)
    assert heard_ms == stream.clock.now_ms
    stream.wait(WAIT_MS)
    stream.answer()
    sent_ms = stream.clock.now_ms
    (late,) = stream.puller.next_asks()
    stream.wait(60_000)
    assert stream.led().heard_ms(FOLLOWER) == heard_ms
    stream.feeder.take(late)
    assert stream.led().heard_ms(FOLLOWER) == sent_ms


def test_d5_idle_partitions_are_heard_with_every_ask_without_being_named() -> None:
    stream = Stream(3)
    stream.settle()
    for _ in range(5):
        stream.wait(WAIT_MS)
        assert stream.answer().parts == []
        assert stream.ask().claims == []
        heard = [stream.led(index).heard_ms(FOLLOWER) for index in range(3)]
        assert heard == [stream.clock.now_ms] * 3


def test_d5_only_the_last_frame_of_an_ask_proves_anything() -> None:
    stream = Stream()
    stream.settle()
    heard_ms = stream.led().heard_ms(FOLLOWER)
    stream.wait(WAIT_MS)
    number = stream.answer().number
    # Another frame is still to come, and may say that the partition is not followed any more.
    first = Ask(stream.broker_epoch, number, is_fetch=False, claims=[], is_last=False)
    for frame in encode_asks(first):
        stream.feeder.take(frame)
    assert stream.led().heard_ms(FOLLOWER) == heard_ms


def test_who_is_refused_or_forgotten_or_follows_in_another_epoch_was_not_heard() -> None:
    stream = Stream(3)
    stream.settle()
    stream.puller.remove(stream.followed(0))
    stream.followed(1).follow(LeaderEpoch(EPOCH + 1), LEADER)
    stream.led(2).lead(view(EPOCH + 1, 1))
    stream.asks()
    assert [stream.led(index).heard_ms(FOLLOWER) for index in range(3)] == [None] * 3


def test_who_claims_in_the_new_epoch_is_heard_again() -> None:
    stream = Stream()
    stream.settle()
    stream.led().lead(view(EPOCH + 1, 1))
    stream.followed().follow(LeaderEpoch(EPOCH + 1), LEADER)
    stream.settle()
    assert stream.led().heard_ms(FOLLOWER) == stream.clock.now_ms


def test_nobody_is_heard_when_the_stream_is_closed() -> None:
    stream = Stream()
    stream.settle()
    stream.feeder.close()
    assert stream.led().heard_ms(FOLLOWER) is None


# ── Claims that stand ─────────────────────────────────────────────────────────────────────────


def proposed(stream: Stream, index: int = 0) -> tuple[int, ...] | None:
    core = stream.led(index).leader
    assert core is not None
    return None if core.proposed is None else core.proposed.members


def test_a_follower_of_an_idle_partition_is_let_in_when_it_is_no_longer_fenced() -> None:
    stream = Stream()
    stream.led().lead(view(EPOCH, 1, isr=ALONE, active=ALONE))
    stream.settle()
    assert proposed(stream) is None
    stream.led().lead(view(EPOCH, 2, isr=ALONE))
    stream.wait(WAIT_MS)
    assert stream.answer().parts == []
    assert stream.ask().claims == []
    assert proposed(stream) == (LEADER, FOLLOWER)


def test_standing_claims_are_judged_anew_only_now_and_then() -> None:
    stream = Stream(2)
    for index in range(2):
        stream.led(index).lead(view(EPOCH, 1, isr=ALONE, active=ALONE))
    stream.settle()
    looks = stream.leader.looks
    for number in range(10):
        stream.wait(JUDGE_AGAIN_MS // 10)
        stream.write(b"%d" % number, index=1)
        stream.settle()
    # Twice each for reading and judging what is busy, and a few for what is idle.
    assert stream.leader.looks - looks <= 2 * 10 + 4


def test_a_follower_in_the_in_sync_set_is_not_judged_again() -> None:
    stream = Stream()
    stream.settle()
    looks = stream.leader.looks
    for _ in range(5):
        stream.wait(WAIT_MS)
        stream.settle()
    assert stream.leader.looks == looks


def test_what_is_committed_moves_on_an_ask_that_is_no_fetch() -> None:
    stream = Stream()
    stream.settle()
    stream.follower.is_slow = True
    stream.led().append([produced(b"a")], now_ms=NOW_MS)
    stream.answer()
    stream.wait(100)
    assert stream.ask().is_fetch
    assert stream.led().log.high_watermark == 0
    stream.follower.sync()
    assert not stream.ask().is_fetch
    assert stream.led().log.high_watermark == 1
