"""Each kind of damage gets its own sentence, and exactly one where one thing is wrong."""

from __future__ import annotations

import struct

import pytest

from ottla.proto.ids import LeaderEpoch, Offset
from ottla.proto.records.build import build_batch
from ottla.proto.records.record import Record
from ottla.replication.epochs import EpochStart
from ottla.replication.log.state import (
    partition_key,
)
from tests.unit.replication.inspect.shelf import DIRECTORY, NAME, ROOT, Shelf, filled

FIRST, SECOND, LAST = (f"{base:020d}" for base in (0, 20, 40))
BATCH = 97


def test_a_sound_log_has_no_problems_and_no_notes() -> None:
    report = filled().report()
    assert (report.problems, report.notes) == ([], [])
    assert (report.batches, report.records, report.bytes) == (30, 60, 30 * BATCH)
    assert (report.start_offset, report.end_offset) == (0, 60)


# -- batches ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [FIRST, SECOND, LAST])
def test_a_flipped_byte_in_a_batch(name: str) -> None:
    shelf = filled()
    batch = shelf.read(f"{name}.log")[2 * BATCH : 3 * BATCH]
    shelf.flip(f"{name}.log", 2 * BATCH + 80)
    report = shelf.report()
    (problem,) = report.problems
    assert problem.startswith(f"{name}.log at 194: checksum 0x")
    assert problem.endswith(f" where 0x{batch[17:21].hex()} was written")
    # All the others are read, and nothing that only this batch knew is missed.
    assert (report.batches, report.bytes, report.end_offset) == (29, 30 * BATCH, 60)
    assert report.notes == []


@pytest.mark.parametrize("name", [FIRST, SECOND, LAST])
@pytest.mark.parametrize("number", [0, 4, 5, 6, 9])
@pytest.mark.parametrize("inside", [16, 20, 22, 26, 34, 42, 50, 56, 60, 96])
def test_a_damaged_batch_is_one_problem_wherever_it_stands(
    name: str, number: int, inside: int
) -> None:
    shelf = filled()
    shelf.flip(f"{name}.log", number * BATCH + inside)
    report = shelf.report()
    assert [problem.partition(":")[0] for problem in report.problems] == [
        f"{name}.log at {number * BATCH}"
    ]
    assert (report.notes, report.batches, report.bytes) == ([], 29, 30 * BATCH)


def test_two_damaged_batches_side_by_side_are_two_problems() -> None:
    shelf = filled()
    for number in (3, 4, 8):
        shelf.flip(f"{LAST}.log", number * BATCH + 80)
    report = shelf.report()
    assert [problem.partition(":")[0] for problem in report.problems] == [
        f"{LAST}.log at {number * BATCH}" for number in (3, 4, 8)
    ]
    assert (report.notes, report.batches) == ([], 27)


@pytest.mark.parametrize("name", [FIRST, SECOND, LAST])
def test_a_damaged_length_hides_the_rest_of_its_segment_and_is_one_problem(name: str) -> None:
    shelf = filled()
    # 85 becomes 170: into the middle of the next batch.
    shelf.put(f"{name}.log", 2 * BATCH + 8, (170).to_bytes(4, "big"))
    report = shelf.report()
    assert [problem.partition(":")[0] for problem in report.problems] == [f"{name}.log at 194"]
    assert (report.notes, report.batches) == ([], 22)


def test_the_last_batch_before_an_empty_segment_is_one_problem() -> None:
    shelf = filled()
    log = shelf.open()
    shelf.append(log, 1)
    log.checkpoint()
    log.close()
    shelf.flip(f"{LAST}.log", 9 * BATCH + 80)
    assert len(shelf.problems()) == 1
    shelf.flip(f"{60:020d}.log", 80)
    assert len(shelf.problems()) == 2


def test_an_index_entry_that_is_wrong_behind_a_damaged_batch_is_still_found() -> None:
    shelf = filled()
    shelf.flip(f"{SECOND}.log", 2 * BATCH + 80)
    shelf.put(f"{SECOND}.index", 8 * 4 + 4, (7).to_bytes(4, "big"))
    problems = shelf.problems()
    assert len(problems) == 2
    assert problems[1].startswith(f"{SECOND}.index: entry 4 ")


def test_a_wrong_base_offset_is_one_problem_and_not_one_for_every_batch_after_it() -> None:
    shelf = filled()
    shelf.put(f"{SECOND}.log", BATCH, (21).to_bytes(8, "big"))
    assert shelf.problems() == [f"{SECOND}.log at 97: a batch at offset 21 where 22 was due"]


@pytest.mark.parametrize("number", range(10))
def test_a_wrong_base_offset_is_not_held_against_the_producers(number: int) -> None:
    shelf = filled()
    shelf.flip(f"{LAST}.log", number * BATCH + 7)
    assert len(shelf.problems()) == 1


def test_a_huge_base_offset_is_one_problem_of_the_batch() -> None:
    shelf = filled()
    shelf.put(f"{SECOND}.log", 0, (2**40).to_bytes(8, "big"))
    assert shelf.problems() == [
        f"{SECOND}.log at 0: a batch at offset 1099511627776 where 20 was due",
    ]


def test_a_wrong_epoch_in_a_batch() -> None:
    shelf = filled()
    shelf.put(f"{SECOND}.log", 12, (1).to_bytes(4, "big"))
    assert shelf.problems() == [
        f"{SECOND}.log at 0: epoch 1 at offset 20; the history says 0",
    ]


def test_an_epoch_that_goes_back() -> None:
    shelf = filled()
    shelf.put(f"{LAST}.log", 12, (1).to_bytes(4, "big"))
    assert shelf.problems() == [f"{LAST}.log at 0: epoch 1 at offset 40, after epoch 2"]


def test_a_history_that_says_something_else() -> None:
    shelf = filled()
    entries = (EpochStart(LeaderEpoch(0), Offset(0)), EpochStart(LeaderEpoch(2), Offset(58)))
    shelf.change_state(epochs=entries)
    assert shelf.problems()[0] == (f"{SECOND}.log at 485: epoch 2 at offset 30; the history says 0")


def test_a_history_whose_epochs_do_not_grow() -> None:
    shelf = filled()
    key = partition_key(NAME)
    first, second = struct.pack(">iq", 0, 0), struct.pack(">iq", 2, 30)
    shelf.disk[key] = shelf.disk[key].replace(first + second, second + first)
    assert shelf.problems() == [
        "the state record of t-0 cannot be read: epochs do not grow: "
        "EpochStart(epoch=2, start_offset=30) before EpochStart(epoch=0, start_offset=0)"
    ]


def test_a_batch_of_a_later_format() -> None:
    shelf = filled()
    shelf.put(f"{SECOND}.log", 16, b"\x03")
    assert shelf.problems() == [f"{SECOND}.log at 0: magic 3; this program knows 2"]


def test_a_batch_of_a_later_format_above_the_recovery_point_is_a_problem_too() -> None:
    shelf = _grown()
    shelf.put(f"{LAST}.log", 970 + 16, b"\x03")
    assert shelf.problems() == [f"{LAST}.log at 970: magic 3; this program knows 2"]


# -- segments --------------------------------------------------------------------------------------


def test_two_segments_that_changed_their_names() -> None:
    shelf = filled()
    first, second = shelf.read(f"{FIRST}.log"), shelf.read(f"{SECOND}.log")
    shelf.write(f"{FIRST}.log", second)
    shelf.write(f"{SECOND}.log", first)
    problems = shelf.problems()
    assert problems[0] == f"{FIRST}.log at 0: a batch at offset 20 where 0 was due"
    assert any(f"{SECOND}.log" in problem for problem in problems)


def test_a_segment_that_is_gone() -> None:
    shelf = filled()
    shelf.remove(SECOND)
    assert shelf.problems() == [f"{LAST}.log begins at 40, and the segment before it ends at 20"]


def test_a_first_segment_that_is_gone_means_that_the_log_starts_later() -> None:
    shelf = filled()
    shelf.remove(FIRST)
    assert shelf.problems() == ["the log begins at 20, and its start offset is 0"]


def test_a_last_segment_that_is_gone() -> None:
    shelf = filled()
    shelf.remove(LAST)
    assert shelf.problems() == [
        "the segment at 40, with the recovery point 60, is missing",
        "the log ends at 40, and was synced to 60",
        "the log ends at 40, below its high watermark 60",
    ]


def test_no_segment_is_left() -> None:
    shelf = filled()
    for stem in (FIRST, SECOND, LAST):
        shelf.remove(stem)
    assert "no segment is left, and offsets below 60 were synced" in shelf.problems()


def test_a_directory_that_is_gone() -> None:
    shelf = filled()
    for stem in (FIRST, SECOND, LAST):
        shelf.remove(stem)
    shelf.files.remove_dir(DIRECTORY)
    report = shelf.verify()
    assert (report.partitions, report.problems) == ([], [f"the directory {DIRECTORY} is missing"])


def test_a_segment_cut_at_a_batch_below_the_recovery_point() -> None:
    shelf = filled()
    shelf.write(f"{SECOND}.log", shelf.read(f"{SECOND}.log")[: 9 * BATCH])
    assert shelf.problems() == [
        f"{SECOND}.index: entry 8 (offset 39, position 873) points beyond the end of the segment",
        f"{LAST}.log begins at 40, and the segment before it ends at 38",
    ]


def test_a_segment_cut_inside_a_batch_below_the_recovery_point() -> None:
    shelf = filled()
    shelf.write(f"{SECOND}.log", shelf.read(f"{SECOND}.log")[: 9 * BATCH + 70])
    assert shelf.problems() == [f"{SECOND}.log at 873: a batch of length 85 in 70 bytes"]


def test_the_newest_segment_cut_below_the_recovery_point() -> None:
    shelf = filled()
    shelf.write(f"{LAST}.log", shelf.read(f"{LAST}.log")[: 9 * BATCH])
    problems = shelf.problems()
    assert problems[0] == f"{LAST}.log has 873 bytes, and 970 were synced"
    assert "the log ends at 58, and was synced to 60" in problems


def test_a_hole_of_zeros_inside_a_segment() -> None:
    shelf = filled()
    shelf.put(f"{SECOND}.log", 2 * BATCH, bytes(2 * BATCH))
    assert shelf.problems() == [f"{SECOND}.log at 194: a batch of length 0 in 776 bytes"]


def test_a_batch_that_is_gone_from_the_middle() -> None:
    shelf = filled()
    content = shelf.read(f"{FIRST}.log")
    shelf.write(f"{FIRST}.log", content[: 4 * BATCH] + content[5 * BATCH :])
    problems = shelf.problems()
    assert problems[0] == f"{FIRST}.log at 388: a batch at offset 10 where 8 was due"


def test_a_hole_that_compaction_may_have_made_is_no_problem() -> None:
    shelf = filled()
    content = shelf.read(f"{FIRST}.log")
    shelf.write(f"{FIRST}.log", content[: 9 * BATCH])
    shelf.write(f"{FIRST}.index", shelf.read(f"{FIRST}.index")[: 8 * 8])
    shelf.change_state(gaps_below=Offset(20))
    assert shelf.problems() == []


def test_segments_that_overlap() -> None:
    shelf = filled()
    content = shelf.read(f"{SECOND}.log")
    shelf.write(f"{FIRST}.log", shelf.read(f"{FIRST}.log") + content[:BATCH])
    assert shelf.problems() == [f"{SECOND}.log begins at 20, and the segment before it ends at 22"]


def test_a_segment_whose_name_is_not_its_base_offset() -> None:
    shelf = filled()
    for suffix in (".log", ".index", ".timeindex"):
        shelf.files.rename(f"{DIRECTORY}/{SECOND}{suffix}", f"{DIRECTORY}/{22:020d}{suffix}")
    problems = shelf.problems()
    assert problems[0] == f"{22:020d}.log begins at 22, and the segment before it ends at 20"
    assert problems[1] == f"{22:020d}.log at 0: a batch at offset 20 where 22 was due"


# -- the tail above the recovery point -------------------------------------------------------------


def _grown() -> Shelf:
    """Like `filled`, with three batches more that nobody has checkpointed."""
    shelf = filled()
    shelf.settings = type(shelf.settings)(segment_bytes=4000, index_interval_bytes=1)
    log = shelf.open()
    shelf.append(log, 3)
    log.close()
    return shelf


def test_what_was_not_checkpointed_counts_and_needs_no_note() -> None:
    report = _grown().report()
    assert (report.problems, report.notes, report.end_offset) == ([], [], 66)


def test_a_torn_tail_above_the_recovery_point_is_a_note() -> None:
    shelf = _grown()
    shelf.write(f"{LAST}.log", shelf.read(f"{LAST}.log")[:-30])
    report = shelf.report()
    assert (report.problems, report.end_offset) == ([], 64)
    assert report.notes == [
        f"{LAST}.log at 1164: a batch of length 85 in 67 bytes",
        f"{LAST}.log will be cut at start: 67 bytes go",
    ]


def test_a_tail_of_zeros_above_the_recovery_point_is_a_note() -> None:
    shelf = filled()
    shelf.put(f"{LAST}.log", 970, bytes(4096))
    report = shelf.report()
    assert (report.problems, report.end_offset) == ([], 60)
    assert report.notes == [
        f"{LAST}.log at 970: a batch of length 0 in 4096 bytes",
        f"{LAST}.log will be cut at start: 4096 bytes go",
    ]


def test_what_lies_behind_a_torn_tail_is_removed_at_start() -> None:
    shelf = filled()
    log = shelf.open()
    shelf.append(log, 12)
    log.close()
    shelf.flip(f"{60:020d}.log", 90)
    report = shelf.report()
    assert (report.problems, report.end_offset) == ([], 60)
    assert report.notes[-1] == f"{80:020d}.log lies behind the cut: removed at start"
    reopened = shelf.open()
    assert (reopened.offline, reopened.end_offset) == (None, 60)


def test_a_segment_above_the_recovery_point_that_does_not_follow_is_a_note() -> None:
    shelf = filled()
    log = shelf.open()
    shelf.append(log, 12)
    log.close()
    shelf.remove(f"{60:020d}")
    report = shelf.report()
    assert (report.problems, report.end_offset) == ([], 60)
    assert report.notes == [
        f"{80:020d}.log begins at 80, and the segment before it ends at 60: removed at start"
    ]


def test_one_bad_partition_does_not_hide_another() -> None:
    shelf = filled()
    shelf.files.make_dir(f"{ROOT}/u-0")
    shelf.files.open(f"{ROOT}/u-0/{FIRST}.log", create=True).write_at(
        0, [build_batch([Record(0, 1, None, b"x")])]
    )
    report = shelf.verify()
    assert [one.ok for one in report.partitions] == [True, False]
    assert not report.ok
