"""All the logs of a data directory (M1 to M3), and files that are never too many."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ottla.proto.errors import CorruptionError, InvariantError
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log.handles import Handles
from ottla.replication.log.manager import LogManager, partition_named
from ottla.replication.log.place import create_log
from ottla.replication.log.state import CLEAN_SHUTDOWN_KEY, Intent, decode_state, partition_key
from ottla.replication.settings import LogSettings
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.faults import PowerCutError
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.storage.ports import Files
from ottla.replication.storage.unsynced import Style
from tests.builders import NOW_MS, OneLog, append, small_settings, values_of
from tests.unit.replication.log.one_directory import FIRST, SECOND, Node, lead


class CountingStore(MemoryStateStore):
    """A state store that counts its transactions."""

    __slots__ = ("commits",)

    def __init__(self, disk: dict[bytes, bytes] | None = None) -> None:
        super().__init__(disk)
        self.commits = 0

    def commit(self, changes: Mapping[bytes, bytes | None]) -> None:
        self.commits += 1
        super().commit(changes)


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("t-0", ("t", 0)),
        ("my-topic-12", ("my-topic", 12)),
        ("a.b_c-3", ("a.b_c", 3)),
        ("t-01", None),
        ("t", None),
        ("-1", None),
        ("t-x", None),
        ("t/-1", None),
        ("t-0.0-delete", None),
    ],
)
def test_a_directory_is_named_after_topic_and_partition(
    name: str, partition: tuple[str, int] | None
) -> None:
    assert partition_named(name) == (partition and TopicPartition(*partition))


# -- rule 50 -----------------------------------------------------------------------------------


def test_rule_50_a_clean_stop_leaves_its_broker_epoch_for_the_next_start() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a")
    manager.close(broker_epoch=41)
    manager = node.start()
    assert node.report.clean_broker_epoch == 41
    assert values_of(manager.logs[FIRST]) == [b"a"]
    assert node.report.recovered == {}


def test_m1_rule_50_the_proof_is_taken_at_start_so_that_a_crash_counts_as_unclean() -> None:
    node = Node()
    node.start().close(broker_epoch=41)
    node.start()
    assert CLEAN_SHUTDOWN_KEY not in node.records
    node.start()
    assert node.report.clean_broker_epoch is None


def test_m1_the_proof_is_gone_before_anything_else_is_touched() -> None:
    node = Node()
    lead(node.start(), FIRST, b"a")
    node.power.crash()
    node.records[CLEAN_SHUTDOWN_KEY] = (41).to_bytes(8, "big")
    # The first moments of a start are before and after that commit.
    node.power.cut_at = node.power.moments + 2
    with pytest.raises(PowerCutError):
        node.start()
    assert CLEAN_SHUTDOWN_KEY not in node.records


def test_rule_50_after_a_crash_there_is_no_proof() -> None:
    node = Node()
    lead(node.start(), FIRST, b"a")
    node.power.crash()
    node.start()
    assert node.report.clean_broker_epoch is None
    assert FIRST in node.report.recovered


# -- partitions --------------------------------------------------------------------------------


def test_a_created_partition_survives_a_power_cut_at_once() -> None:
    node = Node()
    node.start().create(FIRST)
    node.power.cut(Random(1), Style.DROP)
    assert FIRST in node.start().logs
    assert node.report.damaged == {}


def test_a_partition_is_created_once() -> None:
    manager = Node().start()
    manager.create(FIRST)
    with pytest.raises(InvariantError):
        manager.create(FIRST)


def test_m2_rule_56_a_deleted_partition_is_renamed_and_forgotten() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a")
    manager.checkpoint()
    manager.delete(FIRST)
    assert manager.logs == {}
    assert node.records == {}
    assert node.disk.list_dir("/data") == ["t-0.0-delete"]


def test_m2_the_files_of_a_deleted_partition_go_at_the_next_start() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a")
    manager.delete(FIRST)
    node.start()
    assert node.disk.list_dir("/data") == []
    assert node.report.damaged == {}


def test_a_partition_that_is_created_again_is_empty() -> None:
    node = Node()
    manager = node.start()
    for _ in range(3):
        lead(manager, FIRST, b"a", b"b")
        manager.checkpoint()
        manager.delete(FIRST)
    log = lead(manager, FIRST, b"new")
    assert values_of(log) == [b"new"]
    log.sync()
    node.power.crash()
    assert values_of(node.start().logs[FIRST]) == [b"new"]


def test_m2_a_deletion_that_is_cut_short_anywhere_is_finished_or_never_began() -> None:
    outcomes = set()
    for moment in range(1, 12):
        node = Node()
        manager = node.start()
        lead(manager, FIRST, b"a").sync()
        node.power.cut_at = node.power.moments + moment
        try:
            manager.delete(FIRST)
        except PowerCutError:
            node.power.cut(Random(moment), Style.MIXED)
        else:
            node.power.crash()
        manager = node.start()
        assert node.report.damaged == {}
        if FIRST in manager.logs:
            assert values_of(manager.logs[FIRST]) == [b"a"]
        else:
            assert partition_key("t-0") not in node.records
            assert "t-0" not in node.disk.list_dir("/data")
        outcomes.add(FIRST in manager.logs)
    assert outcomes == {True, False}


def test_m2_deleting_an_offline_partition_is_finished_after_a_crash() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a").fail("read", CorruptionError("bad bytes"))
    # Before and after the commit of the intent; then, renamed already, the sync of the directory.
    node.power.cut_at = node.power.moments + 3
    with pytest.raises(PowerCutError):
        manager.delete(FIRST)
    node.power.crash()
    assert node.disk.list_dir("/data") == ["t-0.0-delete"]
    assert node.start().logs == {}
    assert node.report.damaged == {}
    assert partition_key("t-0") not in node.records


def test_m2_the_intent_to_delete_is_committed_before_the_directory_is_renamed() -> None:
    node = Node()
    manager = node.start()
    lead(manager, FIRST, b"a").sync()
    # Before and after the commit of the intent; then the sync of the rename begins.
    node.power.cut_at = node.power.moments + 3
    with pytest.raises(PowerCutError):
        manager.delete(FIRST)
    state = decode_state("t-0", node.records[partition_key("t-0")])
    assert state.pending.intent is Intent.DELETE


# -- what a start finds ------------------------------------------------------------------------


def test_rule_8_a_missing_directory_is_damage() -> None:
    node = Node()
    lead(node.start(), FIRST, b"a").sync()
    node.power.crash()
    for name in node.disk.list_dir("/data/t-0"):
        node.disk.remove(f"/data/t-0/{name}")
    node.disk.remove_dir("/data/t-0")
    manager = node.start()
    assert list(node.report.damaged) == [FIRST]
    assert "missing" in node.report.damaged[FIRST]
    assert FIRST not in manager.logs


def test_rule_8_a_missing_directory_whose_record_is_unreadable_is_damage() -> None:
    node = Node()
    node.records[partition_key("t-0")] = b"no record"
    node.start()
    assert list(node.report.damaged) == [FIRST]
    assert "missing" in node.report.damaged[FIRST]


@pytest.mark.parametrize("name", ["photos-delete", "t-0-delete", "t.0-delete", "t-0.x-delete"])
def test_a_strangers_directory_is_not_taken_for_a_deleted_partition(name: str) -> None:
    node = Node()
    node.disk.make_dir(f"/data/{name}")
    node.disk.open(f"/data/{name}/cat.jpg", create=True)
    node.start()
    assert node.disk.exists(f"/data/{name}/cat.jpg")


def test_strangers_are_left_alone_and_told() -> None:
    node = Node()
    lead(node.start(), FIRST, b"a").sync()
    node.power.crash()
    node.disk.make_dir("/data/lost+found")
    strange = ["/data/notes.txt", "/data/lost+found/x", "/data/t-0/notes.txt"]
    for path in strange:
        node.disk.open(path, create=True)
    manager = node.start()
    assert all(node.disk.exists(path) for path in strange)
    assert list(manager.logs) == [FIRST]
    assert any("notes.txt" in note for note in node.report.recovered[FIRST].notes)


def test_a_damaged_partition_is_kept_offline_and_the_others_go_on() -> None:
    node = Node()
    manager = node.start()
    for partition in (FIRST, SECOND):
        lead(manager, partition, b"a")
    manager.checkpoint()
    node.power.crash()
    node.disk.open(f"/data/t-0/{0:020d}.log").truncate(10)
    manager = node.start()
    assert list(node.report.damaged) == [FIRST]
    assert manager.logs[FIRST].offline is not None
    assert values_of(manager.logs[SECOND]) == [b"a"]
    assert node.disk.size_of(f"/data/t-0/{0:020d}.log") == 10


# -- M3: one transaction -----------------------------------------------------------------------


def test_m3_one_transaction_moves_all_the_recovery_points() -> None:
    files = MemoryFiles()
    files.make_dir("/data")
    store = CountingStore()
    manager = LogManager(files, store, "/data", lambda topic: small_settings())
    manager.open(now_ms=NOW_MS)
    for number in range(30):
        lead(manager, TopicPartition("t", number), b"a")
    before = store.commits
    assert manager.checkpoint() == 30
    assert store.commits == before + 1
    assert manager.checkpoint() == 0
    assert store.commits == before + 1


def test_m3_what_a_start_recovered_is_settled_in_one_transaction() -> None:
    files = MemoryFiles()
    files.make_dir("/data")
    records: dict[bytes, bytes] = {}
    manager = LogManager(files, MemoryStateStore(records), "/data", lambda topic: LogSettings())
    manager.open(now_ms=NOW_MS)
    for number in range(20):
        lead(manager, TopicPartition("t", number), b"a")
    store = CountingStore(records)
    again = LogManager(files, store, "/data", lambda topic: LogSettings())
    assert len(again.open(now_ms=NOW_MS).recovered) == 20
    assert store.commits == 1
    assert all(log.state.recovery_point == 1 for log in again.logs.values())


def test_each_topic_has_its_own_settings() -> None:
    files = MemoryFiles()
    files.make_dir("/data")
    topics: Mapping[str, LogSettings] = {
        "small": small_settings(segment_bytes=100),
        "large": LogSettings(),
    }
    manager = LogManager(files, MemoryStateStore(), "/data", topics.__getitem__)
    manager.open(now_ms=NOW_MS)
    logs = [lead(manager, TopicPartition(topic, 0), b"a", b"b") for topic in topics]
    assert [len(log.segments) for log in logs] == [2, 1]


def test_a_producer_is_forgotten_by_when_it_was_seen_not_by_the_times_it_writes() -> None:
    manager = Node(small_settings(producer_expiry_ms=1000, retention_ms=-1)).start()
    log = lead(manager, FIRST)
    append(log, b"a copy of something old", producer_id=7, timestamps=[1])
    manager.retain(now_ms=NOW_MS + 1000)
    assert [producer.producer_id for producer in log.producers] == [7]
    manager.retain(now_ms=NOW_MS + 1001)
    assert len(log.producers) == 0


def test_the_manager_cleans_what_is_due() -> None:
    node = Node(small_settings(compact=True, min_cleanable_dirty_ratio=0.0))
    manager = node.start()
    log = lead(manager, FIRST)
    for value in (b"1", b"2"):
        append(log, (b"k", value))
    log.roll()
    append(log, (b"z", b"z"))
    log.advance_high_watermark(log.end_offset)
    manager.checkpoint()
    assert manager.clean(now_ms=NOW_MS)[FIRST].removed_records == 1
    assert manager.clean(now_ms=NOW_MS) == {}


# -- handles -----------------------------------------------------------------------------------


def many_files(count: int, files: Files, root: str) -> list[str]:
    paths = [f"{root}/{number}" for number in range(count)]
    for path in paths:
        file = files.open(path, create=True)
        file.write_at(0, [path.encode()])
        file.close()
    return paths


def test_the_file_that_was_read_longest_ago_is_let_go() -> None:
    files = MemoryFiles()
    paths = many_files(3, files, "")
    handles = Handles(files, count_max=2)
    first = handles.open(paths[0])
    handles.open(paths[1])
    assert handles.open(paths[0]) is first
    handles.open(paths[2])
    assert len(handles) == 2
    assert handles.open(paths[0]) is first


def test_a_name_that_means_another_file_now_is_opened_anew() -> None:
    files = MemoryFiles()
    paths = many_files(2, files, "")
    handles = Handles(files)
    handles.open(paths[0])
    files.rename(paths[1], paths[0])
    handles.forget(paths[0])
    assert handles.open(paths[0]).read_at(0, 10) == paths[1].encode()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_descriptors_are_bounded_and_a_reader_keeps_its_file(tmp_path: Path) -> None:
    files = DiskFiles()
    paths = many_files(40, files, str(tmp_path))
    handles = Handles(files, count_max=4)
    before = descriptors()
    reading = handles.open(paths[0])
    for path in paths:
        handles.open(path)
    assert descriptors() <= before + 4 + 1
    assert reading.read_at(0, 1000) == paths[0].encode()


def descriptors_of(suffix: str) -> int:
    """Count the open descriptors of files whose names end so."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return sum(os.readlink(link).endswith(suffix) for link in links)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors in /proc")
def test_the_indexes_of_a_file_that_is_let_go_are_let_go_too(tmp_path: Path) -> None:
    files = DiskFiles()
    one = OneLog(small_settings(index_interval_bytes=0), files, root=str(tmp_path))
    log = create_log(replace(one.place, handles=Handles(files, count_max=4)))
    log.assign_epoch(LeaderEpoch(0))
    for _ in range(80):
        append(log, b"x" * 140)
    log.sync()
    assert len(log.segments) == 40
    before = descriptors_of("index")
    assert len(values_of(log)) == 80
    assert descriptors_of("index") - before <= 2 * 4
    log.close()


def test_all_logs_share_the_handles_of_their_manager() -> None:
    manager = Node().start()
    for partition in (FIRST, SECOND):
        log = lead(manager, partition, *[b"x" * 300] * 9)
        log.sync()
        values_of(log)
    # Of nine segments the newest has its own file.
    assert len(manager.handles) == 2 * 8


def test_an_offset_in_any_of_many_segments_is_found_at_once() -> None:
    node = Node(small_settings(segment_bytes=90))
    log = lead(node.start(), FIRST, *[b"x"] * 300)
    assert len(log.segments) == 300
    numbers = [log.segment_number(Offset(offset)) for offset in (0, 1, 150, 299)]
    assert numbers == [0, 1, 150, 299]
