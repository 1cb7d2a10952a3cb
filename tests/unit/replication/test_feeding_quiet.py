"""A follower of a quiet topic hears that all the other replicas have come as far as it has."""

from __future__ import annotations

from ottla.proto.replication import Ask, encode_asks
from ottla.replication.feeding import HIGH_WATERMARK_LINGER_MS, Feeder
from ottla.replication.settings import LogSettings
from tests.builders import NOW_MS, produced
from tests.unit.replication.stream import BROKER_EPOCHS, THIRD
from tests.unit.replication.test_feeding import Asker, claim, waiting

COMPACTED = LogSettings(compact=True, delete=False)


def write(asker: Asker, count: int) -> None:
    for number in range(count):
        (done,) = asker.stream.led().append([produced((b"k", b"v"))], now_ms=NOW_MS)
        assert not isinstance(done, Exception), done
        assert asker.stream.led().log.end_offset == number + 1


def third_claims(third: Feeder, offset: int) -> None:
    """Let another follower say on a stream of its own how far it has come."""
    ask = Ask(BROKER_EPOCHS[THIRD], 0, False, [claim(0, offset)])
    for frame in encode_asks(ask):
        third.take(frame)


def test_who_is_quiet_hears_that_every_replica_has_caught_up_if_the_topic_is_compacted() -> None:
    """The last one to do so may be out of sync, and moves no high watermark."""
    asker = waiting(settings=COMPACTED)
    third = asker.stream.make_feeder(THIRD)
    write(asker, 2)
    asker.hear()
    asker.say(claim(0, 2))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    asker.hear()
    asker.say(claim(0, 2))
    third_claims(third, 1)
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    assert asker.hear() is None
    third_claims(third, 2)
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [(part.held_by_all, part.high_watermark) for part in answer.parts] == [(2, 2)]
    asker.say(claim(0, 2))
    third_claims(third, 2)
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    assert asker.hear() is None, "it is told once"


def test_that_every_replica_has_caught_up_is_heard_also_by_who_was_just_answered() -> None:
    asker = waiting(settings=COMPACTED)
    third = asker.stream.make_feeder(THIRD)
    write(asker, 1)
    asker.hear()
    asker.say(claim(0, 1))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    asker.hear()
    # The partition was just named, and is not claimed anew yet.
    third_claims(third, 1)
    asker.say(claim(0, 1))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [part.held_by_all for part in answer.parts] == [1]


def test_of_a_topic_that_is_not_compacted_nobody_hears_who_has_caught_up() -> None:
    asker = waiting()
    third = asker.stream.make_feeder(THIRD)
    write(asker, 1)
    asker.hear()
    asker.say(claim(0, 1))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    asker.hear()
    asker.say(claim(0, 1))
    third_claims(third, 1)
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    assert asker.hear() is None
