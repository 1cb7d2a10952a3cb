"""What a reader gets: whole first batch, bounds that are exclusive, refusals with Kafka's codes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.header import HEADER_SIZE, read_header
from ottla.replication.log.log import Log
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import FaultRule
from tests.builders import (
    BIG,
    OneLog,
    append,
    batches_of,
    faulty_files,
    small_settings,
    values_of,
)


def pairs(count: int, *, log: Log | None = None) -> Log:
    """Return a log of batches with two records each."""
    log = log or OneLog(LogSettings(index_interval_bytes=100)).create()
    for number in range(count):
        append(log, b"%d a" % number, b"%d b" % number)
    return log


def first_read(log: Log, offset: int, *, bytes_max: int = 1, before: int | None = None) -> int:
    """Return the first offset that a read gives, or −1 if it gives nothing."""
    bound = None if before is None else Offset(before)
    found = log.read(Offset(offset), bytes_max=bytes_max, before=bound)
    return -1 if found is None else read_header(found.read()).base_offset


@pytest.mark.parametrize(("offset", "first"), [(0, 0), (1, 0), (2, 2), (7, 6), (9, 8)])
def test_a_read_begins_with_the_batch_that_holds_the_offset(offset: int, first: int) -> None:
    assert first_read(pairs(5), offset) == first


def test_a_read_at_the_end_gives_nothing_yet() -> None:
    assert pairs(5).read(Offset(10), bytes_max=BIG) is None


@pytest.mark.parametrize("offset", [-1, 3, 11, 10**15])
def test_rule_58_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    log = pairs(5)
    log.advance_high_watermark(Offset(10))
    delete_records(log, Offset(4), now_ms=0)
    with pytest.raises(RequestError) as refused:
        log.read(Offset(offset), bytes_max=BIG)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_the_first_batch_comes_whole_however_little_was_asked_for() -> None:
    log = pairs(3)
    found = log.read(Offset(2), bytes_max=0)
    assert found is not None
    assert found.read() == batches_of(log)[1]


def test_no_more_than_bytes_max_is_given_and_a_last_batch_without_an_entry_may_be_cut() -> None:
    log = pairs(3, log=OneLog(LogSettings(index_interval_bytes=10_000)).create())
    first = len(batches_of(log)[0])
    found = log.read(Offset(0), bytes_max=first + 10)
    assert found is not None
    assert found.size == first + 10


@pytest.mark.parametrize("more", [1, 10, 80])
def test_a_read_ends_where_a_batch_begins_if_the_index_tells_it(more: int) -> None:
    # With an entry for every batch nothing is sent twice to a reader with a small appetite.
    log = pairs(5, log=OneLog(LogSettings(index_interval_bytes=1)).create())
    first, second, third = map(len, batches_of(log)[:3])
    found = log.read(Offset(0), bytes_max=first + second + min(more, third - 1))
    assert found is not None
    assert found.size == first + second


@pytest.mark.parametrize(("before", "count"), [(0, 0), (2, 1), (8, 4), (10, 5), (99, 5)])
def test_rule_57_nothing_at_or_above_the_bound_is_given(before: int, count: int) -> None:
    assert len(batches_of(pairs(5), before=Offset(before))) == count


def test_rule_58_an_offset_between_bound_and_end_gives_nothing() -> None:
    assert first_read(pairs(5), 8, before=6) == -1


def test_a_bound_inside_a_batch_holds_the_batch_back() -> None:
    assert first_read(pairs(5), 4, before=5) == -1
    assert len(batches_of(pairs(5), before=Offset(5))) == 2


def test_one_read_stays_in_one_segment_and_the_next_goes_on() -> None:
    log = pairs(20, log=OneLog().create())
    assert len(log.segments) > 2
    found = log.read(Offset(0), bytes_max=BIG)
    assert found is not None
    assert found.size == log.segments[0].size
    assert len(values_of(log)) == 40


@given(st.data())
def test_a_reader_that_asks_for_little_or_much_gets_every_batch_once(data: st.DataObject) -> None:
    log = pairs(12, log=OneLog().create())
    offset, seen = Offset(0), []
    while (found := log.read(offset, bytes_max=data.draw(st.integers(0, 400)))) is not None:
        raw, at = found.read(), 0
        while len(raw) - at >= 61 and read_header(raw, at).size <= len(raw) - at:
            header = read_header(raw, at)
            seen.append(header.base_offset)
            at += header.size
            offset = header.next_offset
    assert seen == list(range(0, 24, 2))


def test_a_slice_can_be_sent_by_the_kernel(tmp_path: Path) -> None:
    log = OneLog(LogSettings(), DiskFiles(), root=str(tmp_path)).create()
    pairs(4, log=log)
    found = log.read(Offset(3), bytes_max=BIG)
    assert found is not None
    with (tmp_path / "sent").open("wb") as target:
        sent = os.sendfile(target.fileno(), found.file.fileno(), found.position, found.size)
    assert sent == found.size
    assert (tmp_path / "sent").read_bytes() == b"".join(batches_of(log)[1:])
    log.close()


def test_rule_48_a_disk_that_cannot_be_read_takes_the_log_offline() -> None:
    files, plan, _ = faulty_files()
    log = pairs(3, log=OneLog(LogSettings(), files).create())
    plan.rules.append(FaultRule("read", "*.log"))
    with pytest.raises(StorageError):
        log.read(Offset(2), bytes_max=BIG)
    assert log.offline is not None


def test_rule_55_bytes_that_are_no_batch_are_not_served_and_not_cut() -> None:
    one = OneLog(small_settings(segment_bytes=10_000))
    log = pairs(9, log=one.create())
    size = log.size_bytes
    header = read_header(batches_of(log)[7])
    position = sum(len(batch) for batch in batches_of(log)[:7])
    one.files.open(log.active.path).write_at(position + 8, [bytes(4)])
    with pytest.raises(StorageError):
        log.read(Offset(header.base_offset), bytes_max=BIG)
    assert log.offline is not None
    assert one.files.size_of(log.active.path) == size


def test_a_slice_of_the_newest_segment_outlives_its_roll_and_sync() -> None:
    log = OneLog().create()
    append(log, b"a" * 300)
    found = log.read(Offset(0), bytes_max=BIG)
    assert found is not None
    before = found.read()
    append(log, b"b" * 300)
    assert len(log.segments) == 2
    log.sync()
    assert found.read() == before


def _pieces(log: Log, *, bytes_max: int) -> list[bytes]:
    """Return the whole batches that a consumer gets who goes on where the last piece ended."""
    found, offset = list[bytes](), log.start_offset
    while (piece := log.read(offset, bytes_max=bytes_max)) is not None:
        data, position = piece.read(), 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            if position + header.size > len(data):
                break
            found.append(data[position : position + header.size])
            offset = Offset(header.next_offset)
            position += header.size
    return found


@given(st.integers(1, 1500), st.integers(0, 39))
def test_where_readers_go_on_is_forgotten_with_a_cut(bytes_max: int, kept: int) -> None:
    log = pairs(40)
    before = _pieces(log, bytes_max=bytes_max)
    assert before == batches_of(log)
    truncate(log, Offset(2 * kept))
    # Batches of another size at the same offsets: what was noted of the old ones would be wrong.
    for number in range(40 - kept):
        append(log, b"%d other" % number, b"%d and longer than the one before" % number)
    # Any reader may come first, also one who did not read what lies before.
    for number, batch in reversed(list(enumerate(batches_of(log)))):
        found = log.read(Offset(2 * number), bytes_max=1)
        assert found is not None
        assert found.read() == batch
    after = _pieces(log, bytes_max=bytes_max)
    assert after == batches_of(log)
    assert after[:kept] == before[:kept]
    assert len(after) == 40
