"""The leader's end of a stream when leaders change: who hears of it when, and who need not."""

from __future__ import annotations

from ottla.proto.errors import ErrorCode
from ottla.proto.ids import LeaderEpoch
from ottla.proto.replication import SERVED
from ottla.replication.feeding import FIRST_WORDS_LINGER_MS, FIRST_WORDS_MAX
from tests.unit.replication.stream import EPOCH, THIRD, view
from tests.unit.replication.test_feeding import claim, refusals, waiting


def test_the_first_claim_in_a_new_epoch_is_answered_after_a_moment() -> None:
    asker = waiting()
    asker.stream.led().lead(view(EPOCH + 1, 1))
    asker.say(claim()._replace(leader_epoch=EPOCH + 1), is_fetch=False)
    assert asker.hear() is None
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + FIRST_WORDS_LINGER_MS
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [(part.kind, part.leader_epoch) for part in answer.parts] == [(SERVED, EPOCH + 1)]


def test_a_write_in_a_new_epoch_does_not_wait_for_the_first_words() -> None:
    asker = waiting(2)
    for index in (0, 1):
        asker.stream.led(index).lead(view(EPOCH + 1, 1))
        asker.say(claim(index)._replace(leader_epoch=EPOCH + 1), is_fetch=False)
    asker.stream.write(b"somebody waits for this", index=1)
    assert asker.indexes() == [1]


def test_a_fetch_that_waits_hears_after_a_moment_that_the_leader_is_no_more() -> None:
    asker = waiting(2)
    wakes = asker.stream.feeder_wakes
    asker.stream.led(1).follow(LeaderEpoch(EPOCH + 1), THIRD)
    assert asker.stream.feeder_wakes > wakes
    assert asker.hear() is None
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + FIRST_WORDS_LINGER_MS
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert refusals(asker.hear()) == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_a_fetch_that_waits_hears_after_a_moment_of_a_new_epoch() -> None:
    asker = waiting()
    asker.stream.led().lead(view(EPOCH + 1, 1))
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert refusals(asker.hear()) == [(0, ErrorCode.FENCED_LEADER_EPOCH)]


def test_a_follower_that_knows_of_the_new_leader_is_not_told_of_it() -> None:
    asker = waiting(3)
    for index in (0, 1):
        asker.stream.led(index).follow(LeaderEpoch(EPOCH + 1), THIRD)
    asker.say(claim(0)._replace(is_forgotten=True), is_fetch=False)
    # It leads again, and the follower has heard of that, too.
    asker.stream.led(1).lead(view(EPOCH + 2, 2))
    asker.say(claim(1)._replace(leader_epoch=EPOCH + 2), is_fetch=False)
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [(part.index, part.kind) for part in answer.parts] == [(1, SERVED)]


def test_a_claim_that_comes_before_the_metadata_of_its_epoch_waits_for_that() -> None:
    asker = waiting(2)
    asker.stream.led(1).follow(LeaderEpoch(EPOCH + 1), THIRD)
    for index, epoch in ((0, EPOCH + 1), (1, EPOCH + 2)):
        asker.say(claim(index)._replace(leader_epoch=epoch), is_fetch=False)
    assert asker.hear() is None
    for index, epoch in ((0, EPOCH + 1), (1, EPOCH + 2)):
        wakes = asker.stream.feeder_wakes
        asker.stream.led(index).lead(view(epoch, 2))
        assert asker.stream.feeder_wakes > wakes
        # From then on the follower counts, without another word.
        assert asker.hear() is None
        asker.stream.write(b"a", index=index)
        assert asker.indexes() == [index]
        asker.say(claim(index, 1)._replace(leader_epoch=epoch, last_epoch=epoch))
        assert asker.stream.led(index).log.high_watermark == 1


def test_a_claim_whose_metadata_does_not_come_is_refused_after_a_moment() -> None:
    asker = waiting()
    asker.say(claim()._replace(leader_epoch=EPOCH + 1), is_fetch=False)
    asker.stream.wait(FIRST_WORDS_LINGER_MS - 1)
    assert asker.hear() is None
    asker.stream.wait(1)
    assert refusals(asker.hear()) == [(0, ErrorCode.UNKNOWN_LEADER_EPOCH)]
    # Too late: it is to be said again.
    asker.stream.led().lead(view(EPOCH + 1, 1))
    asker.stream.write(b"a")
    asker.say()
    assert asker.hear() is None


def test_a_claim_that_waited_counts_only_in_its_own_epoch() -> None:
    asker = waiting()
    asker.say(claim()._replace(leader_epoch=EPOCH + 1), is_fetch=False)
    asker.stream.led().lead(view(EPOCH + 1, 1))
    asker.stream.led().lead(view(EPOCH + 2, 2))
    assert asker.hear() is None
    asker.stream.write(b"a")
    assert asker.hear() is None
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert refusals(asker.hear()) == [(0, ErrorCode.FENCED_LEADER_EPOCH)]


def test_a_thousand_that_are_led_no_more_are_told_a_few_at_a_time() -> None:
    count = FIRST_WORDS_MAX + 3
    asker = waiting(count)
    for index in range(count):
        asker.stream.led(index).follow(LeaderEpoch(EPOCH + 1), THIRD)
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert len(refusals(asker.hear())) == FIRST_WORDS_MAX
    asker.say()
    assert len(refusals(asker.hear())) == 3


def test_d3_what_was_accepted_in_one_epoch_is_not_served_in_the_next() -> None:
    asker = waiting()
    asker.stream.write(b"a")
    asker.stream.led().lead(view(EPOCH + 1, 1))
    assert asker.hear() is None
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert refusals(asker.hear()) == [(0, ErrorCode.FENCED_LEADER_EPOCH)]
