"""What counts as durable, and when (rules 47, 48, 49; L2, L3, L5, Y1, Y2)."""

from __future__ import annotations

import errno
from random import Random

import pytest

from ottla.proto.errors import CorruptionError, InvariantError, StorageError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.log import Log
from ottla.replication.log.manager import LogManager
from ottla.replication.log.state import CLEAN_SHUTDOWN_KEY
from ottla.replication.log.surgery import delete_records, truncate
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyFiles, FaultyStore
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS, OneLog, append, faulty_files, small_settings, values_of


def faulty_log() -> tuple[OneLog, Log, FaultyFiles, FaultPlan]:
    files, plan, _ = faulty_files()
    one = OneLog(files=files)
    return one, one.create(), files, plan


def after_power_cut(one: OneLog, files: FaultyFiles) -> Log:
    """Lose everything that was not synced, and open the log again."""
    files.power.cut(Random(1), Style.DROP)
    log, report = one.open()
    assert report.damage is None
    return log


# -- rule 47 -----------------------------------------------------------------------------------


def test_rule_47_with_fsync_a_replica_holds_what_is_synced() -> None:
    log = OneLog().create()
    append(log, b"a")
    assert log.held_offset == 0
    log.sync()
    assert log.held_offset == log.synced_offset == 1


def test_rule_47_without_fsync_a_replica_holds_what_is_in_the_page_cache() -> None:
    log = OneLog(small_settings(fsync=False)).create()
    append(log, b"a")
    assert (log.held_offset, log.synced_offset) == (1, 0)


def test_l2_what_is_below_the_synced_offset_survives_and_the_rest_need_not() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"synced")
    log.sync()
    append(log, b"not synced")
    assert values_of(after_power_cut(one, files)) == [b"synced"]


# -- jobs --------------------------------------------------------------------------------------


def test_there_is_nothing_to_do_when_all_is_synced() -> None:
    log = OneLog().create()
    append(log, b"a")
    log.sync()
    assert log.begin_sync() is None


def test_y1_an_append_during_a_sync_waits_for_the_next_one() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"before")
    job = log.begin_sync()
    assert job is not None
    job.run()
    append(log, b"during")
    log.finish_sync(job)
    assert log.synced_offset == 1
    assert log.begin_sync() is not None
    assert values_of(after_power_cut(one, files)) == [b"before"]


def test_y1_an_append_during_a_sync_is_covered_by_the_next_one() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"before")
    job = log.begin_sync()
    assert job is not None
    job.run()
    append(log, b"during")
    log.finish_sync(job)
    log.sync()
    assert values_of(after_power_cut(one, files)) == [b"before", b"during"]


def test_y2_a_roll_during_a_sync_leaves_the_new_segments_name_to_the_next_one() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"a" * 300)
    job = log.begin_sync()
    assert job is not None
    append(log, b"b" * 300)
    assert len(log.segments) == 2
    job.run()
    log.finish_sync(job)
    assert log.synced_offset == 1
    log.sync()
    assert len(values_of(after_power_cut(one, files))) == 2


def test_y2_a_second_roll_while_the_first_ones_name_is_synced_is_not_forgotten() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"a" * 300)
    append(log, b"b" * 300)
    job = log.begin_sync()
    assert job is not None
    assert job.sync_directory is not None
    job.run()
    append(log, b"c" * 300)
    assert len(log.segments) == 3
    log.finish_sync(job)
    log.sync()
    assert len(values_of(after_power_cut(one, files))) == 3


def test_y2_a_new_segment_survives_because_its_directory_is_synced_too() -> None:
    one, log, files, _ = faulty_log()
    for number in range(6):
        append(log, b"%d" % number * 300)
    log.sync()
    assert len(values_of(after_power_cut(one, files))) == 6


def test_two_jobs_share_a_segment_and_the_second_outlives_the_first() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"a" * 300)
    sync = log.begin_sync()
    append(log, b"b" * 300)
    assert len(log.segments) == 2
    checkpoint = log.begin_checkpoint()
    assert sync is not None
    assert checkpoint is not None
    sync.run()
    log.finish_sync(sync)
    checkpoint.run()
    log.store.commit(log.checkpoint_changes(checkpoint))
    log.finish_checkpoint(checkpoint)
    assert log.synced_offset == log.state.recovery_point == 2
    assert len(values_of(after_power_cut(one, files))) == 2


def test_records_may_be_deleted_while_their_segment_is_synced() -> None:
    log = OneLog(small_settings(fsync=False)).create()
    append(log, b"a" * 300)
    append(log, b"b" * 300)
    job = log.begin_sync()
    assert job is not None
    log.advance_high_watermark(log.end_offset)
    delete_records(log, Offset(1), now_ms=NOW_MS)
    assert len(log.segments) == 1
    job.run()
    log.finish_sync(job)
    assert log.synced_offset == 2


def test_rule_49a_nothing_is_cut_and_nothing_closed_while_a_job_runs() -> None:
    log = OneLog().create()
    append(log, b"a")
    job = log.begin_sync()
    assert job is not None
    with pytest.raises(InvariantError):
        truncate(log, Offset(0))
    with pytest.raises(InvariantError):
        log.close()
    job.run()
    log.finish_sync(job)
    log.close()


# -- checkpoint --------------------------------------------------------------------------------


def test_l3_a_checkpoint_moves_the_recovery_point_to_the_end() -> None:
    log = OneLog().create()
    for number in range(6):
        append(log, b"%d" % number * 300)
    log.checkpoint()
    state = log.state
    assert (state.recovery_point, state.recovery_base) == (6, log.active.base_offset)
    assert state.recovery_position == log.active.size


def test_l3_a_start_after_a_checkpoint_looks_at_nothing_below_it() -> None:
    one = OneLog()
    log = one.create()
    for _ in range(6):
        append(log, b"x" * 100)
    log.checkpoint()
    below = log.size_bytes
    append(log, b"y")
    above = log.size_bytes - below
    log.close()
    _, report = one.open()
    assert report.checked_bytes == above


def test_a_checkpoint_with_nothing_new_is_no_work() -> None:
    log = OneLog().create()
    append(log, b"a")
    log.checkpoint()
    assert log.begin_checkpoint() is None
    log.advance_high_watermark(Offset(1))
    assert log.begin_checkpoint() is not None


def test_rule_49_what_is_appended_during_a_checkpoint_is_not_below_its_recovery_point() -> None:
    one, log, files, _ = faulty_log()
    append(log, b"a")
    job = log.begin_checkpoint()
    assert job is not None
    job.run()
    append(log, b"b")
    log.store.commit(log.checkpoint_changes(job))
    log.finish_checkpoint(job)
    assert (log.state.recovery_point, log.synced_offset, log.end_offset) == (1, 1, 2)
    assert values_of(after_power_cut(one, files)) == [b"a"]


def test_only_the_newest_snapshots_are_kept() -> None:
    one = OneLog()
    log = one.create()
    for _ in range(6):
        append(log, b"x")
        log.checkpoint()
    assert log.snapshots == [4, 5, 6]
    assert len(list(one.store.scan(b"producers/t-0/"))) == 3


def test_rule_30_the_high_watermark_never_moves_back() -> None:
    log = OneLog().create()
    append(log, b"a", b"b")
    log.advance_high_watermark(Offset(2))
    log.advance_high_watermark(Offset(1))
    assert log.high_watermark == 2
    with pytest.raises(InvariantError):
        log.advance_high_watermark(Offset(3))


# -- rule 48 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("operation", ["sync", "write"])
def test_rule_48_an_error_takes_the_log_offline_for_ever(operation: str, code: int) -> None:
    one, log, files, plan = faulty_log()
    append(log, b"a")
    log.sync()
    plan.rules.append(FaultRule(operation, "*.log", code=code))
    with pytest.raises(StorageError):
        write_and_sync(log)
    plan.rules.clear()
    for use in (
        lambda: append(log, b"c"),
        log.sync,
        log.checkpoint,
        lambda: log.read(Offset(0), bytes_max=1),
        lambda: log.append_as_follower(b"", now_ms=NOW_MS),
        lambda: log.maybe_roll(NOW_MS),
        lambda: log.assign_epoch(LeaderEpoch(5)),
        lambda: truncate(log, Offset(1)),
    ):
        with pytest.raises(StorageError, match="offline"):
            use()
    assert log.synced_offset == 1
    assert values_of(after_power_cut(one, files)) == [b"a"]


def write_and_sync(log: Log) -> None:
    append(log, b"b")
    log.sync()


def test_rule_48_a_directory_that_cannot_be_synced_takes_the_log_offline() -> None:
    _, log, _, plan = faulty_log()
    append(log, b"a" * 300)
    append(log, b"b" * 300)
    plan.rules.append(FaultRule("sync_dir", "*"))
    with pytest.raises(StorageError):
        log.sync()
    assert log.offline is not None
    assert log.synced_offset == 0


def test_d4_a_store_that_cannot_commit_takes_the_log_offline() -> None:
    files, plan, power = faulty_files()
    store = FaultyStore(MemoryStateStore(), power, plan)
    log = OneLog(files=files, store=store).create()
    plan.rules.append(FaultRule("commit", "*"))
    with pytest.raises(StorageError):
        log.assign_epoch(LeaderEpoch(1))
    assert log.offline is not None


def two_logs() -> tuple[LogManager, Log, Log, FaultPlan]:
    files, plan, _ = faulty_files()
    manager = LogManager(files, MemoryStateStore(), "/data", lambda topic: small_settings())
    manager.open(now_ms=NOW_MS)
    first, second = (manager.create(TopicPartition("t", number)) for number in range(2))
    for log in (first, second):
        log.assign_epoch(LeaderEpoch(0))
        append(log, b"a" * 100)
    return manager, first, second, plan


def test_m4_a_failing_disk_takes_every_log_on_it_offline() -> None:
    manager, first, second, plan = two_logs()
    plan.rules.append(FaultRule("sync", "*/t-0/*.log"))
    with pytest.raises(StorageError):
        first.sync()
    assert manager.offline is not None
    with pytest.raises(StorageError, match="offline"):
        append(second, b"b")
    with pytest.raises(StorageError, match="offline"):
        manager.create(TopicPartition("t", 2))


def test_m4_bad_bytes_are_the_trouble_of_one_log_alone() -> None:
    manager, first, second, _ = two_logs()
    first.fail("read", CorruptionError("bad bytes"))
    assert manager.offline is None
    append(second, b"b")
    assert manager.checkpoint() == 1


def test_m4_a_manager_with_an_offline_log_leaves_no_proof_of_a_clean_stop() -> None:
    manager, first, _, _ = two_logs()
    first.fail("read", CorruptionError("bad bytes"))
    manager.close(broker_epoch=3)
    again = LogManager(
        manager._files, manager._store, "/data", lambda topic: small_settings()
    ).open(now_ms=NOW_MS)
    assert again.clean_broker_epoch is None


def test_m4_a_manager_whose_checkpoint_failed_closes_without_proof() -> None:
    manager, _, _, plan = two_logs()
    plan.rules.append(FaultRule("sync", "*.log"))
    with pytest.raises(StorageError):
        manager.checkpoint()
    manager.close(broker_epoch=3)
    assert manager._store.get(CLEAN_SHUTDOWN_KEY) is None
