"""Real members on virtual time in bad weather, from a seed, and the promises they must keep.

Members are killed and started, ways are cut one way or both, envelopes are late, lost, repeated and
put out of order, members stand still for a while. Leaders die when it hurts most: right after they
have acknowledged something; voters restart while they are needed. After every step the promises are
checked.
"""

from __future__ import annotations

from collections import deque
from random import Random

from ottla.controller.quorum.member import Compaction
from ottla.controller.quorum.messages import Envelope
from ottla.controller.quorum.port import Committed, Outcome, Refused
from ottla.controller.quorum.seam import Timing
from tests.unit.controller.quorum.cluster import STEP_MS, Cluster


class LateCluster(Cluster):
    """Members that are not all ticked, and ways on which things stay under way."""

    def __init__(self, size: int, dice: Random, compaction: Compaction, timing: Timing) -> None:
        self.weather = dice
        # How much of what is under way arrives in a step.
        self.pace = dice.choice([0.2, 0.5, 0.9])
        self.is_calm = False
        seed = dice.getrandbits(32)
        super().__init__(size, seed=seed, compaction=compaction, timing=timing)

    def step(self) -> None:
        if self.is_calm:
            super().step()
            return
        self.now_ms += STEP_MS
        for node_id in sorted(self.members):
            if self.weather.random() < 0.9:
                self.members[node_id].tick()
        for way in sorted(self.network.queues):
            queue = self.network.queues[way]
            if queue and self.weather.random() < self.pace:
                self._spoil(queue)
                self.network.deliver(*way, self.weather.randint(0, len(queue)))

    def _spoil(self, queue: deque[Envelope]) -> None:
        """Lose, repeat or swap: the inbox must make up for it."""
        match self.weather.randrange(20):
            case 0:
                queue.popleft()
            case 1:
                queue.appendleft(queue[0])
            case 2:
                queue.rotate(1)
            case _:
                pass


class Storm:
    """A cluster, dice, and what its clients were told."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        size = self.dice.choice([1, 3, 3, 3, 5, 5])
        entries = self.dice.choice([8, 40, 10_000])
        # With little patience to choose from, several stand at the same time.
        self.hates_leaders = self.dice.random() < 0.5
        timing = Timing(election_max_ms=600 if self.hates_leaders else 1_000)
        self.cluster = LateCluster(size, self.dice, Compaction(entries=entries), timing)
        # Large ones fill several batches, so that a leader can die between two.
        self.padding = bytes(self.dice.choice([0, 25_000]))
        self.acknowledged = 0
        self.votes: dict[int, int | None] = {}
        self.restart_soon: list[int] = []
        self.told: dict[bytes, list[Outcome]] = {}
        # The commands of whoever has applied most.
        self.longest: list[bytes] = []
        self.leader_of_term: dict[int, int] = {}

    def run(self, steps: int = 600) -> None:
        for _ in range(steps):
            self._disturb()
            self._hurt()
            self.cluster.step()
            self._check()
        self._calm_down()

    def _disturb(self) -> None:
        node_id = self.dice.randrange(1, self.cluster.size + 1)
        match self.dice.randrange(60):
            case 0:
                if node_id in self.cluster.members:
                    self.cluster.kill(node_id)
            case 1 | 2:
                self._start_all()
            case 3 | 4 | 5:
                self._disturb_network()
            case 8 | 9 | 10 | 11 | 12 | 13 | 14:
                self._propose(node_id)
            case 15:
                # Nobody was ticked for a while.
                self.cluster.now_ms += self.dice.randrange(1_500)
            case _:
                pass

    def _hurt(self) -> None:
        """Do what is worst now."""
        acknowledged = sum(isinstance(found[0], Committed) for found in self.told.values() if found)
        leaders = self.cluster.leaders()
        is_bad_moment = self.hates_leaders or acknowledged > self.acknowledged
        if leaders and is_bad_moment and self.dice.random() < 0.2:
            self.cluster.kill(self.dice.choice(leaders))
        elif self.hates_leaders and self.dice.random() < 0.2:
            self._start_all()
        self.acknowledged = acknowledged
        votes = {node_id: self.cluster.journals[node_id].vote for node_id in self.cluster.members}
        for node_id, vote in votes.items():
            if vote not in (None, node_id, self.votes.get(node_id)) and self.dice.random() < 0.3:
                self.restart_soon.append(node_id)
        self.votes = votes
        if self.restart_soon and self.dice.random() < 0.3:
            node_id = self.restart_soon.pop()
            if node_id in self.cluster.members:
                self.cluster.kill(node_id)
                self.cluster.start(node_id)

    def _start_all(self) -> None:
        for node_id in range(1, self.cluster.size + 1):
            if node_id not in self.cluster.members:
                self.cluster.start(node_id)

    def _propose(self, node_id: int) -> None:
        if node_id in self.cluster.members:
            # Rather to whoever leads, or little would happen.
            leaders = self.cluster.leaders()
            if leaders and self.dice.random() < 0.8:
                node_id = self.dice.choice(leaders)
            command = b"%d" % len(self.told) + self.padding
            self.told[command] = self.cluster.propose(node_id, command, timeout_ms=2_000)

    def _disturb_network(self) -> None:
        network, there = self.cluster.network, sorted(self.cluster.members)
        match self.dice.randrange(3):
            case 0:
                if len(there) > 1:
                    network.cut(*self.dice.sample(there, 2))
            case 1:
                network.cut_off(self.dice.choice(there or [1]))
            case _:
                network.heal()

    def _calm_down(self) -> None:
        cluster = self.cluster
        cluster.is_calm = True
        self._start_all()
        cluster.network.heal()
        leader = cluster.elect()
        cluster.commit(leader, b"last")
        cluster.run_until(
            lambda: all(machine.commands[-1:] == [b"last"] for machine in cluster.machines.values())
        )
        self._check()

    def _check(self) -> None:
        for node_id in self.cluster.leaders():
            term = self.cluster.members[node_id].status().term
            assert self.leader_of_term.setdefault(term, node_id) == node_id, "two leaders in a term"
        for machine in self.cluster.machines.values():
            shared = min(len(machine.commands), len(self.longest))
            assert machine.commands[:shared] == self.longest[:shared], "two histories"
            if len(machine.commands) > shared:
                self.longest = list(machine.commands)
        assert len(set(self.longest)) == len(self.longest), "a command was applied twice"
        for command, outcomes in self.told.items():
            self._check_outcome(command, outcomes)

    def _check_outcome(self, command: bytes, outcomes: list[Outcome]) -> None:
        assert len(outcomes) <= 1, "a caller was answered twice"
        match outcomes:
            case [Committed(answer=place)]:
                assert isinstance(place, int)
                assert self.longest[place - 1] == command, "what was acknowledged is gone"
            case [Refused()]:
                assert command not in self.longest, "what was refused has happened"
            case _:
                pass
