"""Rules that are undone on purpose: which rows of the judge count as having found each of them."""

from __future__ import annotations

from random import Random

import pytest

from ottla.chaos.checkers.rows import ROWS
from ottla.proto.ids import Offset
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


def _job_of(file: File) -> SyncJob:
    return SyncJob(Offset(2), (file,), None, {}, Gate())


def test_a_loss_finds_it_and_an_unreadable_partition_does_not() -> None:
    unsynced = BY_NAME["no-fsync"]
    lost = Story().sent("w-1", 0).sent("w-2", 1).read({0: "w-1"})
    unread = Story().sent("w-1", 0).read({}, end=-1)
    assert unsynced.found_by(broken(lost)) == [4]
    assert broken(unread) == {24}
    assert not unsynced.found_by(broken(unread))
