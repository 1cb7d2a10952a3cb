"""The leader's end of a stream: which answer is due when, and what it has in it."""

from __future__ import annotations

import pytest

from ottla.proto.errors import ErrorCode, RemoteProtocolError
from ottla.proto.ids import LeaderEpoch
from ottla.proto.replication import (
    PARTS_MAX,
    REFUSED,
    SERVED,
    Answer,
    Ask,
    PartitionClaim,
    decode_answer,
    encode_asks,
)
from ottla.replication.feeding import (
    DRAIN_BYTES_MAX,
    FIRST_WORDS_LINGER_MS,
    FIRST_WORDS_MAX,
    HIGH_WATERMARK_LINGER_MS,
)
from ottla.replication.log.surgery import delete_records
from ottla.replication.settings import LogSettings
from tests.builders import NOW_MS
from tests.unit.replication.stream import EPOCH, FOLLOWER, THIRD, TOPIC_ID, WAIT_MS, Stream


class Asker:
    """A follower without logs, which says what the test wants it to say."""

    def __init__(self, count: int = 1, settings: LogSettings | None = None) -> None:
        self.stream = Stream(count, settings)
        self.feeder = self.stream.feeder
        self.answered = 0

    def say(
        self, *claims: PartitionClaim, is_fetch: bool = True, answered: int | None = None
    ) -> None:
        number = self.answered if answered is None else answered
        for frame in encode_asks(Ask(self.stream.broker_epoch, number, is_fetch, list(claims))):
            self.feeder.take(frame)

    def hear(self) -> Answer | None:
        pieces = self.feeder.next_answer()
        if pieces is None:
            return None
        answer = decode_answer(b"".join(pieces))
        self.answered = answer.number
        return answer

    def indexes(self) -> list[int]:
        """Return which partitions are in the answer of this moment."""
        answer = self.hear()
        assert answer is not None
        return [part.index for part in answer.parts]


def claim(index: int = 0, offset: int = 0, held: int | None = None) -> PartitionClaim:
    last_epoch = EPOCH if offset else -1
    return PartitionClaim(
        TOPIC_ID, index, EPOCH, offset, offset if held is None else held, last_epoch
    )


def waiting(count: int = 1, settings: LogSettings | None = None) -> Asker:
    """Return a follower that has everything, and whose fetch waits at the leader."""
    asker = Asker(count, settings)
    asker.say(*(claim(index) for index in range(count)))
    asker.hear()
    asker.say(*(claim(index) for index in range(count)))
    assert asker.hear() is None
    return asker


# ── When an answer is due ─────────────────────────────────────────────────────────────────────


def test_nobody_is_answered_who_did_not_ask() -> None:
    asker = Asker()
    assert asker.hear() is None
    assert asker.feeder.due_ms() is None
    asker.say(claim(), is_fetch=False)
    asker.stream.write(b"a")
    assert asker.hear() is None
    assert asker.feeder.due_ms() is None


def test_the_first_claim_of_a_partition_is_answered_at_once() -> None:
    asker = Asker()
    asker.say(claim())
    answer = asker.hear()
    assert answer is not None
    (part,) = answer.parts
    assert (part.kind, part.high_watermark, part.batches) == (SERVED, 0, b"")


def test_d1_a_fetch_is_answered_after_the_wait_though_there_is_nothing_to_say() -> None:
    asker = waiting()
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + WAIT_MS
    asker.stream.wait(WAIT_MS - 1)
    assert asker.hear() is None
    asker.stream.wait(1)
    assert asker.hear() == Answer(2, has_more=False, parts=[])
    assert asker.hear() is None
    assert asker.feeder.due_ms() is None


def test_an_append_wakes_a_fetch_that_waits() -> None:
    asker = waiting(2)
    wakes = asker.stream.feeder_wakes
    asker.stream.write(b"a", index=1)
    assert asker.stream.feeder_wakes == wakes + 1
    asker.stream.write(b"b", index=1)
    assert asker.stream.feeder_wakes == wakes + 1
    assert asker.indexes() == [1]


def test_a_new_high_watermark_alone_lingers_before_it_is_told() -> None:
    asker = waiting(2)
    asker.stream.write(b"a")
    asker.hear()
    asker.say(claim(0, 1))
    assert asker.stream.led().log.high_watermark == 1
    assert asker.hear() is None
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + HIGH_WATERMARK_LINGER_MS
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [(part.index, part.high_watermark, part.batches) for part in answer.parts] == [
        (0, 1, b"")
    ]
    # That was all.
    asker.say(claim(0, 1))
    assert asker.hear() is None
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + WAIT_MS


def test_a_new_high_watermark_does_not_wait_for_itself_if_batches_come() -> None:
    asker = waiting()
    asker.stream.write(b"a")
    asker.hear()
    asker.say(claim(0, 1))
    asker.stream.write(b"b")
    answer = asker.hear()
    assert answer is not None
    (part,) = answer.parts
    assert part.high_watermark == 1
    assert len(part.batches) > 0
    asker.say(claim(0, 2, held=1))
    assert asker.hear() is None
    assert asker.feeder.due_ms() == asker.stream.clock.now_ms + WAIT_MS


def test_a_high_watermark_that_moved_before_a_claim_is_told_like_any_other() -> None:
    asker = waiting()
    asker.stream.leader.is_slow = True
    asker.stream.write(b"a")
    asker.hear()
    asker.say(claim(0, 1))
    asker.stream.write(b"b")
    asker.hear()
    # The partition was just named, and is not claimed anew yet.
    asker.stream.leader.sync()
    assert asker.stream.led().log.high_watermark == 1
    asker.say(claim(0, 2, held=1))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [part.high_watermark for part in answer.parts] == [1]


def test_a_high_watermark_that_is_young_does_not_ride_with_other_partitions() -> None:
    asker = waiting(3)
    asker.stream.write(b"a", index=0)
    asker.hear()
    asker.say(claim(0, 1))
    asker.stream.write(b"a", index=1)
    assert asker.indexes() == [1]
    asker.say(claim(1, 1))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    asker.stream.write(b"a", index=2)
    assert asker.indexes() == [2, 0, 1]


def test_a_start_that_moves_is_told_like_a_high_watermark() -> None:
    asker = waiting()
    asker.stream.write(b"a", b"b")
    asker.hear()
    asker.say(claim(0, 2))
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    asker.hear()
    asker.say(claim(0, 2))
    delete_records(asker.stream.led().log, asker.stream.led().log.end_offset, now_ms=NOW_MS)
    asker.stream.led().start_moved()
    asker.stream.wait(HIGH_WATERMARK_LINGER_MS)
    answer = asker.hear()
    assert answer is not None
    assert [part.start_offset for part in answer.parts] == [2]


# ── What is in an answer ──────────────────────────────────────────────────────────────────────


def test_a_batch_larger_than_an_answer_may_be_is_sent_whole() -> None:
    asker = waiting()
    asker.stream.bytes_max = 100
    asker.stream.write(b"x" * 5000)
    answer = asker.hear()
    assert answer is not None
    assert len(answer.parts[0].batches) > 5000


def test_no_other_batch_takes_an_answer_over_its_bound() -> None:
    asker = waiting(2)
    asker.stream.bytes_max = 1000
    asker.stream.write(b"x" * 600, index=0)
    asker.stream.write(b"x" * 600, index=1)
    answer = asker.hear()
    assert answer is not None
    assert answer.has_more
    assert [part.index for part in answer.parts] == [0]
    asker.say(claim(0, 1))
    assert asker.indexes() == [1]


def test_an_answer_has_about_a_mebibyte_though_more_would_be_allowed() -> None:
    asker = waiting(4)
    for index in range(4):
        for _ in range(5):
            asker.stream.write(b"x" * 100_000, index=index)
    answer = asker.hear()
    assert answer is not None
    assert answer.has_more
    sizes = [len(part.batches) for part in answer.parts]
    assert DRAIN_BYTES_MAX <= sum(sizes) <= DRAIN_BYTES_MAX + 101_000
    assert [part.index for part in answer.parts] == [0, 1, 2]


def test_what_was_just_written_is_sent_in_the_pieces_that_were_written() -> None:
    asker = waiting(3)
    for index in range(3):
        for _ in range(2):
            asker.stream.write(b"x" * 500_000, index=index)
    pieces = asker.stream.feeder.next_answer()
    assert pieces is not None
    # The head, two batches of one partition, and one of the next, which is more than was wanted.
    assert [len(piece) // 100_000 for piece in pieces] == [0, 5, 5, 5]


def test_d4_who_did_not_fit_comes_first() -> None:
    asker = waiting(3)
    asker.stream.bytes_max = 150
    offsets = [0, 0, 0]
    served = list[int]()
    for index in range(3):
        asker.stream.write(*(b"x" * 60 for _ in range(10)), index=index)
    for _ in range(12):
        (index,) = asker.indexes()
        served.append(index)
        offsets[index] += 1
        asker.say(claim(index, offsets[index]))
    assert served == [0, 1, 2] * 4


def test_d4_who_has_batches_comes_before_all_who_only_hear_for_the_first_time() -> None:
    count = 2 * FIRST_WORDS_MAX + 1
    asker = Asker(count)
    last = count - 1
    asker.stream.write(b"somebody waits for this", index=last)
    asker.say(*(claim(index) for index in range(count)))
    answer = asker.hear()
    assert answer is not None
    assert [part.index for part in answer.parts] == [last, *range(FIRST_WORDS_MAX)]
    assert len(answer.parts[0].batches)
    # What is left is no reason to hurry: the follower may wait for its disk first.
    assert not answer.has_more
    asker.say(claim(last, 1))
    assert asker.hear() is None
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert asker.indexes() == [*range(FIRST_WORDS_MAX, last), last]
    asker.say()
    assert asker.hear() is None


def test_d4_an_append_takes_a_partition_out_of_the_row_of_those_who_wait_for_a_first_word() -> None:
    count = FIRST_WORDS_MAX + 2
    asker = Asker(count)
    asker.say(*(claim(index) for index in range(count)))
    assert len(asker.indexes()) == FIRST_WORDS_MAX
    asker.stream.write(b"new", index=count - 1)
    asker.say()
    assert asker.indexes() == [count - 1]
    asker.say()
    asker.stream.wait(FIRST_WORDS_LINGER_MS)
    assert asker.indexes() == [count - 2]


def test_more_partitions_than_an_answer_may_name_come_in_several() -> None:
    asker = Asker(0)
    strange = [claim(index) for index in range(PARTS_MAX + 10)]
    asker.say(*strange)
    answer = asker.hear()
    assert answer is not None
    assert (len(answer.parts), answer.has_more) == (PARTS_MAX, True)
    asker.say()
    answer = asker.hear()
    assert answer is not None
    assert (len(answer.parts), answer.has_more) == (10, False)


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────


def refusals(answer: Answer | None) -> list[tuple[int, int]]:
    assert answer is not None
    return [(part.index, part.code) for part in answer.parts if part.kind == REFUSED]


def test_a_partition_that_is_not_here_and_one_that_is_not_led_are_refused_at_once() -> None:
    asker = Asker(2)
    asker.stream.led(1).follow(LeaderEpoch(EPOCH + 1), THIRD)
    asker.say(claim(0), claim(1), claim(2))
    assert refusals(asker.hear()) == [
        (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


def test_a_log_that_fails_is_refused_and_the_others_go_on() -> None:
    asker = waiting(2)
    asker.stream.write(b"a", index=0)
    asker.stream.write(b"a", index=1)
    asker.stream.led(0).log.fail("a test", OSError("so it goes"))
    answer = asker.hear()
    assert refusals(answer) == [(0, ErrorCode.KAFKA_STORAGE_ERROR)]
    assert answer is not None
    assert [part.index for part in answer.parts] == [0, 1]
    asker.say(claim(0))
    assert refusals(asker.hear()) == [(0, ErrorCode.KAFKA_STORAGE_ERROR)]


def test_a_partition_that_was_deleted_while_its_claim_waited_is_unknown() -> None:
    asker = waiting()
    asker.stream.write(b"a")
    asker.stream.leader.replicas.clear()
    assert refusals(asker.hear()) == [(0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_claim_whose_records_were_removed_while_it_waited_is_refused_with_the_bounds() -> None:
    asker = waiting()
    asker.stream.write(b"a", b"b")
    log = asker.stream.led().log
    log.advance_high_watermark(log.end_offset)
    delete_records(log, log.end_offset, now_ms=NOW_MS)
    answer = asker.hear()
    assert refusals(answer) == [(0, ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert answer is not None
    assert (answer.parts[0].start_offset, answer.parts[0].end_offset) == (2, 2)


# ── Turns ─────────────────────────────────────────────────────────────────────────────────────


def test_d1_a_second_fetch_before_the_answer_is_refused() -> None:
    asker = waiting()
    with pytest.raises(RemoteProtocolError):
        asker.say()


@pytest.mark.parametrize("answered", [0, 2, 100])
def test_d1_a_fetch_that_follows_another_answer_than_the_last_is_refused(answered: int) -> None:
    asker = Asker()
    asker.say(claim())
    asker.hear()
    with pytest.raises(RemoteProtocolError):
        asker.say(answered=answered)


def test_what_a_follower_has_once_had_it_cannot_unlearn() -> None:
    asker = waiting()
    with pytest.raises(RemoteProtocolError):
        asker.say(is_fetch=False, answered=0)


def test_d2_a_claim_that_crossed_the_answer_is_not_answered_again() -> None:
    asker = waiting()
    asker.stream.write(b"a")
    assert asker.indexes() == [0]
    # Said before that answer came: the follower has synced something meanwhile, say.
    asker.say(claim(), is_fetch=False, answered=1)
    asker.say()
    assert asker.hear() is None
    asker.say(claim(0, 1), is_fetch=False)
    asker.stream.write(b"b")
    assert asker.indexes() == [0]


def test_a_forgotten_partition_is_not_answered_any_more() -> None:
    asker = waiting(2)
    asker.stream.write(b"a", index=0)
    asker.say(claim(0)._replace(is_forgotten=True), is_fetch=False)
    assert asker.hear() is None
    asker.stream.write(b"a", index=1)
    assert asker.indexes() == [1]


def test_a_follower_that_only_claims_what_is_not_here_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.replication.feeding._SAID_MAX", 99)
    asker = Asker(0)
    asker.say(*(claim(index) for index in range(100)), is_fetch=False)
    with pytest.raises(RemoteProtocolError, match="no fetch"):
        asker.say(is_fetch=False)


# ── The end ───────────────────────────────────────────────────────────────────────────────────


def test_a_stream_that_ends_leaves_nothing_at_the_replicas() -> None:
    asker = waiting(2)
    asker.feeder.close()
    assert asker.stream.led(0).feeds == {}
    asker.stream.write(b"a")
    assert asker.hear() is None


def test_a_stream_that_ends_late_leaves_the_next_one_alone() -> None:
    asker = waiting()
    older, asker.feeder, asker.answered = asker.feeder, asker.stream.make_feeder(), 0
    asker.say(claim())
    newer = asker.stream.led().feeds[FOLLOWER]
    older.close()
    assert asker.stream.led().feeds == {FOLLOWER: newer}
    asker.stream.write(b"a")
    assert asker.indexes() == [0]
