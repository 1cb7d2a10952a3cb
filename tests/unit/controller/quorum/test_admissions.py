"""What a journal knows of directories, and that it comes and goes with its entries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.quorum.entries import (
    ADMIT,
    COMMAND,
    DIRECTORY_ID_BYTES_MAX,
    NO_OP,
    Admit,
    Entry,
    Snapshot,
    admission_in,
    decode_entry,
    decode_snapshot,
    encode_admission,
    encode_entry,
    encode_snapshot,
    is_known_kind,
)
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.membership import Standing
from ottla.proto.errors import CorruptionError
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import directory_of, voter

Disk = dict[bytes, bytes]


def new(disk: Disk, standing: Standing = Standing.VOTER) -> Journal:
    return create_journal(MemoryStateStore(disk), voter(1, 3, standing))


def again(disk: Disk) -> Journal:
    return Journal(MemoryStateStore(disk))


def command(voter_id: int, directory_id: str) -> bytes:
    return ADMIT + encode_admission(Admit(voter_id, directory_id))


def admit(journal: Journal, voter_id: int, directory_id: str) -> int:
    index = journal.last_index + 1
    journal.add(command(voter_id, directory_id), index, journal.term)
    return index


def test_the_newest_admission_counts_whether_it_is_committed_or_not() -> None:
    disk: Disk = {}
    journal = new(disk)
    assert journal.admissions.newest == voter(1, 3).voters
    first = admit(journal, 2, "two")
    second = admit(journal, 2, "two again")
    admit(journal, 3, "three")
    journal.sync()
    for each in (journal, again(disk)):
        newest = each.admissions.newest
        assert newest == {1: directory_of(1), 2: "two again", 3: "three"}
        assert each.admissions.had(2) == (directory_of(2), "two", "two again")
        assert each.admissions.index(2) == second > first
        assert each.admissions.index(1) == 1


def test_an_admission_that_is_truncated_is_taken_back() -> None:
    disk: Disk = {}
    journal = new(disk)
    journal.set_term(1, None)
    admit(journal, 2, "two")
    later = admit(journal, 2, "two again")
    journal.sync()
    journal.set_term(2, None)
    journal.mark_conflicts_from(0)
    journal.add(COMMAND + b"other", later, 2)
    assert journal.admissions.newest[2] == "two"
    assert again(disk).admissions.newest[2] == "two again"
    journal.sync()
    assert again(disk).admissions.newest[2] == "two"
    journal.set_term(3, None)
    journal.mark_conflicts_from(0)
    journal.add(NO_OP, later - 1, 3)
    assert journal.admissions.newest == voter(1, 3).voters
    assert journal.admissions.had(2) == (directory_of(2),)


def test_a_snapshot_keeps_what_was_admitted_before_its_end_and_no_more() -> None:
    disk: Disk = {}
    journal = new(disk)
    for directory_id in ("one", "two", "three"):
        admit(journal, 2, directory_id)
    end = journal.last_index - 1
    journal.set_commit_index(end)
    journal.compact(end, b"state")
    for each in (journal, again(disk)):
        assert each.snapshot is not None
        assert each.snapshot.directories[2] == (directory_of(2), "one", "two")
        assert each.admissions.had(2) == (directory_of(2), "one", "two", "three")
        assert each.admissions.was_admitted(2, "three")
        assert not each.admissions.was_admitted(2, "two")
    # What is not committed can still go.
    journal.set_term(1, None)
    journal.mark_conflicts_from(0)
    journal.add(NO_OP, end + 1, 1)
    assert journal.admissions.newest[2] == "two"
    assert journal.admissions.index(2) == end


def test_a_snapshot_of_the_leader_brings_its_directories() -> None:
    disk: Disk = {}
    journal = new(disk, Standing.JOINING)
    admit(journal, 2, "never committed")
    had = {1: (directory_of(1), "new"), 2: (directory_of(2),), 3: (directory_of(3), "a", "b")}
    snapshot = Snapshot(Entry(NO_OP, 9, 0), Entry(command(3, "b"), 10, 0), b"", had)
    journal.install(snapshot)
    journal.clear()
    journal.add(*snapshot.previous)
    journal.add(*snapshot.last)
    journal.sync()
    for each in (journal, again(disk)):
        assert each.admissions.newest == {1: "new", 2: directory_of(2), 3: "b"}
        assert each.admissions.had(3) == (directory_of(3), "a", "b")
        assert each.admissions.was_admitted(1, "new")


def test_the_formation_admits_nobody_and_no_entry_makes_a_voter_of_a_stranger() -> None:
    journal = new({})
    assert not journal.admissions.was_admitted(1, directory_of(1))
    admit(journal, 9, "stranger")
    assert journal.admissions.newest == voter(1, 3).voters
    assert not journal.admissions.was_admitted(9, "stranger")


@given(st.integers(0, 2**64 - 1), st.text(min_size=1, max_size=60))
def test_an_admission_that_was_encoded_is_found_again(voter_id: int, directory_id: str) -> None:
    try:
        expected = Admit(voter_id, directory_id)
        data = command(voter_id, directory_id)
    except UnicodeEncodeError:
        return
    assert admission_in(data) == expected
    entry = Entry(data, 7, 3)
    assert decode_entry(encode_entry(entry), "it") == entry
    had = {voter_id: ("first", directory_id)}
    snapshot = Snapshot(Entry(NO_OP, 6, 3), entry, b"state", had)
    assert decode_snapshot(encode_snapshot(snapshot), "it") == snapshot


@pytest.mark.parametrize(
    "data",
    [
        ADMIT,
        ADMIT + bytes(8),
        ADMIT + bytes(8) + b"\xff",
        ADMIT + bytes(8 + DIRECTORY_ID_BYTES_MAX + 1),
        COMMAND + bytes(8) + b"directory",
    ],
)
def test_what_is_no_admission_is_not_taken_for_one(data: bytes) -> None:
    assert admission_in(data) is None
    assert is_known_kind(data) == (data[:1] == COMMAND)


def test_a_snapshot_that_names_directories_in_another_way_is_not_taken() -> None:
    broken = Snapshot(Entry(NO_OP, 1, 0), Entry(NO_OP, 2, 0), b"", {1: 5})  # type: ignore[dict-item]
    with pytest.raises(CorruptionError, match="in a way not known"):
        decode_snapshot(encode_snapshot(broken), "it")
