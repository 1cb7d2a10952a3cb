"""Starts after unusual ends: a cut at the end, a gap under another policy, a start not synced."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.log.log import Log
from ottla.replication.log.recovery import RecoveryReport
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.storage.faults import PowerCutError
from ottla.replication.storage.unsynced import Style
from tests.builders import (
    NOW_MS,
    OneLog,
    append,
    committed,
    faulty_files,
    headers_of,
    produced,
    small_settings,
    values_of,
)
from tests.sim.material import stamped

ROOMY = 100_000


def test_rule_21_an_epoch_cut_at_the_end_is_cut_durably() -> None:
    one = OneLog(small_settings(segment_bytes=ROOMY))
    log = one.create()
    for value in (b"0", b"1", b"2"):
        append(log, value)
    committed(log)
    # Elected, wrote nothing, and is a follower again.
    log.assign_epoch(LeaderEpoch(5))
    truncate(log, log.end_offset)
    assert log.state.epochs == log.epochs.entries
    assert log.epochs.latest == 0

    fetched = [stamped(produced(b"%d" % offset), offset, 0) for offset in range(3, 7)]
    log.append_as_follower(b"".join(fetched), now_ms=NOW_MS)
    log.sync()
    again, report = one.open()
    assert values_of(again) == [b"%d" % offset for offset in range(7)]
    assert again.epochs.entries == log.epochs.entries
    assert (report.cut_bytes, report.damage, report.notes) == (0, None, [])


# Of a batch; no checksum covers it.
EPOCH_BYTE = 12


@pytest.mark.parametrize("rotten", [0, 1, 3])
def test_rule_8_an_epoch_that_a_lower_one_follows_is_not_believed_and_told(rotten: int) -> None:
    one = OneLog(small_settings(segment_bytes=ROOMY))
    log = one.create()
    append(log, b"synced long ago")
    committed(log)
    for value in (b"0", b"1", b"2", b"3", b"4"):
        append(log, value)
    # With fsync all of them were acknowledged; the recovery point moves once in a while.
    log.sync()
    log.advance_high_watermark(log.end_offset)
    first, second = headers_of(log)[:2]
    position = first.size + rotten * second.size
    log.segments[0].writer().write_at(position + EPOCH_BYTE, [b"\x40"])

    again, report = one.open()
    assert values_of(again) == [b"synced long ago", *(b"%d" % at for at in range(rotten))]
    assert again.epochs.latest == 0
    assert report.damage is not None
    assert "after epoch 1073741824" in report.damage
    # Rule R3: the second opening finds a sound log, and nothing more to cut.
    third, report = one.open()
    assert (values_of(third), report.cut_bytes) == (values_of(again), 0)


@pytest.mark.parametrize("was_compacted", [True, False])
@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_gap_that_a_follower_took_is_expected_under_any_policy(
    was_compacted: bool, is_compacted: bool
) -> None:
    one = OneLog(small_settings(segment_bytes=ROOMY, compact=was_compacted))
    log = one.create()
    for value in (b"0", b"1", b"2"):
        append(log, (b"k", value))
    committed(log)
    # Two gaps, in two fetches: the second is above all that the state record knows.
    for offsets in ((3, 8, 9), (20, 21)):
        fetched = [stamped(produced((b"k%d" % at, b"v")), at, 0) for at in offsets]
        log.append_as_follower(b"".join(fetched), now_ms=NOW_MS, gaps_allowed=True)
    log.sync()

    one.settings = replace(one.settings, compact=is_compacted, delete=not is_compacted)
    again, report = one.open()
    assert [header.base_offset for header in headers_of(again)] == [0, 1, 2, 3, 8, 9, 20, 21]
    assert (report.cut_bytes, report.damage, report.notes) == (0, None, [])


class DeletedAhead:
    """A log whose start was moved above all that was synced, and then the power failed."""

    START = Offset(35)

    def __init__(self, *, fsync: bool) -> None:
        files, _, self.power = faulty_files()
        self.one = OneLog(small_settings(fsync=fsync, segment_bytes=3000), files)
        log = self.one.create()
        for number in range(20):
            append(log, b"%d" % number + b"v" * 500)
        log.checkpoint()
        for number in range(20, 40):
            append(log, b"%d" % number + b"v" * 500)
        log.advance_high_watermark(log.end_offset)
        delete_records(log, self.START, now_ms=NOW_MS)

    def open_after_cut(self, style: Style, seed: int) -> tuple[Log, RecoveryReport]:
        self.power.cut(Random(seed), style)
        return self.one.open()


@pytest.mark.parametrize("fsync", [False, True])
def test_a_log_that_lost_all_above_its_start_starts_over_there_and_says_so(fsync: bool) -> None:
    story = DeletedAhead(fsync=fsync)
    log, report = story.open_after_cut(Style.DROP, 0)
    assert log.offline is None
    assert log.start_offset == log.high_watermark == log.end_offset == story.START
    assert log.size_bytes == 0
    assert report.damage is not None
    assert "below its high watermark 40" in report.damage

    log.assign_epoch(LeaderEpoch(1))
    assert append(log, b"new") == story.START
    committed(log)
    again, report = story.one.open()
    assert values_of(again) == [b"new"]
    assert report.damage is None


@pytest.mark.parametrize("style", [Style.DROP, Style.TORN, Style.REORDER, Style.MIXED])
@pytest.mark.parametrize("fsync", [False, True])
def test_a_start_above_what_was_synced_survives_any_cut(style: Style, fsync: bool) -> None:
    for seed in range(6):
        story = DeletedAhead(fsync=fsync)
        log, report = story.open_after_cut(style, seed)
        assert log.offline is None, seed
        assert story.START == log.start_offset <= log.high_watermark <= log.end_offset, seed
        assert (report.damage is not None) == (log.end_offset < 40), seed
        log.assign_epoch(LeaderEpoch(1))
        offset = append(log, b"new")
        assert log.read(offset, bytes_max=10) is not None, seed
        assert values_of(log)[-1] == b"new", seed


def test_r3_starting_over_may_be_interrupted_at_any_moment() -> None:
    for moment in range(1, 40):
        story = DeletedAhead(fsync=True)
        story.power.cut(Random(0), Style.DROP)
        if not _is_cut_while_opening(story, moment):
            assert moment > 1
            return
        log, report = story.open_after_cut(Style.DROP, moment)
        assert log.offline is None, moment
        assert log.start_offset == log.end_offset == story.START, moment
        assert report.damage is not None, moment
    pytest.fail("opening has no end")


def _is_cut_while_opening(story: DeletedAhead, moment: int) -> bool:
    power = story.power
    power.cut_at = power.moments + moment
    try:
        story.one.open()
    except PowerCutError:
        return True
    return False


def test_rule_62_a_producer_whose_batches_were_deleted_since_the_snapshot_goes_on() -> None:
    one = OneLog(small_settings(segment_bytes=ROOMY))
    log = one.create()
    append(log, b"0", producer_id=7, sequence=0)
    log.checkpoint()
    append(log, b"1", producer_id=7, sequence=1)
    log.roll()
    log.sync()
    log.advance_high_watermark(log.end_offset)
    delete_records(log, log.end_offset, now_ms=NOW_MS)

    # The snapshot has 1 as the next in line: 2 would be refused.
    again, _ = one.open()
    assert append(again, b"2", producer_id=7, sequence=2) == 2
