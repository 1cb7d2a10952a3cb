"""What a start does about segment files that are torn, holed, misnamed, unreadable or linked.

Rows of the list "Disk at start". Below the recovery point nothing is cut and the log is offline;
above it the log ends before the first batch that is not sound (R1, R2).
"""

from __future__ import annotations

import errno
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.proto.errors import StorageError
from ottla.proto.ids import Offset
from ottla.proto.records.header import seal
from ottla.replication.log.state import Intent
from ottla.replication.storage.faults import FaultPlan, FaultRule
from tests.builders import append, batches_of
from tests.unit.replication.log.disk_at_start import (
    BATCH,
    END,
    RECOVERY_POINT,
    SETTINGS,
    VICTIM,
    Node,
    filled,
    receive,
    require_neighbour,
    require_offline,
)

POSITION = (RECOVERY_POINT - 10) * BATCH


def require_cut(node: Node, end: int, *notes: str) -> None:
    """The log ends at `end`, says why, takes appends there, and the next start finds nothing."""
    with node.started() as running:
        assert running.log.offline is None
        assert running.log.end_offset == end
        assert batches_of(running.log) == node.written[:end]
        assert tuple(running.report.recovered[VICTIM].notes) == notes
        assert running.report.recovered[VICTIM].cut_bytes == (END - end) * BATCH
        assert running.report.damaged == {}
        assert append(running.log, (b"k", b"goes on")) == end
        running.log.sync()
        again = batches_of(running.log)
        require_neighbour(running)
    with node.started() as running:
        assert batches_of(running.log) == again
        assert running.report.recovered[VICTIM].notes == []


def require_refused(node: Node, offset: int) -> None:
    """All before the damage is served, nothing at it or after it, and no byte is lost.

    What was synced is not read at start: the first reader who comes to it finds it.
    """
    before = node.logs()
    for _ in range(2):
        with node.started() as running:
            got = receive(running.log)
            assert got.refusal is not None
            assert got.batches == node.written[: len(got.batches)]
            assert len(got.batches) <= offset
            with pytest.raises(StorageError, match="t-0 is offline: "):
                append(running.log, (b"k", b"never"))
            require_neighbour(running)
        assert node.logs() == before


# -- torn batches and zeros ------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 11, 12, 60, 61, 99])
def test_a_torn_batch_at_the_end_is_cut(tmp_path: Path, left: int) -> None:
    node = filled(tmp_path)
    with node.path(15).open("r+b") as file:
        file.truncate(BATCH + left)
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        found = running.report.recovered[VICTIM]
        assert found.cut_bytes == left
        assert found.notes[0].startswith(f"{node.path(15)} cut at 100 of {BATCH + left} bytes: ")
        require_neighbour(running)


def test_a_torn_batch_above_the_recovery_point_takes_all_that_follows_with_it(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    with node.path(10).open("r+b") as file:
        file.truncate(350)
    with node.started() as running:
        assert batches_of(running.log) == node.written[:13]
        found = running.report.recovered[VICTIM]
        assert found.notes == [
            f"{node.path(10)} cut at 300 of 350 bytes: 50 bytes are no batch",
            f"{node.path(15)} removed: 50 bytes are no batch",
        ]
        assert found.cut_bytes == 250
        require_neighbour(running)
    assert not node.path(15).exists()


@pytest.mark.parametrize("size", [0, 100, 150, 199])
def test_a_file_that_is_shorter_than_what_was_synced_is_damage(tmp_path: Path, size: int) -> None:
    node = filled(tmp_path)
    with node.path(10).open("r+b") as file:
        file.truncate(size)
    require_offline(node, f"{node.path(10)} has {size} bytes, and {POSITION} were synced")


@pytest.mark.parametrize("size", [100, 400])
def test_an_old_segment_that_lost_its_end_is_damage(tmp_path: Path, size: int) -> None:
    node = filled(tmp_path)
    with node.path(5).open("r+b") as file:
        file.truncate(size)
    ends = 5 + size // BATCH
    require_offline(
        node, f"{node.path(5)} ends at offset {ends}, and the next segment begins at 10"
    )


def test_an_old_segment_that_ends_inside_a_batch_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    with node.path(5).open("r+b") as file:
        file.truncate(350)
    require_offline(node, f"{node.path(5)}: no whole batch at position 300 of 350 bytes")


def test_an_old_segment_that_is_empty_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.path(0).write_bytes(b"")
    require_offline(node, f"{node.path(0)} ends at offset 0, and the next segment begins at 5")


def test_a_tail_of_zeros_is_cut(tmp_path: Path) -> None:
    # What a file system leaves that grew a file before it wrote the bytes.
    node = filled(tmp_path)
    node.put(15, 2 * BATCH, bytes(8192))
    with node.started() as running:
        assert batches_of(running.log) == node.written
        assert running.report.recovered[VICTIM].notes == [
            f"{node.path(15)} cut at 200 of 8392 bytes: a batch of length 0 in 8192 bytes"
        ]
    assert node.path(15).stat().st_size == 200


def test_a_tail_of_zeros_in_an_old_segment_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.put(5, 5 * BATCH, bytes(4096))
    require_offline(node, f"{node.path(5)}: no whole batch at position 500 of 4596 bytes")


def test_a_hole_of_zeros_above_the_recovery_point_ends_the_log(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.put(10, 3 * BATCH, bytes(BATCH))
    require_cut(
        node,
        13,
        f"{node.path(10)} cut at 300 of 500 bytes: a batch of length 0 in 200 bytes",
        f"{node.path(15)} removed: a batch of length 0 in 200 bytes",
    )


@pytest.mark.parametrize(("base", "position"), [(0, 200), (5, 200), (10, 0), (10, 100)])
def test_a_hole_of_zeros_below_the_recovery_point_is_never_served(
    tmp_path: Path, base: int, position: int
) -> None:
    node = filled(tmp_path)
    node.put(base, position, bytes(BATCH))
    require_refused(node, base + position // BATCH)


def test_a_hole_over_the_first_or_last_batch_of_an_old_segment_is_found_at_start(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    node.put(5, 4 * BATCH, bytes(BATCH))
    require_offline(node, f"{node.path(5)}: no whole batch at position 400 of 500 bytes")


def test_a_flipped_bit_below_the_recovery_point_cuts_nothing(tmp_path: Path) -> None:
    # Old segments are not read at start, and are sent unread: whoever receives the batch checks
    # its checksum. What counts is that no byte is lost.
    node = filled(tmp_path)
    node.put(5, 250, b"!")
    before = node.logs()
    with node.started() as running:
        assert running.log.end_offset == END
        got = receive(running.log)
        assert got.batches == node.written[:7]
        assert got.refusal == "the batch for offset 7 is not sound"
        require_neighbour(running)
    assert node.logs() == before


def test_a_flipped_bit_above_the_recovery_point_ends_the_log(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.put(15, BATCH + 80, b"!")
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        (note,) = running.report.recovered[VICTIM].notes
        assert note.startswith(f"{node.path(15)} cut at 100 of 200 bytes: checksum 0x")


def test_a_cut_below_the_high_watermark_is_told_as_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.change_state(high_watermark=END)
    node.put(15, BATCH + 80, b"!")
    with node.started() as running:
        sentence = f"the log ends at 16, below its high watermark {END}"
        assert running.report.damaged == {VICTIM: sentence}
        assert running.log.offline is None
        assert batches_of(running.log) == node.written[:16]
        require_neighbour(running)


# -- missing, overlapping and misnamed segments ----------------------------------------------------


def test_a_missing_segment_in_the_middle_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.remove_segment(5)
    require_offline(node, f"{node.path(0)} ends at offset 5, and the next segment begins at 10")


def test_a_missing_first_segment_is_damage(tmp_path: Path) -> None:
    # The start offset is durable before a segment goes (rule 49c), so nobody removed it on purpose.
    node = filled(tmp_path)
    node.remove_segment(0)
    require_offline(node, "the first segment begins at 5, and the log starts at 0")


def test_the_segment_with_the_recovery_point_missing_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.remove_segment(10)
    require_offline(node, "the segment at 10, with the recovery point, is missing")


def test_a_missing_newest_segment_above_the_recovery_point_shortens_the_log(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.remove_segment(15)
    with node.started() as running:
        assert batches_of(running.log) == node.written[:15]
        assert running.report.damaged == {}


def test_a_missing_segment_after_a_reset_is_damage_as_anywhere_else(tmp_path: Path) -> None:
    # A log that was reset has `cleaned_to` above zero and was never compacted.
    node = filled(tmp_path)
    node.change_state(cleaned_to=Offset(1))
    node.remove_segment(5)
    before = node.logs()
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
    assert node.logs() == before


def test_segments_that_overlap_below_the_recovery_point_are_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    with node.path(0).open("ab") as file:
        file.write(node.written[5])
    require_offline(node, f"{node.path(0)} ends at offset 6, and the next segment begins at 5")


def test_segments_that_overlap_above_the_recovery_point_end_the_log(tmp_path: Path) -> None:
    node = filled(tmp_path)
    with node.path(10).open("ab") as file:
        file.write(node.written[15])
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        assert running.report.recovered[VICTIM].notes == [
            f"{node.path(15)} removed: {node.path(15)} does not begin at 16"
        ]


def test_a_copy_of_a_segment_under_another_number_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    shutil.copy(node.path(5), node.path(7))
    require_offline(node, f"{node.path(5)} ends at offset 10, and the next segment begins at 7")


def test_a_segment_renamed_upwards_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.rename_segment(5, 6)
    require_offline(node, f"{node.path(0)} ends at offset 5, and the next segment begins at 6")


def test_a_first_segment_renamed_upwards_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.rename_segment(0, 1)
    require_offline(node, "the first segment begins at 1, and the log starts at 0")


def test_a_segment_renamed_downwards_is_damage(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.rename_segment(5, 4)
    require_offline(node, f"{node.path(0)} ends at offset 5, and the next segment begins at 4")


def test_a_newest_segment_renamed_above_the_recovery_point_ends_the_log(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.rename_segment(15, 16)
    with node.started() as running:
        assert batches_of(running.log) == node.written[:15]
        assert running.report.recovered[VICTIM].notes == [
            f"{node.path(16)} removed: {node.path(16)} does not begin at 15"
        ]


def test_a_segment_renamed_to_just_below_the_start_takes_no_other_with_it(tmp_path: Path) -> None:
    # The log starts at 6, inside the segment at 5. A later segment that calls itself 6 makes the
    # one at 5 look as if all of it lay below the start.
    node = filled(tmp_path, clean=True)
    node.change_state(start_offset=Offset(6))
    node.remove_segment(0)
    node.rename_segment(10, 6)
    before = node.logs()
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert node.logs() == before


def test_segments_wholly_below_the_start_are_removed(tmp_path: Path) -> None:
    # The start was committed, and then a crash kept the files from going.
    node = filled(tmp_path)
    node.change_state(start_offset=Offset(7))
    with node.started() as running:
        assert (running.log.start_offset, running.log.offline) == (7, None)
        assert batches_of(running.log) == node.written[7:]
        assert running.report.damaged == {}
    assert not node.path(0).exists()
    assert node.state().pending.intent is Intent.NOTHING


@pytest.mark.parametrize("name", ["0000000000000000005.log", "x0000000000000000005.log"])
def test_a_segment_whose_name_is_no_offset_is_as_good_as_missing(tmp_path: Path, name: str) -> None:
    node = filled(tmp_path)
    node.path(5).rename(tmp_path / "t-0" / name)
    require_offline(node, f"{node.path(0)} ends at offset 5, and the next segment begins at 10")


# -- formats of the future, files that cannot be read, links ---------------------------------------


def test_a_batch_of_a_future_format_is_kept_and_the_log_is_offline(tmp_path: Path) -> None:
    node = filled(tmp_path)
    batch = bytearray(node.written[16])
    batch[16] = 3
    seal(batch)
    node.put(15, BATCH, bytes(batch))
    require_offline(node, f"{node.path(15)} at 100: magic 3; this program knows 2")


def test_a_batch_of_a_past_format_is_cut_like_any_bytes_that_we_did_not_write(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path)
    node.put(15, BATCH + 16, b"\x01")
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        (note,) = running.report.recovered[VICTIM].notes
        assert note.endswith("cut at 100 of 200 bytes: magic 1; this program knows 2")


@pytest.mark.parametrize("base", [0, 5, 10, 15])
@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
@pytest.mark.parametrize("operation", ["open", "read"])
def test_a_file_that_cannot_be_read_takes_its_log_offline_and_keeps_every_byte(
    tmp_path: Path, base: int, code: int, operation: str
) -> None:
    node = filled(tmp_path)
    before = node.logs()
    name = node.path(base).name
    rules = [FaultRule(operation, f"*/t-0/{name}", nth, code) for nth in range(1, 20)]
    with replace(node, plan=FaultPlan(rules)).started() as running:
        assert running.log.offline is not None
        assert str(node.path(base)) in running.log.offline or operation == "read"
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert node.logs() == before
    with node.started() as running:
        assert batches_of(running.log) == node.written


def test_a_segment_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    node = filled(tmp_path / "data")
    elsewhere = tmp_path / "elsewhere.log"
    node.path(15).rename(elsewhere)
    node.path(15).symlink_to(elsewhere)
    content = elsewhere.read_bytes()
    with node.started() as running:
        assert running.log.offline is not None
        assert VICTIM in running.report.damaged
        require_neighbour(running)
    assert elsewhere.read_bytes() == content
    assert node.path(15).is_symlink()


def test_a_partition_directory_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    node = filled(tmp_path / "data")
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "data" / "t-0").rename(elsewhere)
    (tmp_path / "data" / "t-0").symlink_to(elsewhere)
    before = node.logs()
    for _ in range(2):
        with node.started() as running:
            assert VICTIM not in running.manager.logs
            assert running.report.damaged == {VICTIM: f"the directory {node.root}/t-0 is missing"}
            require_neighbour(running)
    assert node.logs() == before


def test_a_batch_that_claims_a_huge_length_costs_no_memory(tmp_path: Path) -> None:
    node = filled(tmp_path)
    node.put(15, BATCH + 8, struct.pack(">i", 2**31 - 1))
    with node.started() as running:
        assert batches_of(running.log) == node.written[:16]
        (note,) = running.report.recovered[VICTIM].notes
        assert note.endswith("a batch of length 2147483647 in 100 bytes")


def test_a_lost_segment_of_a_compacted_log_is_damage_above_the_last_gap_that_is_known(
    tmp_path: Path,
) -> None:
    node = filled(tmp_path, replace(SETTINGS, compact=True))
    node.remove_segment(5)
    require_offline(node, f"{node.path(0)} ends at offset 5, and the next segment begins at 10")


def test_a_lost_segment_among_known_gaps_looks_like_one_that_was_cleaned_away(
    tmp_path: Path,
) -> None:
    # The one hole that no start can see: nothing tells it from records that were superseded.
    node = filled(tmp_path, replace(SETTINGS, compact=True))
    node.change_state(gaps_below=Offset(10))
    node.remove_segment(5)
    with node.started() as running:
        assert running.log.offline is None
        assert batches_of(running.log) == node.written[:5] + node.written[10:]
