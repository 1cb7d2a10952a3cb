"""Index files that lie, fall short or run over, each with its sentence."""

from __future__ import annotations

import struct

from tests.unit.replication.inspect.shelf import DIRECTORY, filled

FIRST, SECOND, LAST = (f"{base:020d}" for base in (0, 20, 40))


def test_an_index_entry_that_points_at_another_batch() -> None:
    shelf = filled()
    shelf.put(f"{FIRST}.index", 2 * 8, struct.pack(">ii", 7, 388))
    assert shelf.problems() == [
        f"{FIRST}.index: entry 2 (offset 7, position 388) points at a batch whose last offset is 9",
    ]


def test_an_index_entry_that_points_into_a_batch() -> None:
    shelf = filled()
    shelf.put(f"{FIRST}.index", 2 * 8, struct.pack(">ii", 7, 300))
    assert shelf.problems() == [
        f"{FIRST}.index: entry 2 (offset 7, position 300) "
        "points at a position where no batch begins",
    ]


def test_an_index_with_a_part_of_an_entry() -> None:
    shelf = filled()
    shelf.write(f"{FIRST}.index", shelf.read(f"{FIRST}.index")[:-3])
    assert shelf.problems() == [f"{FIRST}.index: 69 bytes are not a whole number of entries"]


def test_an_index_with_zeros_at_its_end() -> None:
    shelf = filled()
    shelf.write(f"{FIRST}.index", shelf.read(f"{FIRST}.index") + bytes(16))
    assert shelf.problems() == [
        f"{FIRST}.index: entry 9 (offset 0, position 0) points beyond the end of the segment",
    ]


def test_an_index_of_garbage() -> None:
    shelf = filled()
    shelf.write(f"{FIRST}.index", b"\xa5" * 72)
    shelf.write(f"{SECOND}.timeindex", b"\x5a" * 36)
    assert shelf.problems() == [
        f"{FIRST}.index: entry 0 (offset -1515870811, position -1515870811) "
        "points at a position where no batch begins",
        f"{SECOND}.timeindex: entry 0 (timestamp 6510615555426900570, offset 1515870830) "
        "points beyond the end of the segment",
    ]


def test_an_index_that_is_gone_is_a_note_because_it_is_made_anew() -> None:
    shelf = filled()
    shelf.files.remove(f"{DIRECTORY}/{FIRST}.index")
    report = shelf.report()
    assert (report.problems, report.notes) == (
        [],
        [f"{FIRST}.index is missing: rebuilt when it is needed"],
    )


def test_entries_that_were_not_synced_may_be_wrong() -> None:
    shelf = filled()
    shelf.put(f"{LAST}.index", 72, b"\xa5" * 8)
    shelf.put(f"{LAST}.timeindex", 36, b"\xa5" * 12)
    report = shelf.report()
    assert report.problems == []
    assert [note.rpartition(": ")[2] for note in report.notes] == ["rebuilt at start"] * 2
    reopened = shelf.open()
    shelf.append(reopened, 1)
    reopened.checkpoint()
    assert (shelf.report().problems, shelf.report().notes) == ([], [])


def test_entries_that_were_synced_may_not_be_wrong() -> None:
    shelf = filled()
    shelf.put(f"{LAST}.index", 8 * 8, struct.pack(">ii", 18, 873))
    assert shelf.problems() == [
        f"{LAST}.index: entry 8 (offset 58, position 873) "
        "points at a batch whose last offset is 59",
    ]


def test_fewer_entries_than_were_synced_are_told() -> None:
    shelf = filled()
    shelf.write(f"{LAST}.index", shelf.read(f"{LAST}.index")[:16])
    report = shelf.report()
    assert report.notes == [f"{LAST}.index has 2 entries, and 9 were synced: rebuilt at start"]


def test_a_time_entry_with_a_wrong_timestamp() -> None:
    shelf = filled()
    shelf.put(f"{FIRST}.timeindex", 12, struct.pack(">qi", 1105, 9))
    assert shelf.problems() == [
        f"{FIRST}.timeindex: entry 1 (timestamp 1105, offset 9) "
        "stands where the largest timestamp so far is 1104",
    ]


def test_a_time_entry_with_a_wrong_offset() -> None:
    shelf = filled()
    shelf.put(f"{FIRST}.timeindex", 12, struct.pack(">qi", 1104, 8))
    assert shelf.problems() == [
        f"{FIRST}.timeindex: entry 1 (timestamp 1104, offset 8) names no last offset of a batch",
    ]


def test_time_entries_that_do_not_grow() -> None:
    shelf = filled()
    content = shelf.read(f"{FIRST}.timeindex")
    shelf.write(f"{FIRST}.timeindex", content[:24] + content[12:])
    assert shelf.problems() == [
        f"{FIRST}.timeindex: entry 2 (timestamp 1104, offset 9) "
        "does not come after (timestamp 1104, offset 9)",
    ]


def test_a_time_index_without_the_largest_timestamp_of_its_segment() -> None:
    shelf = filled()
    shelf.write(f"{FIRST}.timeindex", shelf.read(f"{FIRST}.timeindex")[:-12])
    assert shelf.problems() == [
        f"{FIRST}.timeindex: the largest timestamp of the segment, 1108, is not in it",
    ]
