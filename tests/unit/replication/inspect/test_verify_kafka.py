"""Directories without our state store: a Kafka broker's, whose small files say what to expect."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from ottla.replication.inspect.known import NOT_TOLD_HOW_FAR
from ottla.replication.inspect.partition import PartitionReport
from ottla.replication.inspect.verify import CannotLookError, verify_directory
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from tests.unit.replication.inspect.shelf import DIRECTORY, ROOT, Shelf, filled

FIRST, SECOND, LAST = (f"{base:020d}" for base in (0, 20, 40))
EPOCHS = "leader-epoch-checkpoint"


def _snapshot(*producers: tuple[int, int, int, int]) -> bytes:
    rows = b"".join(
        struct.pack(">qhiqiqiq", one[0], one[1], one[2], one[3], 1, 0, -1, -1) for one in producers
    )
    body = struct.pack(">i", len(producers)) + rows
    return struct.pack(">hI", 1, crc32c(body)) + body


@pytest.fixture
def kafkas() -> Shelf:
    shelf = filled()
    shelf.files.remove_dir(f"{ROOT}/state")
    shelf.write(EPOCHS, b"0\n2\n0 0\n2 30\n")
    shelf.write("partition.metadata", b"version: 0\n")
    shelf.write(f"{60:020d}.snapshot", _snapshot((7, 0, 59, 59)))
    shelf.write(f"{FIRST}.txnindex", b"")
    return shelf


def _write_recovery_point(shelf: Shelf, offset: int) -> None:
    path = f"{ROOT}/recovery-point-offset-checkpoint"
    shelf.files.open(path, create=True).write_at(0, [b"0\n1\nt 0 %d\n" % offset])


def _report(files: MemoryFiles) -> PartitionReport:
    (report,) = verify_directory(files, ROOT).partitions
    return report


def test_a_sound_directory(kafkas: Shelf) -> None:
    report = _report(kafkas.files)
    assert (report.problems, report.notes) == ([], [NOT_TOLD_HOW_FAR])
    assert (report.start_offset, report.end_offset, report.records) == (0, 60, 60)


def test_gaps_are_allowed_and_counted(kafkas: Shelf) -> None:
    kafkas.remove(SECOND)
    report = _report(kafkas.files)
    assert report.problems == []
    assert report.notes == [
        NOT_TOLD_HOW_FAR,
        "1 gap in the offsets, as compaction leaves them",
    ]


def test_a_broker_that_wrote_down_how_far_it_synced_needs_no_note(kafkas: Shelf) -> None:
    _write_recovery_point(kafkas, 60)
    report = _report(kafkas.files)
    assert (report.problems, report.notes) == ([], [])


def test_a_partition_without_a_segment_is_a_problem(kafkas: Shelf) -> None:
    kafkas.files.make_dir(f"{ROOT}/u-0")
    report = verify_directory(kafkas.files, ROOT)
    assert [one.problems for one in report.partitions] == [
        [],
        ["it has no segment, and nothing says what it should hold"],
    ]


@pytest.mark.parametrize("name", ["plain", "dbus-1"])
def test_directories_that_only_look_like_partitions_hold_no_log(name: str) -> None:
    files = MemoryFiles()
    files.make_dir(ROOT)
    files.make_dir(f"{ROOT}/{name}")
    files.open(f"{ROOT}/{name}/session.conf", create=True)
    for path in (ROOT, f"{ROOT}/{name}"):
        with pytest.raises(CannotLookError, match=f"^{path} holds no log: "):
            verify_directory(files, path)


@pytest.mark.parametrize("mark", ["meta.properties", "cleaner-offset-checkpoint"])
def test_a_directory_with_the_mark_of_a_node_or_a_broker_is_looked_at(mark: str) -> None:
    files = MemoryFiles()
    files.make_dir(ROOT)
    files.open(f"{ROOT}/{mark}", create=True)
    assert verify_directory(files, ROOT).ok


def test_a_state_from_elsewhere_is_enough_to_look() -> None:
    shelf = filled()
    files = MemoryFiles()
    files.make_dir(ROOT)
    report = verify_directory(
        files, ROOT, state_path="/s", read_state=lambda _: MemoryStateStore(shelf.disk)
    )
    assert report.problems == [f"the directory {DIRECTORY} is missing"]


def test_one_of_several_batches_under_one_entry_is_damaged(kafkas: Shelf) -> None:
    kafkas.write(f"{FIRST}.index", struct.pack(">iiii", 7, 97, 11, 388))
    for number in (1, 2, 3):
        kafkas.flip(f"{FIRST}.log", number * 97 + 80)
        assert len(_report(kafkas.files).problems) == 1
        kafkas.flip(f"{FIRST}.log", number * 97 + 80)


def test_a_flipped_byte_is_found(kafkas: Shelf) -> None:
    kafkas.flip(f"{SECOND}.log", 80)
    (problem,) = _report(kafkas.files).problems
    assert problem.startswith(f"{SECOND}.log at 0: checksum ")


def test_epochs_that_disagree(kafkas: Shelf) -> None:
    kafkas.write(EPOCHS, b"0\n2\n0 0\n2 58\n")
    assert _report(kafkas.files).problems[0] == (
        f"{SECOND}.log at 485: epoch 2 at offset 30; the history says 0"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            b"0\n2\n2 0\n0 30\n",
            "leader-epoch-checkpoint is damaged: epoch 0 at 30 stands after epoch 2 at 0",
        ),
        (b"", "leader-epoch-checkpoint is damaged: it does not say how many lines it has"),
        (b"0\n9\n", "leader-epoch-checkpoint is damaged: it does not say how many lines it has"),
        (b"0\n1\nx 0\n", "leader-epoch-checkpoint is damaged: 'x' is not a number"),
        (b"0\n1\n1\n", "leader-epoch-checkpoint is damaged: a line has 1 words"),
        (b"\xff\xff", "leader-epoch-checkpoint is damaged: it is not text"),
    ],
)
def test_an_epoch_file_that_cannot_be_read(kafkas: Shelf, content: bytes, problem: str) -> None:
    kafkas.write(EPOCHS, content)
    assert _report(kafkas.files).problems == [problem]


def test_a_snapshot_that_disagrees(kafkas: Shelf) -> None:
    kafkas.write(f"{60:020d}.snapshot", _snapshot((7, 0, 57, 59)))
    assert _report(kafkas.files).problems == [
        f"{60:020d}.snapshot: producer 7 has sequence 57 at offset 59; "
        "the log has sequence 59 at offset 59"
    ]


def test_a_snapshot_with_a_flipped_byte(kafkas: Shelf) -> None:
    kafkas.flip(f"{60:020d}.snapshot", 12)
    (problem,) = _report(kafkas.files).problems
    assert problem.startswith(f"{60:020d}.snapshot has checksum 0x")


@pytest.mark.parametrize("content", [b"", b"\x00\x02" + bytes(8), _snapshot((1, 1, 1, 1))[:-1]])
def test_a_snapshot_that_cannot_be_read(kafkas: Shelf, content: bytes) -> None:
    kafkas.write(f"{60:020d}.snapshot", content)
    (problem,) = _report(kafkas.files).problems
    assert problem.startswith(f"{60:020d}.snapshot ")


def test_the_room_in_the_indexes_of_a_broker_that_was_killed(kafkas: Shelf) -> None:
    for suffix in ("index", "timeindex"):
        kafkas.write(f"{LAST}.{suffix}", kafkas.read(f"{LAST}.{suffix}") + bytes(10_000))
    assert _report(kafkas.files).problems == []


def test_an_entry_for_several_batches_that_were_appended_at_once(kafkas: Shelf) -> None:
    kafkas.write(f"{FIRST}.index", struct.pack(">iiii", 7, 97, 11, 388))
    assert _report(kafkas.files).problems == []
    kafkas.write(f"{FIRST}.index", struct.pack(">iiii", 6, 97, 11, 388))
    assert _report(kafkas.files).problems == [
        f"{FIRST}.index: entry 0 (offset 6, position 97) points at a batch whose last offset is 7"
    ]


def test_a_torn_tail_above_the_recovery_point_is_a_note(kafkas: Shelf) -> None:
    kafkas.write(f"{LAST}.log", kafkas.read(f"{LAST}.log")[:-30])
    assert _report(kafkas.files).problems == [
        f"{LAST}.log at 873: a batch of length 85 in 67 bytes"
    ]
    _write_recovery_point(kafkas, 40)
    report = _report(kafkas.files)
    assert (report.problems, report.end_offset) == ([], 58)
    assert f"{LAST}.log will be cut at start: 67 bytes go" in report.notes


def test_the_start_that_the_broker_wrote_down(kafkas: Shelf) -> None:
    path = f"{ROOT}/log-start-offset-checkpoint"
    kafkas.files.open(path, create=True).write_at(0, [b"0\n1\nt 0 25\n"])
    assert _report(kafkas.files).start_offset == 25


def test_one_partition_alone(kafkas: Shelf) -> None:
    report = verify_directory(kafkas.files, DIRECTORY)
    assert (report.ok, [one.partition for one in report.partitions]) == (True, ["t-0"])
