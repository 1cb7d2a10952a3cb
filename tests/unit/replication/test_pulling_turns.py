"""What a follower says when, and what it does with answers that come late or out of turn."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.ids import BrokerId, LeaderEpoch
from ottla.proto.replication import (
    REFUSED,
    SERVED,
    Answer,
    AnswerPart,
    answer_pieces,
    decode_answer,
    decode_ask,
)
from ottla.replication.feeding import FIRST_WORDS_LINGER_MS
from ottla.replication.follower import PAUSE_MIN_MS
from ottla.replication.pulling import SYNC_WAIT_MS
from tests.builders import values_of
from tests.unit.replication.stream import (
    EPOCH,
    FOLLOWER,
    LEADER,
    TOPIC_ID,
    WAIT_MS,
    Stream,
    view,
)


def idle(count: int = 1) -> Stream:
    """Return a stream whose partitions are known to the leader, with a fetch that waits there."""
    stream = Stream(count)
    stream.settle()
    return stream


# ── Syncs and the next ask ────────────────────────────────────────────────────────────────────


def test_an_ask_waits_for_the_sync_and_then_says_both_offsets_at_once() -> None:
    stream = idle()
    stream.follower.is_slow = True
    stream.write(b"a")
    stream.answer()
    assert stream.asks() == []
    assert stream.puller.due_ms() == stream.clock.now_ms + SYNC_WAIT_MS
    stream.wait(SYNC_WAIT_MS - 1)
    assert stream.asks() == []
    stream.follower.sync()
    ask = stream.ask()
    assert ask.is_fetch
    assert [(claim.fetch_offset, claim.held_offset) for claim in ask.claims] == [(1, 1)]
    assert stream.led().log.high_watermark == 1


def test_a_sync_that_takes_long_is_told_by_an_ask_that_is_no_fetch() -> None:
    stream = idle()
    stream.follower.is_slow = True
    stream.write(b"a")
    stream.answer()
    stream.wait(SYNC_WAIT_MS)
    ask = stream.ask()
    assert ask.is_fetch
    assert [(claim.fetch_offset, claim.held_offset) for claim in ask.claims] == [(1, 0)]
    assert stream.led().log.high_watermark == 0
    wakes = stream.puller_wakes
    stream.follower.sync()
    assert stream.puller_wakes > wakes
    ask = stream.ask()
    assert not ask.is_fetch
    assert [(claim.fetch_offset, claim.held_offset) for claim in ask.claims] == [(1, 1)]
    assert stream.led().log.high_watermark == 1
    assert stream.asks() == []


def test_all_the_syncs_that_an_answer_began_are_waited_for() -> None:
    stream = idle(3)
    stream.follower.is_slow = True
    for index in range(3):
        stream.write(b"a", index=index)
    stream.answer()
    for index in range(3):
        assert stream.asks() == []
        stream.follower.sync(stream.followed(index))
    assert len(stream.ask().claims) == 3


def test_if_the_leader_has_more_no_sync_is_waited_for() -> None:
    stream = idle()
    stream.follower.is_slow = True
    stream.bytes_max = 200
    stream.write(b"x" * 100, b"x" * 100, b"x" * 100)
    stream.answer()
    ask = stream.ask()
    assert ask.is_fetch
    assert [(claim.fetch_offset, claim.held_offset) for claim in ask.claims] == [(1, 0)]
    # And what is held meanwhile is said with the next fetch, which is due at once.
    stream.follower.sync()
    assert stream.asks() == []
    assert stream.puller.due_ms() == stream.clock.now_ms + SYNC_WAIT_MS
    stream.answer()
    assert [(claim.fetch_offset, claim.held_offset) for claim in stream.ask().claims] == [(2, 1)]


def test_what_is_held_is_said_alone_if_the_next_answer_is_late_after_all() -> None:
    stream = idle()
    stream.follower.is_slow = True
    stream.bytes_max = 200
    stream.write(b"x" * 100, b"x" * 100)
    stream.answer()
    stream.ask()
    stream.follower.sync()
    stream.wait(SYNC_WAIT_MS)
    ask = stream.ask()
    assert not ask.is_fetch
    assert [(claim.fetch_offset, claim.held_offset) for claim in ask.claims] == [(1, 1)]


def test_when_nothing_has_changed_an_ask_is_empty() -> None:
    stream = idle(5)
    stream.wait(WAIT_MS)
    assert stream.answer().parts == []
    ask = stream.ask()
    assert ask.is_fetch
    assert ask.claims == []
    assert stream.asks() == []
    assert stream.puller.due_ms() is None


def test_a_thousand_idle_partitions_are_not_looked_at() -> None:
    stream = Stream(1000)
    stream.settle()
    stream.wait(FIRST_WORDS_LINGER_MS)
    stream.settle()
    before = stream.leader.looks + stream.follower.looks
    for number in range(100):
        stream.write(b"%d" % number, index=7)
        stream.settle()
        stream.wait(100)
    assert stream.is_equal(7)
    # A few for each of the hundred, and none for the others.
    assert 0 < stream.leader.looks + stream.follower.looks - before < 1000


# ── Partitions come and go ────────────────────────────────────────────────────────────────────


def test_a_partition_that_is_added_is_claimed_though_a_fetch_is_waiting() -> None:
    stream = idle()
    stream.add(1)
    ask = stream.ask()
    assert not ask.is_fetch
    assert [claim.index for claim in ask.claims] == [1]
    stream.wait(FIRST_WORDS_LINGER_MS)
    assert [part.index for part in stream.answer().parts] == [1]


def test_u3_a_partition_that_is_removed_is_forgotten_by_the_leader() -> None:
    stream = idle(2)
    stream.puller.remove(stream.followed(1))
    ask = stream.ask()
    assert [(claim.index, claim.is_forgotten) for claim in ask.claims] == [(1, True)]
    assert FOLLOWER in stream.led(0).feeds
    assert FOLLOWER not in stream.led(1).feeds
    stream.write(b"a", index=1)
    assert stream.sent() is None
    assert stream.asks() == []


def test_u3_a_replica_that_leads_now_is_forgotten_before_anybody_removes_it() -> None:
    stream = idle(2)
    stream.followed(0).follow(LeaderEpoch(EPOCH + 1), LEADER)
    stream.followed(1).lead(view(EPOCH + 1, 1))
    ask = stream.ask()
    # Before anything else.
    assert [(claim.index, claim.is_forgotten) for claim in ask.claims] == [(1, True), (0, False)]


def test_a_partition_that_is_removed_and_added_again_is_claimed_anew() -> None:
    stream = idle()
    followed = stream.followed()
    stream.puller.remove(followed)
    assert stream.puller.is_empty
    stream.puller.add(followed)
    assert [claim.is_forgotten for claim in stream.ask().claims] == [True, False]
    stream.write(b"a")
    stream.settle()
    assert stream.is_equal()


def test_who_follows_nothing_asks_for_nothing() -> None:
    stream = Stream(0)
    assert stream.asks() == []
    assert stream.puller.due_ms() is None


def test_an_answer_for_a_partition_that_was_removed_meanwhile_is_left_alone() -> None:
    stream = idle()
    stream.write(b"a")
    frame = stream.sent()
    assert frame is not None
    stream.puller.remove(stream.followed())
    stream.puller.take(frame)
    assert stream.followed().log.end_offset == 0


# ── Another stream, another epoch ─────────────────────────────────────────────────────────────


def test_on_a_new_stream_everything_is_said_again() -> None:
    stream = idle(3)
    stream.feeder.close()
    stream.feeder = stream.make_feeder()
    stream.puller.connected()
    ask = stream.ask()
    assert ask.answered == 0
    assert ask.is_fetch
    assert len(ask.claims) == 3
    assert stream.answer().number == 1


def test_u1_an_answer_from_the_stream_before_is_refused() -> None:
    stream = idle()
    stream.write(b"a")
    stale = stream.sent()
    assert stale is not None
    stream.feeder.close()
    stream.feeder = stream.make_feeder()
    stream.puller.connected()
    with pytest.raises(RemoteProtocolError):
        stream.puller.take(stale)
    stream.settle()
    assert stream.is_equal()


def test_u1_an_answer_that_nobody_waits_for_is_refused() -> None:
    stream = Stream()
    answer = b"".join(answer_pieces(Answer(1, has_more=False, parts=[])))
    with pytest.raises(RemoteProtocolError):
        stream.puller.take(answer)
    stream.ask()
    stream.puller.take(answer)
    with pytest.raises(RemoteProtocolError):
        stream.puller.take(answer)


def test_u2_an_answer_of_the_epoch_before_changes_nothing() -> None:
    stream = idle()
    stream.write(b"a")
    frame = stream.sent()
    assert frame is not None
    stream.led().lead(view(EPOCH + 1, 1))
    stream.followed().follow(LeaderEpoch(EPOCH + 1), LEADER)
    # It is claimed in the new epoch while the answer in the old one is on its way.
    ask = stream.ask()
    assert not ask.is_fetch
    assert [claim.leader_epoch for claim in ask.claims] == [EPOCH + 1]
    stream.puller.take(frame)
    assert stream.followed().log.end_offset == 0
    stream.settle()
    assert stream.is_equal()


def test_all_claims_are_said_again_in_a_new_life_of_the_broker() -> None:
    stream = idle(3)
    stream.broker_epoch = 100
    ask = stream.ask()
    assert not ask.is_fetch
    assert ask.broker_epoch == 100
    assert len(ask.claims) == 3


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────


def test_one_partition_is_refused_and_the_others_go_on() -> None:
    stream = Stream(3)
    stream.led(1).follow(LeaderEpoch(EPOCH + 1), BrokerId(3))
    for index in (0, 2):
        stream.write(b"a", index=index)
    stream.asks()
    parts = {part.index: part for part in stream.answer().parts}
    assert parts[1].kind == REFUSED
    assert parts[1].code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The one that was refused pauses.
    assert [claim.index for claim in stream.ask().claims] == [0, 2]
    assert stream.is_equal(0)
    assert stream.is_equal(2)
    assert stream.puller.due_ms() == stream.clock.now_ms + PAUSE_MIN_MS
    stream.wait(PAUSE_MIN_MS)
    ask = stream.ask()
    assert not ask.is_fetch
    assert [claim.index for claim in ask.claims] == [1]


def test_a_follower_that_knows_of_its_leaders_epoch_first_asks_until_the_leader_knows() -> None:
    stream = Stream()
    stream.followed().follow(LeaderEpoch(EPOCH + 1), LEADER)
    stream.write(b"a")
    for _ in range(3):
        stream.settle()
        stream.wait(100)
    assert stream.followed().log.end_offset == 0
    stream.led().lead(view(EPOCH + 1, 1))
    stream.wait(1000)
    stream.settle()
    assert values_of(stream.followed().log) == [b"a"]


def test_an_error_that_this_follower_does_not_know_is_one_like_any_other() -> None:
    stream = Stream()
    stream.ask()
    part = AnswerPart(TOPIC_ID, 0, EPOCH, 0, REFUSED, 12_345, -1, -1, -1)
    stream.puller.take(b"".join(answer_pieces(Answer(1, has_more=False, parts=[part]))))
    (frame,) = stream.puller.next_asks()
    assert decode_ask(frame).claims == []
    assert stream.puller.due_ms() == stream.clock.now_ms + PAUSE_MIN_MS


def test_a_partition_without_its_claim_being_answered_is_served_later() -> None:
    stream = idle()
    stream.write(b"a")
    frame = stream.sent()
    assert frame is not None
    (part,) = decode_answer(frame).parts
    assert part.kind == SERVED
    # The same, for an offset that was not asked for.
    other = part._replace(fetch_offset=17)
    stream.puller.take(b"".join(answer_pieces(Answer(2, has_more=False, parts=[other]))))
    assert stream.followed().log.end_offset == 0
    stream.settle()
    assert stream.is_equal()
