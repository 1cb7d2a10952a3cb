"""The store of the quorum's journal passes its named places with snapshots only."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.controller.quorum.entries import COMMAND
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.membership import Standing
from ottla.node.quorum_store import QuorumStore
from ottla.proto.errors import StorageError
from ottla.replication.storage import failpoints
from ottla.replication.storage.failpoints import CrashError
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import voter

BEFORE = "quorum.snapshot.before"
AFTER = "quorum.snapshot.after"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm_all()


def filled(disk: dict[bytes, bytes]) -> Journal:
    journal = create_journal(QuorumStore(MemoryStateStore(disk)), voter(1, 3, Standing.VOTER))
    journal.set_term(1, None)
    for index in range(journal.last_index + 1, 10):
        journal.add(COMMAND + b"%d" % index, index, 1)
    journal.set_commit_index(9)
    return journal


@pytest.mark.parametrize(("place", "is_there"), [(BEFORE, False), (AFTER, True)])
def test_who_dies_with_a_snapshot_has_all_of_it_and_what_it_trims_or_nothing(
    place: str, is_there: bool
) -> None:
    disk = dict[bytes, bytes]()
    journal = filled(disk)
    failpoints.arm(place, "raise")
    with pytest.raises(CrashError):
        journal.compact(8, b"state")
    found = Journal(MemoryStateStore(disk))
    assert (found.snapshot is not None) == is_there
    assert found.first_index == (7 if is_there else 1)
    assert found.last_index == 9


def test_nobody_dies_there_without_a_snapshot() -> None:
    failpoints.arm(BEFORE, "raise")
    failpoints.arm(AFTER, "raise")
    journal = filled({})
    journal.set_term(2, 1)
    journal.sync()
    assert journal.syncs == 2


def test_an_error_at_these_places_is_one_of_the_storage() -> None:
    journal = filled({})
    failpoints.arm(BEFORE, "error(EIO)")
    with pytest.raises(StorageError, match="failed to commit a snapshot"):
        journal.compact(8, b"state")
    with pytest.raises(StorageError, match="takes nothing any more"):
        journal.sync()
