from __future__ import annotations

from pathlib import Path

import pytest

from ottla.controller.quorum.entries import COMMAND, FIRST_ENTRY, NO_OP, Entry, Snapshot
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import HEAD_KEY, SNAPSHOT_KEY, entry_key, is_blank
from ottla.controller.quorum.membership import Standing
from ottla.proto.errors import CorruptionError, InvariantError, StorageError
from ottla.replication.storage.faults import FaultPlan, FaultRule, FaultyStore, Power
from ottla.replication.storage.lmdb_store import LmdbStateStore
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import voter

Disk = dict[bytes, bytes]


def new(disk: Disk, standing: Standing = Standing.VOTER) -> Journal:
    return create_journal(MemoryStateStore(disk), voter(1, 3, standing))


def again(disk: Disk) -> Journal:
    return Journal(MemoryStateStore(disk))


def fill(journal: Journal, last: int, term: int = 1) -> None:
    journal.set_term(term, None)
    for index in range(journal.last_index + 1, last + 1):
        journal.add(COMMAND + b"%d" % index, index, term)


def test_a_new_journal_is_made_with_its_standing_and_the_first_entry() -> None:
    disk: Disk = {}
    assert is_blank(MemoryStateStore(disk))
    new(disk, Standing.FORMING)
    found = again(disk)
    assert found[:] == [FIRST_ENTRY]
    assert (found.term, found.vote) == (0, None)
    assert found.membership == voter(1, 3, Standing.FORMING)
    with pytest.raises(StorageError, match="already"):
        new(disk)


def test_what_was_synced_is_found_again_and_what_was_not_is_not() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 5)
    journal.set_term(7, 2)
    journal.sync()
    journal.add(COMMAND + b"late", 6, 7)
    found = again(disk)
    assert found[:] == journal[:5]
    assert (found.term, found.vote) == (7, 2)


def test_many_changes_are_one_commit_and_no_change_is_none() -> None:
    journal = new({})
    fill(journal, 100)
    journal.set_term(3, 1)
    journal.sync()
    journal.sync()
    assert journal.syncs == 1


def test_an_older_append_takes_nothing_away() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 20)
    before = journal[:]
    # The library asks for a truncation, then adds what is there already.
    journal.mark_conflicts_from(5)
    journal.add(COMMAND + b"6", 6, 1)
    journal.mark_conflicts_from(3)
    journal.sync()
    assert journal[:] == before == again(disk)[:]


def test_an_entry_of_another_term_replaces_it_and_all_that_follow() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 20)
    journal.sync()
    journal.set_term(2, None)
    journal.mark_conflicts_from(9)
    journal.add(COMMAND + b"new", 11, 2)
    journal.sync()
    assert journal.last_index == 11
    assert again(disk)[:] == journal[:]
    assert again(disk)[-1] == Entry(COMMAND + b"new", 11, 2)


def test_a_conflict_without_a_leaders_append_is_a_bug() -> None:
    journal = new({})
    fill(journal, 5)
    journal.set_term(2, None)
    with pytest.raises(InvariantError, match="append replaces"):
        journal.add(COMMAND, 3, 2)


def test_what_is_committed_is_never_replaced() -> None:
    journal = new({})
    fill(journal, 5)
    journal.set_commit_index(4)
    journal.set_term(2, None)
    journal.mark_conflicts_from(0)
    with pytest.raises(InvariantError, match="committed stays"):
        journal.add(COMMAND, 4, 2)


def test_a_commit_index_is_noted_only_after_a_sync_and_forgotten_by_a_restart() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 5)
    journal.set_commit_index(5)
    assert journal.is_synced
    assert again(disk).last_index == 5
    assert again(disk).committed_at_start == 1


def test_there_is_one_vote_in_a_term_and_only_a_voter_has_one() -> None:
    journal = new({})
    journal.set_term(3, 2)
    with pytest.raises(InvariantError, match="one vote"):
        journal.set_term(3, 1)
    with pytest.raises(InvariantError, match="one vote"):
        journal.set_term(3, None)
    with pytest.raises(InvariantError, match="never falls"):
        journal.set_term(2, None)
    joining = new({}, Standing.JOINING)
    joining.set_term(3, None)
    with pytest.raises(InvariantError, match="only a voter votes"):
        joining.set_term(4, 1)


def test_a_standing_never_goes_back() -> None:
    disk: Disk = {}
    journal = new(disk, Standing.JOINING)
    journal.set_membership(voter(1, 3))
    journal.sync()
    assert again(disk).membership.standing is Standing.VOTER
    with pytest.raises(InvariantError, match="goes back"):
        journal.set_membership(voter(1, 3, Standing.JOINING))


def test_a_snapshot_takes_the_place_of_its_entries_and_of_no_other() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 80)
    journal.set_commit_index(60)
    journal.compact(50, b"state")
    found = again(disk)
    assert found[:] == journal[:]
    assert (found.first_index, found.last_index) == (49, 80)
    directories = {node_id: (f"directory-{node_id}",) for node_id in (1, 2, 3)}
    assert found.snapshot == Snapshot(journal[0], journal[1], b"state", directories)
    assert found.committed_at_start == 50


def test_a_snapshot_of_the_leader_replaces_everything_in_one_commit() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 10)
    journal.sync()
    snapshot = Snapshot(Entry(NO_OP, 99, 2), Entry(NO_OP, 100, 3), b"state")
    journal.set_term(3, None)
    assert journal.wants(100, 3)
    journal.install(snapshot)
    journal.clear()
    journal.add(*snapshot.previous)
    journal.add(*snapshot.last)
    before = dict(disk)
    assert again(before).last_index == 10
    journal.sync()
    assert again(disk)[:] == [snapshot.previous, snapshot.last]
    assert again(disk).snapshot == snapshot
    assert not journal.wants(100, 3)
    assert not journal.wants(50, 2)


def test_a_snapshot_up_to_an_entry_that_is_here_is_not_wanted() -> None:
    journal = new({})
    fill(journal, 10)
    assert not journal.wants(7, 1)
    assert journal.wants(7, 2)
    assert journal.wants(11, 1)
    with pytest.raises(InvariantError, match="empties"):
        journal.clear()


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (HEAD_KEY, "its head"),
        (b"raft/membership", "record of"),
        (SNAPSHOT_KEY, "its snapshot"),
        (entry_key(8), "entry 8"),
        (entry_key(5), "entry 5"),
    ],
)
def test_a_changed_byte_or_a_missing_value_stops_the_start_with_a_sentence(
    key: bytes, sentence: str
) -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 8)
    journal.set_commit_index(8)
    journal.compact(5, b"state")
    for position in range(len(disk[key])):
        damaged = bytearray(disk[key])
        damaged[position] ^= 1
        with pytest.raises(CorruptionError, match=f"{sentence}.*must not vote"):
            again({**disk, key: bytes(damaged)})
    with pytest.raises(CorruptionError, match="must not vote"):
        again({name: value for name, value in disk.items() if name != key})


def test_an_entry_in_the_place_of_another_stops_the_start() -> None:
    disk: Disk = {}
    journal = new(disk)
    fill(journal, 8)
    journal.sync()
    disk[entry_key(4)] = disk[entry_key(5)]
    with pytest.raises(CorruptionError, match="entry 5 stands in the place of entry 4"):
        again(disk)


@pytest.mark.parametrize("operation", ["commit", "committed"])
def test_after_a_failed_commit_nothing_works_any_more(operation: str) -> None:
    plan = FaultPlan([FaultRule(operation, "*", nth=2)])
    store = FaultyStore(MemoryStateStore(), Power(), plan)
    journal = create_journal(store, voter(1, 3))
    fill(journal, 3)
    with pytest.raises(StorageError, match="failed to commit"):
        journal.sync()
    for again_and_again in (journal.sync, lambda: journal.add(COMMAND, 4, 1)):
        with pytest.raises(StorageError, match="takes nothing any more"):
            again_and_again()


def test_only_entries_of_a_known_kind_are_kept() -> None:
    journal = new({})
    for command in (b"", b"\x02members", b"\x03version", NO_OP + b"x", COMMAND + bytes(40_000)):
        with pytest.raises(InvariantError, match="known kind"):
            journal.add(command, 2, 0)


def test_it_lives_in_lmdb(tmp_path: Path) -> None:
    store = LmdbStateStore(str(tmp_path / "quorum"))
    journal = create_journal(store, voter(1, 1))
    fill(journal, 300)
    journal.set_commit_index(200)
    journal.compact(200, b"state" * 10_000)
    kept = journal[:]
    store.close()
    store = LmdbStateStore(str(tmp_path / "quorum"))
    assert Journal(store)[:] == kept
    store.close()
