"""Records of replicas of nodes that are down, as our own program tells them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.__main__ import main
from ottla.chaos.backends.dumps import dump_here, offline_reads
from ottla.chaos.evidence import Record
from ottla.chaos.history import Place
from ottla.chaos.payload import encode_payload
from ottla.chaos.ports import HarnessError
from ottla.chaos.runner.requests import produce_fields
from ottla.proto.ids import LeaderEpoch, Offset, TopicPartition
from ottla.replication.log import surgery
from ottla.replication.log.manager import LogManager
from ottla.replication.settings import LogSettings
from ottla.replication.storage.directory import DataDirectory
from ottla.replication.storage.disk import DiskFiles
from ottla.replication.storage.lmdb_store import LmdbStateStore

HERE = Place("latest", 0)
SETTINGS = LogSettings(
    segment_bytes=400, compact=True, min_cleanable_dirty_ratio=0.0, index_interval_bytes=100
)
EPOCH = LeaderEpoch(3)


def dump(arguments: Sequence[str]) -> str:
    return CliRunner().invoke(main, ["log", "dump", "--json", *arguments]).stdout


@pytest.fixture
def manager(tmp_path: Path) -> LogManager:
    directory = DataDirectory.open(
        DiskFiles(), str(tmp_path), node_id=1, cluster_id="c", strict=False, new_id=lambda: "d"
    )
    store = LmdbStateStore(str(tmp_path / "state"), map_size=1 << 20)
    made = LogManager(DiskFiles(), store, str(tmp_path), lambda _: SETTINGS)
    made.open(now_ms=0)
    directory.close()
    return made


def fill(manager: LogManager, count: int, *, tombstones: Sequence[int] = ()) -> None:
    """Write so many values, to two keys in turn."""
    log = manager.create(TopicPartition(*HERE))
    log.assign_epoch(EPOCH)
    for number in range(count):
        fields = produce_fields(
            HERE,
            encode_payload(HERE, f"w-{number}"),
            key=b"k%d" % (number % 2),
            acks=-1,
            timeout_ms=1000,
            now_ms=number,
            is_tombstone=number in tombstones,
        )
        (data,) = fields["topic_data"][0]["partition_data"]
        log.append_as_leader(data["records"], epoch=EPOCH, now_ms=number)
    log.advance_high_watermark(Offset(count))


def test_records_of_a_replica_are_told_with_their_epochs_and_tombstones(
    manager: LogManager, tmp_path: Path
) -> None:
    fill(manager, 8, tombstones=[5])
    manager.close(broker_epoch=1)
    (read,) = offline_reads(2, str(tmp_path), [HERE], dump)
    assert (read.source, read.turn) == ("offline-2", 1)
    assert (read.start_offset, read.high_watermark) == (0, 8)
    assert read.records == tuple(Record(at, f"w-{at}", EPOCH) for at in range(8))


def test_what_a_cleaner_has_taken_and_what_lies_below_the_start_is_not_told(
    manager: LogManager, tmp_path: Path
) -> None:
    fill(manager, 12)
    log = manager.logs[TopicPartition(*HERE)]
    manager.checkpoint()
    assert manager.clean(now_ms=1_000)
    surgery.delete_records(log, Offset(9), now_ms=0)
    manager.close(broker_epoch=1)
    (read,) = offline_reads(1, str(tmp_path), [HERE], dump)
    assert read.start_offset == 9
    assert min(one.offset for one in read.records) >= 9
    assert read.records[-1] == Record(11, "w-11", EPOCH)


def test_what_a_node_has_no_replica_of_is_left_out(manager: LogManager, tmp_path: Path) -> None:
    fill(manager, 1)
    manager.close(broker_epoch=1)
    assert not [*offline_reads(1, str(tmp_path), [Place("latest", 1)], dump)]


def test_a_value_of_another_partition_or_life_is_none_of_ours(
    manager: LogManager, tmp_path: Path
) -> None:
    fill(manager, 1)
    manager.close(broker_epoch=1)
    (read,) = offline_reads(1, str(tmp_path), [Place("latest#1", 0)], dump)
    assert read.records == (Record(0, None, EPOCH),)


def test_our_own_program_is_asked_and_one_that_tells_nothing_is_a_failure(
    manager: LogManager, tmp_path: Path
) -> None:
    fill(manager, 2)
    manager.close(broker_epoch=1)
    (read,) = offline_reads(1, str(tmp_path), [HERE], dump_here)
    assert len(read.records) == 2
    with pytest.raises(HarnessError, match="dumping"):
        dump_here([str(tmp_path / "nowhere")])
