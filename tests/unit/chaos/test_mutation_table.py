"""Rules that are undone on purpose: which rows of the judge count as having found each of them."""

from __future__ import annotations

from functools import partial
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.chaos.checkers.rows import ROWS
from ottla.node.groups.ledger import Ledger
from ottla.proto.errors import ErrorCode, RequestError
from ottla.proto.ids import Offset
from ottla.replication.log.append import Appended
from ottla.replication.log.sync import Gate, SyncJob
from ottla.replication.storage.faults import FaultPlan, FaultRule
from ottla.replication.storage.ports import File
from ottla.replication.storage.unsynced import Style
from tests.chaos.mutations import BY_NAME, MUTATIONS, Mutation
from tests.unit.chaos.story import Story, broken
from tests.unit.replication.storage.faulty_machine import content_of, durable, machine


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_rule_is_found_by_what_it_is_there_for_and_not_by_a_cluster_that_stands_still(
    mutation: Mutation,
) -> None:
    assert mutation.rows
    assert mutation.rows <= set(ROWS)
    assert not mutation.found_by({23, 24})
    for row in mutation.rows:
        assert mutation.found_by({row, 24}) == [row]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_what_is_undone_is_there(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    # A name that is gone raises here, and not after minutes in a real node.
    mutation.undo(monkeypatch)


def test_what_a_group_commits_too_early_counts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    applied, told = list[Offset](), list[ErrorCode | None]()

    def written(appended: object) -> bool:
        ledger = cast("Ledger", SimpleNamespace(_append=partial(_appended, appended)))
        return Ledger.write(ledger, b"", applied.append, told.append)

    BY_NAME["commit-before-replication"].undo(monkeypatch)
    assert written(Appended(Offset(4), Offset(6), 0))
    assert (applied, told) == ([7], [None])
    # What is there already is applied by whoever wrote it.
    assert written(Appended(Offset(4), Offset(6), 0, is_duplicate=True))
    assert (applied, told) == ([7], [None, None])
    assert not written(RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert (applied, told) == ([7], [None, None, ErrorCode.NOT_COORDINATOR])


def _appended(outcome: object, _: bytes) -> object:
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome


def test_who_ignores_a_failed_sync_goes_on_and_loses_what_the_power_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files, power = machine(FaultPlan([FaultRule("sync", "a", nth=2, is_lasting=True)]))
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    with pytest.raises(OSError, match="Input/output error"):
        _job_of(file).run()
    BY_NAME["failed-sync-ignored"].undo(monkeypatch)
    _job_of(file).run()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one\0\0\0"


def test_who_never_syncs_loses_what_the_power_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    files, power = machine(FaultPlan([]))
    file = durable(files, "/a", b"one")
    file.write_at(3, [b"two"])
    BY_NAME["no-fsync"].undo(monkeypatch)
    _job_of(file).run()
    power.cut(Random(0), Style.DROP)
    assert content_of(files, "/a") == b"one"


@pytest.mark.parametrize("name", ["no-fsync", "failed-sync-ignored"])
def test_the_kernel_does_not_sync_behind_the_back_of_who_undoes_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it did, and the harness found nothing wrong, because nothing was."""
    file = cast("File", SimpleNamespace(begin_kernel_sync=lambda: "the kernel's"))
    assert _job_of(file).begin_in_kernel() is not None
    BY_NAME[name].undo(monkeypatch)
    assert _job_of(file).begin_in_kernel() is None


def _job_of(file: File) -> SyncJob:
    return SyncJob(Offset(2), (file,), None, {}, Gate())


def test_a_loss_finds_it_and_an_unreadable_partition_does_not() -> None:
    unsynced = BY_NAME["no-fsync"]
    lost = Story().sent("w-1", 0).sent("w-2", 1).read({0: "w-1"})
    unread = Story().sent("w-1", 0).read({}, end=-1)
    assert unsynced.found_by(broken(lost)) == [4]
    assert broken(unread) == {24}
    assert not unsynced.found_by(broken(unread))
