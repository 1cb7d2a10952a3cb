"""A follower and its leader over one stream: catching up, cutting, and what is said when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.replication import (
    DIVERGED,
    REFUSED,
    SERVED,
    Answer,
    answer_pieces,
    decode_answer,
)
from ottla.replication.follower import PAUSE_MIN_MS
from ottla.replication.log.surgery import delete_records
from ottla.replication.pulling import CUTS_MAX
from ottla.replication.settings import LogSettings
from tests.builders import NOW_MS, produced, small_settings, values_of
from tests.sim.material import stamped
from tests.unit.replication.stream import EPOCH, FOLLOWER, LEADER, Stream, view

PAGE_CACHE = LogSettings(fsync=False)


def kinds(answers: list[Answer]) -> list[int]:
    return [part.kind for answer in answers for part in answer.parts]


# ── Catching up ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settings", [LogSettings(), PAGE_CACHE], ids=["fsync", "page cache"])
def test_a_follower_that_is_empty_gets_everything_and_then_it_is_committed(
    settings: LogSettings,
) -> None:
    stream = Stream(settings=settings)
    stream.write(b"a", b"b", b"c")
    assert stream.led().log.high_watermark == 0
    stream.settle()
    assert stream.is_equal()
    assert stream.led().log.high_watermark == 3


def test_a_backlog_larger_than_an_answer_comes_in_several_without_a_pause() -> None:
    stream = Stream(settings=small_settings())
    stream.write(*(b"%d" % number * 40 for number in range(100)))
    stream.bytes_max = 1000
    answers = stream.settle()
    assert stream.is_equal()
    assert len(stream.led().log.segments) > 10
    assert len(answers) > 10
    assert all(len(part.batches) <= 1000 for answer in answers for part in answer.parts)


def test_a_backlog_in_several_partitions_comes_as_a_whole() -> None:
    stream = Stream(5, small_settings())
    for index in range(5):
        stream.write(*(b"x" * 100 for _ in range(20)), index=index)
    stream.bytes_max = 700
    stream.settle()
    assert all(stream.is_equal(index) for index in range(5))


def test_what_is_written_while_nobody_waits_is_there_with_the_next_answer() -> None:
    stream = Stream()
    for number in range(20):
        stream.write(b"%d" % number)
        stream.settle()
    assert values_of(stream.followed().log) == [b"%d" % number for number in range(20)]


def test_a_follower_learns_where_the_log_starts_and_what_is_committed() -> None:
    stream = Stream()
    stream.write(b"a", b"b")
    stream.settle()
    stream.wait(60)
    (answer,) = stream.settle()
    assert kinds([answer]) == [SERVED]
    assert stream.followed().log.high_watermark == 2


# ── Where logs part ───────────────────────────────────────────────────────────────────────────


def test_rule_42_the_place_where_logs_part_is_found_in_several_rounds() -> None:
    stream = Stream(0)
    stream.add(
        0,
        led=[(0, [b"a", b"b"]), (2, [b"C", b"D", b"E"])],
        followed=[(0, [b"a", b"b"]), (1, [b"c", b"d"]), (3, [b"e", b"f"])],
    )
    stream.write(b"F")
    answers = stream.settle()
    assert kinds(answers)[:3] == [DIVERGED, DIVERGED, SERVED]
    assert values_of(stream.followed().log) == [b"a", b"b", b"C", b"D", b"E", b"F"]
    assert stream.is_equal()


def test_a_follower_that_is_longer_is_cut() -> None:
    stream = Stream(0)
    stream.add(0, led=[(2, [b"a"])], followed=[(2, [b"a", b"b", b"c"])])
    stream.settle()
    assert stream.is_equal()
    assert values_of(stream.followed().log) == [b"a"]


def test_u4_a_few_logs_are_cut_by_one_call() -> None:
    stream = Stream(0)
    for index in range(3 * CUTS_MAX):
        stream.add(index, led=[(2, [b"a"])], followed=[(2, [b"a", b"b"])])
    stream.asks()
    stream.answer()
    logs = [stream.followed(index).log for index in range(3 * CUTS_MAX)]
    stream.asks()
    assert [log.end_offset for log in logs].count(Offset(1)) == CUTS_MAX
    # The rest is due at once.
    assert stream.puller.due_ms() == stream.clock.now_ms
    stream.asks()
    assert [log.end_offset for log in logs].count(Offset(1)) == 2 * CUTS_MAX
    stream.settle()
    assert all(stream.is_equal(index) for index in range(3 * CUTS_MAX))


def test_u4_a_log_that_is_busy_is_cut_later() -> None:
    stream = Stream(0)
    stream.add(0, led=[(2, [b"a"])], followed=[(2, [b"a", b"b"])])
    stream.asks()
    stream.answer()
    log = stream.followed().log
    job = log.begin_checkpoint(force=True)
    assert job is not None
    assert stream.ask().claims == []
    assert log.end_offset == 2
    job.run()
    log.finish_checkpoint(job)
    due_ms = stream.puller.due_ms()
    assert due_ms is not None
    stream.clock.now_ms = due_ms
    stream.settle()
    assert stream.is_equal()


def test_rule_46_who_lacks_what_the_leader_has_removed_starts_anew_where_the_leader_does() -> None:
    stream = Stream(0, small_settings())
    stream.add(0, small_settings(), led=[(2, [b"x" * 200] * 20)], followed=[(2, [b"x" * 200])])
    led = stream.led()
    led.log.advance_high_watermark(led.log.end_offset)
    delete_records(led.log, led.log.segments[4].base_offset, now_ms=NOW_MS)
    assert kinds(stream.settle())[0] == REFUSED
    assert stream.followed().log.start_offset == led.log.start_offset > 1
    assert stream.is_equal()


def test_rule_44_a_follower_that_would_have_to_cut_what_is_committed_fails_and_is_forgotten() -> (
    None
):
    stream = Stream(0)
    stream.add(0, led=[(2, [b"a"])], followed=[(2, [b"a", b"b"])])
    stream.add(1)
    stream.followed().follow(EPOCH, None)
    stream.followed().log.advance_high_watermark(Offset(2))
    stream.followed().follower = None
    stream.followed().follow(EPOCH, LEADER)
    stream.asks()
    stream.answer()
    assert stream.followed().failure is not None
    assert [claim.is_forgotten for claim in stream.ask().claims] == [True, False]
    assert FOLLOWER not in stream.led().feeds
    assert values_of(stream.followed().log) == [b"a", b"b"]


def test_rule_45_a_batch_of_a_later_epoch_than_the_leaders_is_not_appended() -> None:
    stream = Stream()
    stream.write(b"a")
    stream.ask()
    frame = stream.sent()
    assert frame is not None
    (part,) = decode_answer(frame).parts
    forged = part._replace(batches=stamped(produced(b"a"), 0, EPOCH + 1))
    stream.puller.take(b"".join(answer_pieces(Answer(1, has_more=False, parts=[forged]))))
    assert stream.followed().log.end_offset == 0
    core = stream.followed().follower
    assert core is not None
    assert core.corrupt_count == 1
    # It is asked for again, after a pause.
    assert stream.ask().claims == []
    stream.wait(PAUSE_MIN_MS)
    stream.settle()
    assert stream.is_equal()


def test_a_follower_hears_how_far_every_replica_has_come() -> None:
    stream = Stream()
    led, followed = stream.led(), stream.followed()
    led.lead(replace(view(partition_epoch=1), replicas=(LEADER, FOLLOWER)))
    assert (led.log.held_by_all, followed.log.held_by_all) == (0, 0)
    for number in range(3):
        led.append([produced(b"%d" % number)], now_ms=NOW_MS)
        stream.settle()
    assert led.log.held_by_all == led.log.end_offset == 3
    # As the leader knew when it sent the last record.
    assert 0 < followed.log.held_by_all <= 3
    followed.follow(LeaderEpoch(EPOCH + 1), None)
    assert followed.log.held_by_all == 0, "another leader may know better"


def test_a_gap_that_compaction_left_at_the_leader_is_no_damage() -> None:
    stream = Stream()
    led = stream.led()
    led.log.assign_epoch(EPOCH)
    batches = stamped(produced(b"a"), 3, EPOCH) + stamped(produced(b"b"), 9, EPOCH)
    led.log.append_as_follower(batches, now_ms=NOW_MS, gaps_allowed=True)
    led.catch_up()
    stream.settle()
    assert values_of(stream.followed().log) == [b"a", b"b"]
    assert stream.followed().log.gaps_below == 10
