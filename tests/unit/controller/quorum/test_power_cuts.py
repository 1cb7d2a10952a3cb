"""The power goes at every moment before and after every commit of a journal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.port import Committed, Outcome
from ottla.replication.storage.faults import FaultyStore, Power, PowerCutError
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.unit.controller.quorum.cluster import STEP_MS, Cluster

COMMANDS = 3


class PoweredCluster(Cluster):
    """Every member on a machine of its own; all of them on one fuse, if it is told so."""

    def __init__(self, size: int, *, one_fuse: bool) -> None:
        self.powers = {node_id: Power(machine=f"m{node_id}") for node_id in range(1, size + 1)}
        self.one_fuse = one_fuse
        super().__init__(
            size,
            compaction=Compaction(entries=4),
            open_store=lambda n: FaultyStore(MemoryStateStore(self.disks[n]), self.powers[n]),
        )

    def step(self) -> None:
        self.now_ms += STEP_MS
        for node_id in sorted(self.members):
            if node_id in self.members:
                self._try(node_id, self.members[node_id].tick)
        for sender, receiver in sorted(self.network.queues):
            queue = self.network.queues.get((sender, receiver), ())
            for _ in range(len(queue)):
                if (sender, receiver) in self.network.queues:
                    self._try(receiver, partial(self.network.deliver, sender, receiver, 1))

    def _try(self, node_id: int, work: Callable[[], object]) -> None:
        try:
            work()
        except PowerCutError:
            hit = sorted(self.members) if self.one_fuse else [node_id]
            for each in hit:
                self.kill(each)
                self.powers[each].cut(Random(0), Style.DROP)
            for each in hit:
                self.start(each)


def wait_for_an_answer(cluster: Cluster, leader: int, found: list[Outcome]) -> None:
    cluster.run_until(lambda: bool(found) or leader not in cluster.leaders())


def all_have_the_same(cluster: Cluster) -> bool:
    first, *others = (member.status() for member in cluster.members.values())
    return first.leader is not None and all(
        (other.leader, other.last_index, other.applied_index)
        == (first.leader, first.last_index, first.last_index)
        for other in (first, *others)
    )


def story(cluster: Cluster) -> list[tuple[bytes, list[Outcome]]]:
    """Elect, commit, leave a follower behind a snapshot, bring it back; return what was told."""
    told: list[tuple[bytes, list[Outcome]]] = []

    def commit_some(round_number: int) -> None:
        for number in range(COMMANDS):
            leader = cluster.elect()
            command = b"%d/%d" % (round_number, number)
            told.append((command, cluster.propose(leader, command, timeout_ms=1_000)))
            wait_for_an_answer(cluster, leader, told[-1][1])

    commit_some(0)
    if cluster.size > 1:
        left_behind = next(n for n in cluster.members if n != cluster.elect())
        cluster.network.cut_off(left_behind)
        commit_some(1)
        cluster.network.heal()
    commit_some(2)
    cluster.run_until(lambda: all_have_the_same(cluster))
    return told


def check(cluster: Cluster, told: list[tuple[bytes, list[Outcome]]]) -> int:
    longest = max((machine.commands for machine in cluster.machines.values()), key=len)
    committed = [command for command, found in told if found and isinstance(found[0], Committed)]
    assert [command for command in longest if command in committed] == committed
    assert len(set(longest)) == len(longest)
    for machine in cluster.machines.values():
        assert machine.commands == longest
    return len(committed)


@pytest.mark.parametrize("one_fuse", [False, True])
@pytest.mark.parametrize("size", [1, 3])
def test_no_acknowledged_command_is_lost_wherever_the_power_goes(size: int, one_fuse: bool) -> None:
    quiet = PoweredCluster(size, one_fuse=one_fuse)
    assert check(quiet, story(quiet)) == COMMANDS * (2 if size == 1 else 3)
    moments = {node_id: power.moments for node_id, power in quiet.powers.items()}
    assert min(moments.values()) > 15
    cuts = 0
    for node_id, count in moments.items():
        # The first two are those of the journal's creation, which comes before the story.
        for moment in range(3, count + 1):
            cluster = PoweredCluster(size, one_fuse=one_fuse)
            cluster.powers[node_id].cut_at = moment
            check(cluster, story(cluster))
            cuts += cluster.powers[node_id].cuts
    assert cuts > 0.9 * sum(moments.values()) - 2 * size
