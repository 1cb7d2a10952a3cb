"""What is committed is applied in parts, and a member that is behind goes on talking (R5)."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from ottla.controller.quorum.entries import COMMAND
from ottla.controller.quorum.journal import create_journal
from ottla.controller.quorum.member import Compaction, QuorumMember
from ottla.controller.quorum.memory import MemoryNetwork
from ottla.controller.quorum.port import Committed, Outcome
from ottla.controller.quorum.seam import Timing
from ottla.proto.errors import StorageError
from ottla.replication.storage.memory import MemoryStateStore
from tests.unit.controller.quorum.cluster import Cluster, Notes, voter

AT_ONCE = 5
SLOW = Timing(apply_entries=AT_ONCE)


class SlowNotes(Notes):
    """A machine for which every command takes its time on a clock that it moves."""

    def __init__(self, apply_ms: int) -> None:
        super().__init__()
        self.now_ms = 1_000
        self._apply_ms = apply_ms

    def apply(self, command: bytes) -> object:
        self.now_ms += self._apply_ms
        if command == b"no disk":
            raise StorageError("There is no disk.")
        return super().apply(command)


def started_with(commands: list[bytes], machine: SlowNotes) -> QuorumMember:
    """Return the only voter, with entries in its journal of which it does not know yet whether
    they are committed."""
    journal = create_journal(MemoryStateStore(), voter(1, 1))
    journal.set_term(1, None)
    for index, command in enumerate(commands, start=2):
        journal.add(COMMAND + command, index, 1)
    journal.sync()
    return QuorumMember(
        journal=journal,
        machine=machine,
        link=MemoryNetwork().link(),
        now_ms=lambda: machine.now_ms,
        dice=Random(1),
    )


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def with_a_past(commands: list[bytes], compaction: Compaction | None = None) -> Cluster:
    cluster = Cluster(3, timing=SLOW, compaction=compaction)
    leader = cluster.elect()
    found = [cluster.propose(leader, command) for command in commands]
    cluster.run_until(lambda: all(found))
    cluster.run_until(lambda: all(each.commands == commands for each in cluster.machines.values()))
    return cluster


def restarted(cluster: Cluster) -> int:
    """Stop and start all members, and return who leads when one does."""
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    for node_id in (1, 2, 3):
        cluster.start(node_id)
    cluster.run_until(lambda: len(cluster.leaders()) == 1)
    return cluster.leaders()[0]


@pytest.mark.parametrize(("apply_ms", "at_once"), [(1, 20), (15, 2), (500, 1)])
def test_a_tick_begins_nothing_more_when_its_time_is_over(apply_ms: int, at_once: int) -> None:
    machine = SlowNotes(apply_ms)
    member = started_with(numbered(50), machine)
    done = [0]
    for _ in range(60):
        member.tick()
        done.append(len(machine.commands))
        assert done[-1] - done[-2] <= at_once
        if member.status().commit_index > 1 and not member.has_backlog:
            break
    assert done[-1] == 50
    assert max(after - before for before, after in pairwise(done)) == at_once


def test_on_a_clock_that_stands_still_entries_are_counted() -> None:
    machine = SlowNotes(0)
    member = started_with(numbered(500), machine)
    member.tick()
    assert len(machine.commands) == Timing().apply_entries
    assert member.has_backlog


def test_what_a_machine_cannot_apply_halts_the_member_and_what_is_committed_stays() -> None:
    machine = SlowNotes(0)
    member = started_with([*numbered(3), b"no disk", b"never"], machine)
    with pytest.raises(StorageError, match="no disk"):
        member.tick()
    assert machine.commands == numbered(3)
    status = member.status()
    # The last one is what the new leader added itself.
    assert (status.applied_index, status.commit_index) == (4, 7)
    assert not member.has_backlog


def test_members_that_are_behind_keep_their_leader_and_lose_nothing() -> None:
    commands = numbered(600)
    cluster = with_a_past(commands)
    leader = restarted(cluster)
    term = cluster.members[leader].status().term
    behind = 0
    while any(len(machine.commands) < 600 for machine in cluster.machines.values()):
        before = {n: len(machine.commands) for n, machine in cluster.machines.items()}
        cluster.step()
        for n, machine in cluster.machines.items():
            assert len(machine.commands) - before[n] <= AT_ONCE
        behind += any(member.has_backlog for member in cluster.members.values())
        assert behind < 300
    # It took longer than anybody's patience, and nobody lost it.
    assert behind * 10 > Timing().election_max_ms
    assert cluster.leaders() == [leader]
    assert cluster.members[leader].status().term == term
    assert all(machine.commands == commands for machine in cluster.machines.values())


def test_who_asks_a_leader_that_is_behind_is_answered_when_it_is_not() -> None:
    commands = numbered(300)
    cluster = with_a_past(commands)
    leader = restarted(cluster)
    member, machine = cluster.members[leader], cluster.machines[leader]
    cluster.run_until(lambda: member.has_backlog)
    found = cluster.propose(leader, b"next")
    known_at: list[int] = []
    reads: list[Outcome] = []

    def done(outcome: Outcome) -> None:
        reads.append(outcome)
        known_at.append(len(machine.commands))

    member.read(5_000, done)
    cluster.run(100)
    assert member.has_backlog
    assert not found
    assert not reads
    cluster.run_until(lambda: bool(found and reads))
    assert isinstance(found[0], Committed)
    assert found[0].answer == 301
    assert isinstance(reads[0], Committed)
    assert known_at[0] >= 300
    assert machine.commands == [*commands, b"next"]


def test_a_journal_is_trimmed_while_its_member_is_behind() -> None:
    commands = numbered(300)
    cluster = with_a_past(commands, Compaction(entries=1_000))
    cluster._compaction = Compaction(entries=40)
    restarted(cluster)
    cluster.run_until(lambda: all(each.snapshot for each in cluster.journals.values()))
    assert any(member.has_backlog for member in cluster.members.values())
    # Once more, from the middle of it.
    restarted(cluster)
    cluster.run_until(lambda: all(each.commands == commands for each in cluster.machines.values()))


def test_a_snapshot_overtakes_a_member_that_is_behind() -> None:
    cluster = with_a_past(numbered(300), Compaction(entries=500))
    leader = cluster.leaders()[0]
    lagging = min({1, 2, 3} - {leader})
    cluster.kill(lagging)
    found = [cluster.propose(leader, b"later") for _ in range(300)]
    cluster.run_until(lambda: all(found))
    cluster.run_until(lambda: cluster.journals[leader].snapshot is not None)
    cluster.start(lagging)
    expected = [*numbered(300), *[b"later"] * 300]
    cluster.run_until(lambda: cluster.machines[lagging].commands == expected)
    cluster.commit(leader, b"last")
    cluster.run_until(lambda: cluster.machines[lagging].commands == [*expected, b"last"])
