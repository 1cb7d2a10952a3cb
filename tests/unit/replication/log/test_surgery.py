"""Everything that removes bytes from a log: truncate, reset, delete records (rules 44, 46, 49)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, InvariantError, RequestError
from ottla.proto.ids import LeaderEpoch, Offset
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import delete_records, purge, reset, truncate
from ottla.replication.storage.disk import DiskFiles
from tests.builders import (
    BIG,
    NOW_MS,
    OneLog,
    append,
    batches_of,
    headers_of,
    records_of,
    small_settings,
    values_of,
)


def pairs(count: int = 12, *, one: OneLog | None = None) -> Log:
    """Return a log of several segments, of batches with two records each."""
    log = (one or OneLog()).create()
    for number in range(count):
        append(log, b"%d a" % number * 10, b"%d b" % number * 10)
    assert len(log.segments) > 2
    return log


def names(one: OneLog, suffix: str) -> list[str]:
    return [name for name in one.files.list_dir("/data/t-0") if name.endswith(suffix)]


# -- truncate ----------------------------------------------------------------------------------


@given(st.integers(0, 23))
def test_a_cut_log_has_exactly_the_whole_batches_below_the_cut(offset: int) -> None:
    log = pairs()
    kept = [
        batch
        for batch, header in zip(batches_of(log), headers_of(log), strict=True)
        if header.next_offset <= offset
    ]
    end = truncate(log, Offset(offset))
    assert end == log.end_offset == log.synced_offset == offset - offset % 2
    assert batches_of(log) == kept


@given(st.integers(0, 24))
def test_a_cut_log_goes_on_at_its_new_end_and_opens_the_same(offset: int) -> None:
    one = OneLog()
    log = pairs(one=one)
    log.checkpoint()
    end = truncate(log, Offset(offset))
    log.assign_epoch(LeaderEpoch(1))
    assert append(log, b"new") == end
    expected = batches_of(log)
    log.close()
    log, report = one.open()
    assert report.damage is None
    assert batches_of(log) == expected


def test_a_cut_inside_a_batch_takes_the_whole_batch() -> None:
    log = pairs()
    assert truncate(log, Offset(5)) == 4


def test_a_cut_at_a_segments_beginning_leaves_that_segment_empty() -> None:
    log = pairs()
    base = log.segments[1].base_offset
    truncate(log, base)
    assert (log.active.base_offset, log.active.size) == (base, 0)


def test_a_cut_over_several_segments_removes_their_files() -> None:
    one = OneLog()
    log = pairs(one=one)
    truncate(log, Offset(2))
    assert names(one, ".log") == [f"{0:020d}.log"]
    assert len(one.files.list_dir("/data/t-0")) == 3


def test_a_cut_to_the_start_leaves_nothing() -> None:
    log = pairs()
    truncate(log, Offset(0))
    assert values_of(log) == []
    assert log.end_offset == 0


def test_a_cut_at_or_above_the_end_removes_no_bytes() -> None:
    log = pairs()
    before = batches_of(log)
    assert truncate(log, Offset(24)) == truncate(log, Offset(100)) == 24
    assert batches_of(log) == before


def test_rule_42_a_cut_at_the_end_still_cuts_the_epochs() -> None:
    log = pairs()
    log.assign_epoch(LeaderEpoch(3))
    truncate(log, Offset(24))
    assert log.epochs.entries == ((0, 0),)


def test_epochs_that_began_above_the_cut_are_gone_also_after_a_restart() -> None:
    one = OneLog()
    log = pairs(one=one)
    log.assign_epoch(LeaderEpoch(3))
    append(log, b"of the new leader")
    log.checkpoint()
    truncate(log, Offset(10))
    assert log.epochs.entries == ((0, 0),)
    log.close()
    assert one.open()[0].epochs.entries == ((0, 0),)


def test_rule_49a_the_recovery_point_is_never_left_above_a_cut() -> None:
    log = pairs()
    log.checkpoint()
    truncate(log, Offset(10))
    assert log.state.recovery_point == 10
    assert log.snapshots == []


def test_x3_rule_44_committed_records_are_not_cut_off() -> None:
    log = pairs()
    log.advance_high_watermark(Offset(10))
    with pytest.raises(InvariantError):
        truncate(log, Offset(9))
    assert truncate(log, Offset(10)) == 10


def test_rule_44_after_an_unclean_election_they_may_be() -> None:
    log = pairs()
    log.advance_high_watermark(Offset(10))
    truncate(log, Offset(6), below_high_watermark=True)
    assert log.high_watermark == log.end_offset == 6


def test_a_cut_below_the_start_is_a_bug() -> None:
    log = pairs()
    log.advance_high_watermark(Offset(10))
    delete_records(log, Offset(10), now_ms=NOW_MS)
    with pytest.raises(InvariantError):
        truncate(log, Offset(9), below_high_watermark=True)


def test_a_cut_that_takes_the_batch_with_the_start_leaves_an_empty_log_there() -> None:
    log = pairs()
    log.advance_high_watermark(Offset(5))
    delete_records(log, Offset(5), now_ms=NOW_MS)
    truncate(log, Offset(5))
    assert (log.start_offset, log.end_offset, values_of(log)) == (5, 5, [])


# -- reset -------------------------------------------------------------------------------------


def test_rule_46_a_reset_log_is_empty_and_starts_where_the_leader_starts() -> None:
    one = OneLog()
    log = pairs(one=one)
    reset(log, Offset(1000))
    assert (log.start_offset, log.high_watermark, log.end_offset) == (1000, 1000, 1000)
    assert names(one, ".log") == [f"{1000:020d}.log"]
    assert log.epochs.entries == ()
    assert len(log.producers) == 0


def test_rule_46_a_reset_log_opens_as_such_and_goes_on() -> None:
    one = OneLog()
    log = pairs(one=one)
    log.checkpoint()
    reset(log, Offset(1000))
    log.assign_epoch(LeaderEpoch(1))
    append(log, b"first")
    log.close()
    log, report = one.open()
    assert report.damage is None
    assert [(record.offset, record.value) for record in records_of(log)] == [(1000, b"first")]


# -- delete records ----------------------------------------------------------------------------


def committed_pairs(one: OneLog | None = None) -> Log:
    log = pairs(one=one)
    log.advance_high_watermark(Offset(20))
    return log


def test_rule_49c_records_below_the_new_start_cannot_be_read() -> None:
    log = committed_pairs()
    assert delete_records(log, Offset(11), now_ms=NOW_MS) == 11
    assert [record.offset for record in records_of(log)] == list(range(11, 24))
    with pytest.raises(RequestError) as refused:
        log.read(Offset(10), bytes_max=BIG)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_rule_49c_the_new_start_survives_a_restart_without_a_checkpoint() -> None:
    one = OneLog()
    log = committed_pairs(one)
    delete_records(log, Offset(11), now_ms=NOW_MS)
    log.close()
    log, _ = one.open()
    assert log.start_offset == 11
    assert [record.offset for record in records_of(log)] == list(range(11, 24))


@pytest.mark.parametrize("offset", [-1, 21, 24, 25])
def test_nothing_above_the_high_watermark_is_deleted(offset: int) -> None:
    log = committed_pairs()
    with pytest.raises(RequestError) as refused:
        delete_records(log, Offset(offset), now_ms=NOW_MS)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.start_offset == 0


def test_the_start_never_moves_back() -> None:
    log = committed_pairs()
    delete_records(log, Offset(11), now_ms=NOW_MS)
    assert delete_records(log, Offset(3), now_ms=NOW_MS) == 11


def test_only_segments_that_lie_wholly_below_the_start_go() -> None:
    log = committed_pairs()
    bases = [segment.base_offset for segment in log.segments]
    delete_records(log, Offset(bases[2] - 1), now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == bases[1:]
    delete_records(log, bases[2], now_ms=NOW_MS)
    assert [segment.base_offset for segment in log.segments] == bases[2:]


def test_the_newest_segment_stays_although_all_its_records_are_deleted() -> None:
    log = pairs()
    log.advance_high_watermark(log.end_offset)
    delete_records(log, log.end_offset, now_ms=NOW_MS)
    assert len(log.segments) == 1
    assert values_of(log) == []
    assert append(log, b"next") == 24


def test_files_go_only_after_file_delete_delay_ms() -> None:
    one = OneLog(small_settings(file_delete_delay_ms=1000))
    log = committed_pairs(one)
    delete_records(log, log.segments[2].base_offset, now_ms=NOW_MS)
    assert len(names(one, ".log.deleted")) == 2
    assert purge(log, now_ms=NOW_MS + 999) == 0
    assert purge(log, now_ms=NOW_MS + 1000) == 2
    assert names(one, ".deleted") == []


def test_files_whose_delay_a_restart_cut_short_go_at_the_next_start() -> None:
    one = OneLog(small_settings(file_delete_delay_ms=1000))
    log = committed_pairs(one)
    delete_records(log, log.segments[2].base_offset, now_ms=NOW_MS)
    log.close()
    one.open()
    assert names(one, ".deleted") == []


def test_a_reader_of_a_dropped_segment_finishes_undisturbed(tmp_path: Path) -> None:
    one = OneLog(files=DiskFiles(), root=str(tmp_path))
    log = committed_pairs(one)
    log.sync()
    found = log.read(Offset(0), bytes_max=BIG)
    assert found is not None
    before = found.read()
    delete_records(log, log.segments[2].base_offset, now_ms=NOW_MS)
    assert found.read() == before
    assert purge(log, now_ms=NOW_MS) == 2
    assert found.read() == before
    log.close()
