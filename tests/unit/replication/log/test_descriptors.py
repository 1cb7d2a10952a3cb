"""No descriptor is left: nothing is lost, nothing goes offline, and it is over when it is over.

Running out of descriptors is no fault of the disk. Whatever needed one says no, and may be asked
again; what a sync itself answers stays final, whatever number it has (Y3, Y4, M5, B2).
"""

from __future__ import annotations

import errno

import pytest

from ottla.proto.errors import ErrorCode, RequestError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager, StartReport
from ottla.replication.log.state import NO_TOPIC_ID, producers_prefix
from ottla.replication.log.surgery import truncate
from ottla.replication.settings import LogSettings
from ottla.replication.storage.failpoints import arm, disarm_all
from ottla.replication.storage.memory import MemoryStateStore
from tests.builders import EPOCH, NOW_MS, OneLog, append, produced, small_settings, values_of
from tests.unit.replication.log.scarce import ScarceFiles

FIRST = TopicPartition("t", 0)
MANY = 200
# For one group of a checkpoint and the files of some logs, but not for all of these at once.
FEW = 300


class Node:
    """A data directory with few descriptors, to be started as often as a test likes."""

    def __init__(self, settings: LogSettings | None = None) -> None:
        self.files = ScarceFiles()
        self.files.make_dir("/data")
        self.store = MemoryStateStore()
        self.settings = settings or small_settings()
        self.report = StartReport(None, {}, {}, [])

    def start(self) -> LogManager:
        manager = LogManager(self.files, self.store, "/data", lambda topic: self.settings)
        self.report = manager.open(now_ms=NOW_MS)
        return manager


def lead(manager: LogManager, count: int) -> list[Log]:
    made = manager.make({TopicPartition("t", index): NO_TOPIC_ID for index in range(count)})
    manager.adopt(made)
    for log in made.values():
        log.assign_epoch(LeaderEpoch(0))
    return list(made.values())


def one_log() -> tuple[Log, ScarceFiles]:
    files = ScarceFiles()
    files.make_dir("/data")
    return OneLog(files=files).create(), files


# -- writing ---------------------------------------------------------------------------------------


def test_b2_batches_that_find_no_descriptor_are_refused_before_anything_is_placed() -> None:
    log, files = one_log()
    files.take_all()
    batch = produced(b"a", producer_id=7)
    with pytest.raises(StorageError, match="too many open files"):
        log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS)
    assert log.offline is None
    assert (log.end_offset, list(log.producers)) == (0, [])
    files.give_all()
    # The same batch, with the same number: it was never taken for one that is here.
    assert not log.append_as_leader(batch, epoch=EPOCH, now_ms=NOW_MS).is_duplicate
    assert values_of(log) == [b"a"]


def test_b1_a_roll_that_finds_no_descriptor_refuses_that_batch_and_no_other() -> None:
    log, files = one_log()
    append(log, b"first")
    files.take_all()
    large = produced(b"x" * 500)
    first, second = log.append_all_as_leader([produced(b"fits"), large], epoch=EPOCH, now_ms=NOW_MS)
    assert not isinstance(first, RequestError)
    assert isinstance(second, RequestError)
    assert second.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.offline is None
    # No batch goes past files that may be half made.
    with pytest.raises(RequestError, match="too many open files"):
        append(log, b"small")
    files.give_all()
    append(log, b"small")
    log.append_as_leader(large, epoch=EPOCH, now_ms=NOW_MS)
    assert values_of(log) == [b"first", b"fits", b"small", b"x" * 500]
    assert [segment.base_offset for segment in log.segments] == [0, 2, 3]


def test_a_roll_that_is_cut_short_leaves_no_file_behind() -> None:
    log, files = one_log()
    append(log, b"a")
    before = files.list_dir(log.directory)
    # Two for the indexes of the old segment, one after another; one for the new file alone.
    files.limit = files.open_count + 1
    with pytest.raises(StorageError, match="too many open files"):
        log.roll()
    assert files.list_dir(log.directory) == before
    files.give_all()
    log.roll()
    append(log, b"b")
    assert values_of(log) == [b"a", b"b"]


def test_index_entries_that_find_no_descriptor_wait_and_are_not_lost() -> None:
    files = ScarceFiles()
    files.make_dir("/data")
    log = OneLog(small_settings(segment_bytes=1 << 20), files).create()
    append(log, b"a" * 50)
    files.take_all()
    for _ in range(1200):
        append(log, b"a" * 50)
    assert log.offline is None
    files.give_all()
    append(log, b"a" * 50)
    assert len(values_of(log)) == 1202
    log.checkpoint()
    assert files.size_of(log.active.stem + ".index") == 8 * len(log.active.indexes.offsets)


@pytest.mark.parametrize("before", ["cut", "opened anew"])
def test_b2_an_append_after_a_cut_or_a_start_opens_nothing_once_it_is_prepared(before: str) -> None:
    files = ScarceFiles()
    files.make_dir("/data")
    one = OneLog(small_settings(segment_bytes=1 << 20), files)
    log = one.create()
    for _ in range(20):
        append(log, b"a" * 200)
    log.checkpoint()
    if before == "cut":
        truncate(log, Offset(15))
    else:
        log.close()
        log, _ = one.open()
    count = log.end_offset
    log.active.prepare()
    log.handles.let_go()
    log.active.indexes.offsets.forget_map()
    log.active.indexes.times.forget_map()
    files.take_all()
    for _ in range(5):
        append(log, b"a" * 200)
    assert log.offline is None
    files.give_all()
    assert len(values_of(log)) == count + 5


def test_files_that_are_only_read_make_way_for_one_that_is_written() -> None:
    log, files = one_log()
    for value in (b"a" * 400, b"b" * 400, b"c" * 400):
        append(log, value)
    log.checkpoint()
    log.active.release()
    assert len(values_of(log)) == 3
    assert len(log.handles) > 0
    files.take_all()
    append(log, b"d")
    assert log.end_offset == 4


# -- syncing ---------------------------------------------------------------------------------------


def test_y4_a_sync_that_cannot_open_the_directory_may_be_tried_again() -> None:
    log, files = one_log()
    append(log, b"a")
    log.roll()
    append(log, b"b")
    files.take_all()
    with pytest.raises(StorageError, match="too many open files"):
        log.sync()
    assert log.offline is None
    assert (log.synced_offset, log.unsynced.jobs_running) == (0, 0)
    files.give_all()
    files.synced.clear()
    log.sync()
    # Also what was synced the first time: it was not believed.
    assert files.synced == [segment.path for segment in log.segments]
    assert log.synced_offset == 2


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.EIO])
@pytest.mark.parametrize("work", [Log.sync, Log.checkpoint])
def test_rule_48_an_error_of_a_sync_itself_is_final_whatever_its_number(
    code: int, work: object
) -> None:
    log, files = one_log()
    append(log, b"a")
    files.sync_error = code
    with pytest.raises(StorageError, match="is offline"):
        work(log)  # type: ignore[operator]
    assert log.offline is not None
    assert log.synced_offset == 0


def test_i3_indexes_of_a_checkpoint_that_found_no_descriptor_are_synced_by_the_next() -> None:
    log, files = one_log()
    for value in (b"a" * 300, b"b" * 300, b"c" * 300):
        append(log, value)
    assert len(log.segments) == 3
    files.limit = files.open_count + 3
    with pytest.raises(StorageError, match="too many open files"):
        log.checkpoint()
    # Enough for the index files, and none for the directory.
    files.limit = files.open_count + 6
    with pytest.raises(StorageError, match="too many open files"):
        log.checkpoint()
    assert log.offline is None
    files.give_all()
    files.synced.clear()
    log.checkpoint()
    wanted = [
        segment.stem + suffix
        for segment in log.segments
        for suffix in (".log", ".index", ".timeindex")
    ]
    assert sorted(files.synced) == sorted(wanted)
    assert log.state.recovery_point == 3
    append(log, b"d")
    files.synced.clear()
    log.checkpoint()
    assert sorted(files.synced) == sorted(wanted[-3:])


# -- many logs -------------------------------------------------------------------------------------


def test_m5_a_checkpoint_of_many_logs_needs_few_descriptors() -> None:
    node = Node()
    manager = node.start()
    for log in lead(manager, MANY):
        append(log, b"a")
    node.files.limit = FEW
    assert manager.checkpoint() == MANY
    assert all(log.state.recovery_point == 1 for log in manager.logs.values())
    # And of many logs those that rest give their files back.
    assert node.files.open_count == 0


@pytest.mark.parametrize("is_synced", [True, False])
def test_m5_a_checkpoint_makes_way_for_itself_when_the_logs_hold_every_descriptor(
    is_synced: bool,
) -> None:
    node = Node()
    manager = node.start()
    for log in lead(manager, MANY):
        append(log, b"a")
        if is_synced:
            log.sync()
    node.files.take_all()
    assert manager.checkpoint() == MANY
    assert all(log.offline is None for log in manager.logs.values())


def test_r4_what_many_logs_recovered_is_synced_with_few_descriptors() -> None:
    node = Node()
    for log in lead(node.start(), MANY):
        append(log, b"a")
        log.close()
    node.files.limit = FEW
    manager = node.start()
    assert node.report.notes == []
    assert {log.held_offset for log in manager.logs.values()} == {1}
    assert {log.state.recovery_point for log in manager.logs.values()} == {1}
    assert node.files.open_count == 0


def test_a_log_that_wrote_meanwhile_keeps_its_file() -> None:
    node = Node()
    manager = node.start()
    logs = lead(manager, MANY)
    append(logs[0], b"a")
    append(logs[1], b"a")
    (jobs,) = manager.checkpoint_groups()
    append(logs[0], b"b")
    manager.finish_jobs(jobs, manager.run_jobs(jobs))
    assert [log.active.is_open for log in logs[:2]] == [True, False]
    logs[0].sync()
    assert logs[0].synced_offset == 2


def test_a_log_that_finds_no_descriptor_stops_no_other_and_leaves_no_job_behind() -> None:
    node = Node()
    manager = node.start()
    # Not so many that they give their files back.
    logs = lead(manager, 4)
    for log in logs:
        append(log, b"a")
    # For one index file, where each log needs two.
    node.files.limit = node.files.open_count + 1
    jobs = manager.begin_checkpoint()
    manager.finish_jobs(jobs, manager.run_jobs(jobs))
    assert manager.offline is None
    assert [log.unsynced.jobs_running for log in logs] == [0, 0, 0, 0]
    node.files.give_all()
    manager.delete(FIRST)
    assert manager.checkpoint() <= 3
    assert {log.state.recovery_point for log in logs[1:]} == {1}


def test_y4_a_job_that_finds_no_descriptor_is_given_back_and_the_others_count() -> None:
    manager = Node().start()
    logs = lead(manager, 3)
    for log in logs:
        append(log, b"a")
    arm("log.sync.before", "error(EMFILE)@1")
    try:
        with pytest.raises(StorageError, match="too many open files"):
            manager.checkpoint()
    finally:
        disarm_all()
    assert [log.state.recovery_point for log in logs] == [0, 1, 1]
    assert [log.unsynced.jobs_running for log in logs] == [0, 0, 0]
    assert manager.checkpoint() == 1


@pytest.mark.parametrize("room", [0, 4])
def test_rule_50_a_stop_that_could_not_checkpoint_everything_leaves_no_marker(room: int) -> None:
    node = Node()
    manager = node.start()
    log = lead(manager, 1)[0]
    append(log, b"a")
    log.roll()
    # For no index, or for all the indexes and not for the directory.
    node.files.limit = node.files.open_count + room
    with pytest.raises(StorageError, match="too many open files"):
        manager.close(broker_epoch=3)
    node.files.give_all()
    again = node.start()
    assert node.report.clean_broker_epoch is None
    assert values_of(again.logs[FIRST]) == [b"a"]


# -- making and deleting ---------------------------------------------------------------------------


def test_logs_that_could_not_be_made_are_made_at_the_second_try() -> None:
    node = Node()
    manager = node.start()
    wanted = {TopicPartition("t", index): NO_TOPIC_ID for index in range(3)}
    for room in range(3):
        node.files.limit = node.files.open_count + room
        if room < 2:
            with pytest.raises(StorageError, match="too many open files"):
                manager.make(wanted)
    assert manager.offline is None
    node.files.give_all()
    manager.adopt(manager.make(wanted))
    again = node.start()
    assert (set(again.logs), node.report.damaged) == (set(wanted), {})


def test_a_deletion_that_finds_no_descriptor_takes_nothing_offline_and_brings_nothing_back() -> (
    None
):
    node = Node()
    manager = node.start()
    first, second = lead(manager, 2)
    append(first, b"old", producer_id=7)
    manager.checkpoint()
    node.files.limit = 0
    with pytest.raises(StorageError, match="too many open files"):
        manager.delete(FIRST)
    assert (manager.offline, second.offline) == (None, None)
    assert dict(node.store.scan(producers_prefix("t-0"))) == {}
    node.files.give_all()
    log = manager.create(FIRST)
    assert (values_of(log), list(log.producers)) == ([], [])
    log.assign_epoch(LeaderEpoch(0))
    append(log, b"new")
    manager.close(broker_epoch=1)
    again = node.start().logs[FIRST]
    assert values_of(again) == [b"new"]
    assert list(again.producers) == []
