"""The power goes at every commit of everybody while a voter that lost its disk comes back."""

from __future__ import annotations

from random import Random

import pytest

from ottla.controller.quorum.member import QuorumMember
from ottla.replication.storage.faults import PowerCutError
from ottla.replication.storage.unsynced import Style
from tests.unit.controller.quorum.test_power_cuts import PoweredCluster
from tests.unit.controller.quorum.wiped import WipedCluster


class Village(PoweredCluster, WipedCluster):
    """Members on machines of their own, that can lose their disks as well."""

    def step(self) -> None:
        super().step()
        self.tell_leaders()

    def start(self, node_id: int) -> QuorumMember:
        try:
            return super().start(node_id)
        except PowerCutError:
            self.powers[node_id].cut(Random(0), Style.DROP)
            return super().start(node_id)


def story(village: Village) -> None:
    leader = village.elect()
    lost, other = village.others(leader)
    commit(village, b"before")
    village.wipe(lost)
    commit(village, b"meanwhile")
    village.run_until(lambda: village.is_voter(lost))
    # What counts is that it can do it without the third one.
    village.kill(other)
    commit(village, b"with its help")
    village.start(other)
    village.run_until(
        lambda: all(
            machine.commands == [b"before", b"meanwhile", b"with its help"]
            for machine in village.machines.values()
        )
    )


def commit(village: Village, command: bytes) -> None:
    """Have it committed, once, though leaders come and go."""
    for _ in range(5):
        leader = village.elect()
        machine = village.machines[leader]
        if command in machine.commands:
            return
        found = village.propose(leader, command, timeout_ms=1_000)
        village.run_until(lambda found=found: bool(found) or not village.leaders())  # type: ignore[misc]
        village.run_until(lambda: bool(village.leaders()))


@pytest.mark.parametrize("one_fuse", [False, True])
def test_wherever_the_power_goes_it_comes_back_and_nothing_is_lost(one_fuse: bool) -> None:
    quiet = Village(3, one_fuse=one_fuse)
    story(quiet)
    cuts = 0
    for node_id, power in quiet.powers.items():
        # The first two are those of the journal's creation, which comes before the story.
        for moment in range(3, power.moments + 1):
            village = Village(3, one_fuse=one_fuse)
            village.powers[node_id].cut_at = moment
            story(village)
            cuts += village.powers[node_id].cuts
    assert cuts > 30
