"""What goes on beside the appends: cleaning, retention, deletion, and too few descriptors."""

from __future__ import annotations

import errno

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset, TopicPartition
from ottla.replication.compaction.cleaner import begin_cleaning, clean, finish_cleaning
from ottla.replication.log.log import Log
from ottla.replication.log.lookup import TimedOffset, first_at_or_after, latest_timestamp
from ottla.replication.log.manager import LogManager
from ottla.replication.log.surgery import delete_records
from ottla.replication.settings import LogSettings
from ottla.replication.storage.faults import FaultRule
from ottla.replication.storage.memory import MemoryStateStore
from tests.builders import (
    EPOCH,
    NOW_MS,
    OneLog,
    append,
    committed,
    faulty_files,
    records_of,
    small_settings,
    values_of,
)

FIRST, SECOND, THIRD = TopicPartition("t", 0), TopicPartition("u", 0), TopicPartition("w", 0)
DAY_MS = 86_400_000


class Node:
    """A data directory with two partitions; something is written to the first."""

    def __init__(self, settings: LogSettings) -> None:
        self.files, self.plan, _ = faulty_files()
        self.manager = LogManager(self.files, MemoryStateStore(), "/data", lambda topic: settings)
        self.manager.open(now_ms=NOW_MS)
        self.log = self.manager.create(FIRST)
        self.other = self.manager.create(SECOND)
        self.log.assign_epoch(EPOCH)

    def write(self, count: int) -> None:
        for number in range(count):
            append(self.log, (b"k%d" % (number % 5), b"v" * 60))
        committed(self.log)

    def require_online(self) -> None:
        assert self.manager.offline is None
        assert self.log.offline is None
        assert self.other.offline is None

    def cleaned_files(self) -> list[str]:
        return [name for name in self.files.list_dir("/data/t-0") if ".cleaned" in name]


# -- cleaning ------------------------------------------------------------------------------------


def compacted(**changes: object) -> Node:
    node = Node(small_settings(compact=True, delete=True, **changes))
    node.write(40)
    return node


def latest_of_each_key(log: Log) -> dict[bytes | None, bytes | None]:
    return {record.key: record.value for record in records_of(log)}


@pytest.mark.parametrize("delay_ms", [0, 60_000])
def test_a_cleaning_whose_source_was_purged_is_abandoned_and_takes_nothing_offline(
    delay_ms: int,
) -> None:
    node = compacted(file_delete_delay_ms=delay_ms)
    job = begin_cleaning(node.log, now_ms=NOW_MS)
    assert job is not None
    delete_records(node.log, Offset(20), now_ms=NOW_MS)
    node.manager.retain(now_ms=NOW_MS + delay_ms)
    left = values_of(node.log)
    job.run()
    assert job.is_abandoned
    cleaned_to = node.log.state.cleaned_to
    finish_cleaning(node.log, job)
    assert node.log.state.cleaned_to == cleaned_to
    assert values_of(node.log) == left
    assert node.cleaned_files() == []
    node.require_online()


def test_a_cleaning_goes_on_with_a_source_that_is_deleted_but_not_yet_purged() -> None:
    node = compacted(file_delete_delay_ms=60_000)
    job = begin_cleaning(node.log, now_ms=NOW_MS)
    assert job is not None
    delete_records(node.log, Offset(20), now_ms=NOW_MS)
    job.run()
    finish_cleaning(node.log, job)
    assert not job.is_abandoned
    assert len(latest_of_each_key(node.log)) == 5
    node.require_online()


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_after_an_abandoned_cleaning_the_next_one_does_its_work(nth: int) -> None:
    node = compacted()
    before = latest_of_each_key(node.log)
    job = begin_cleaning(node.log, now_ms=NOW_MS)
    assert job is not None
    # The job opens a source three times, and each time it looks twice before it gives up. The
    # second rule does not see the open at which the first one strikes.
    name = node.log.segments[0].path.rpartition("/")[2]
    node.plan.rules += [FaultRule("open", name, nth, errno.ENOENT) for _ in range(2)]
    job.run()
    assert job.is_abandoned
    finish_cleaning(node.log, job)
    node.require_online()
    assert node.cleaned_files() == []

    node.plan.rules.clear()
    report = clean(node.log, now_ms=NOW_MS)
    assert report is not None
    assert report.removed_records > 0
    assert latest_of_each_key(node.log) == before


# -- retention and deletion ----------------------------------------------------------------------


def test_the_newest_segment_goes_too_when_all_of_it_has_expired() -> None:
    node = Node(small_settings(retention_ms=1000, segment_ms=10**9))
    node.write(1)
    assert node.manager.retain(now_ms=NOW_MS + 1000) == 0
    assert node.manager.retain(now_ms=NOW_MS + DAY_MS) == 1
    assert records_of(node.log) == []
    assert node.log.start_offset == node.log.end_offset == 1
    node.require_online()


def test_an_expired_segment_that_is_not_committed_stays() -> None:
    node = Node(small_settings(retention_ms=1000, segment_ms=10**9))
    append(node.log, b"a")
    assert node.manager.retain(now_ms=NOW_MS + DAY_MS) == 0
    assert values_of(node.log) == [b"a"]
    assert len(node.log.segments) == 1


def test_the_files_of_a_deleted_partition_go_with_the_next_retain() -> None:
    node = Node(small_settings())
    node.write(10)
    node.manager.delete(FIRST)
    assert node.files.list_dir("/data") == ["t-0.0-delete", "u-0"]
    node.manager.retain(now_ms=NOW_MS)
    assert node.files.list_dir("/data") == ["u-0"]
    assert node.manager.offline is None


# -- too few descriptors -------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_read_without_descriptors_is_refused_and_nothing_goes_offline(code: int) -> None:
    node = Node(small_settings())
    node.write(20)
    node.plan.rules.append(FaultRule("open", "*.log", code=code))
    with pytest.raises(StorageError, match="too many open files"):
        node.log.read(Offset(0), bytes_max=100)
    node.require_online()
    assert len(values_of(node.log)) == 20


def test_a_look_up_by_time_without_descriptors_is_refused_and_nothing_goes_offline() -> None:
    node = Node(small_settings())
    node.write(20)
    node.plan.rules.append(FaultRule("open", "*.log", code=errno.EMFILE))
    with pytest.raises(StorageError, match="too many open files"):
        first_at_or_after(node.log, NOW_MS)
    node.require_online()
    assert first_at_or_after(node.log, NOW_MS) == TimedOffset(NOW_MS, Offset(0))


def test_a_creation_without_descriptors_is_refused_and_may_be_tried_again() -> None:
    node = Node(small_settings())
    node.plan.rules.append(FaultRule("open", "*.log", code=errno.EMFILE))
    with pytest.raises(StorageError, match="too many open files"):
        node.manager.create(THIRD)
    assert THIRD not in node.manager.logs
    node.require_online()
    log = node.manager.create(THIRD)
    log.assign_epoch(EPOCH)
    append(log, b"a")
    assert values_of(log) == [b"a"]


# -- the latest timestamp ------------------------------------------------------------------------


def test_the_latest_timestamp_passes_over_a_batch_that_cleaning_has_emptied() -> None:
    log = OneLog(small_settings(compact=True, min_cleanable_dirty_ratio=0.0)).create()
    late = NOW_MS + 500
    # The last batch of its producer stays for its sequence numbers, without its record.
    append(log, (b"k", b"1" * 200), timestamps=[late], producer_id=7, sequence=0)
    for number in range(12):
        append(log, (b"k", b"v" * 200), timestamps=[NOW_MS + number])
    committed(log)
    assert latest_timestamp(log) == TimedOffset(late, Offset(0))
    assert clean(log, now_ms=NOW_MS + 1000) is not None
    assert latest_timestamp(log) == TimedOffset(NOW_MS + 11, Offset(12))
