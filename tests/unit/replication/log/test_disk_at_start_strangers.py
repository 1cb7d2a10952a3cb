"""What a start does about files and directories that do not belong: it leaves them alone.

Rows of the list "Disk at start": leftovers of our own work go, everything else stays and is told.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.proto.ids import TopicPartition
from tests.builders import batches_of
from tests.unit.replication.log.disk_at_start import (
    BASES,
    RECOVERY_POINT,
    VICTIM,
    filled,
    require_all_served,
    require_neighbour,
    require_offline,
)


def test_leftovers_of_cleaning_and_deleting_are_removed(tmp_path: Path) -> None:
    node = filled(tmp_path)
    for base in (0, 15, 99):
        for suffix in (".log", ".index", ".timeindex"):
            for left in (".cleaned", ".deleted"):
                node.path(base, suffix + left).write_bytes(b"left")
    node.path(98, ".index").write_bytes(bytes(8))
    require_all_served(node)
    names = {path.name for path in (tmp_path / "t-0").iterdir()}
    assert names == {
        f"{base:020d}{suffix}" for base in BASES for suffix in (".log", ".index", ".timeindex")
    }


STRANGERS = [
    "0000000000000000005.log",
    "000000000000000000005.log",
    "0000000000000000000x.log",
    "-0000000000000000005.log",
    "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٥.log",
    "00000000000000000005.LOG",
    "00000000000000000005.log.cleaned.old",
    "backup.log",
    "notes.cleaned",
    "partition.metadata",
    "leader-epoch-checkpoint",
]


@pytest.mark.parametrize("name", STRANGERS)
def test_a_strange_file_is_told_and_left_alone(tmp_path: Path, name: str) -> None:
    node = filled(tmp_path)
    stranger = tmp_path / "t-0" / name
    stranger.write_bytes(b"not ours")
    with node.started() as running:
        assert batches_of(running.log) == node.written
        assert running.report.damaged == {}
        assert running.report.recovered[VICTIM].notes == [
            f"{stranger} is not a file of a log; left alone"
        ]
    assert stranger.read_bytes() == b"not ours"


def test_a_directory_under_the_name_of_a_segment_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.path(15).unlink()
    node.path(15).mkdir()
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert node.path(15).is_dir()


@pytest.mark.parametrize("name", ["backup-delete", "t-0-delete", "t-x.0-delete", ".snap-delete"])
def test_a_strange_directory_is_left_alone_also_if_its_name_ends_like_ours(
    tmp_path: Path, name: str
) -> None:
    node = filled(tmp_path)
    (tmp_path / name).mkdir()
    (tmp_path / name / "letter").write_bytes(b"not ours")
    require_all_served(node)
    assert (tmp_path / name / "letter").read_bytes() == b"not ours"


def test_a_directory_of_a_deleted_partition_that_cannot_be_removed_stops_nobody(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    (tmp_path / "old-0.0-delete" / "more").mkdir(parents=True)
    require_all_served(node)


@pytest.mark.parametrize("name", ["t-0.log", "topic", "t-", "-1", "t-01", "lost+found", "t-0 "])
def test_a_strange_name_in_the_data_directory_is_left_alone(tmp_path: Path, name: str) -> None:
    node = filled(tmp_path)
    (tmp_path / name).mkdir()
    require_all_served(node)
    assert (tmp_path / name).is_dir()


def test_a_partition_directory_without_anything_is_an_empty_log(tmp_path: Path) -> None:
    # Between making the directory and writing the record there was a crash.
    node = filled(tmp_path)
    (tmp_path / "new-0").mkdir()
    with node.started() as running:
        log = running.manager.logs[TopicPartition("new", 0)]
        assert (log.offline, log.start_offset, log.end_offset) == (None, 0, 0)
        assert batches_of(running.log) == node.written


def test_a_partition_directory_that_lost_all_its_files_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    for base in BASES:
        node.remove_segment(base)
    require_offline(node, f"no segment is left, and offsets below {RECOVERY_POINT} were synced")
