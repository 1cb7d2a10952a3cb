"""The power goes at every commit of a formation, and disks are lost: one cluster comes out."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random

import pytest

from ottla.controller.quorum.formation import Account, Formation, Refusal
from ottla.controller.quorum.journal import Journal, create_journal
from ottla.controller.quorum.layout import is_blank
from ottla.controller.quorum.membership import Membership, Standing
from ottla.replication.storage.faults import FaultyStore, Power, PowerCutError
from ottla.replication.storage.memory import MemoryStateStore
from ottla.replication.storage.unsynced import Style

IDS = (1, 2, 3)
# Before and after the commits that make a member forming and a voter.
MOMENTS = (1, 2, 3, 4)


class Home:
    """One node: a disk, and a process that may die at any commit."""

    def __init__(self, node_id: int, new_cluster_id: Callable[[], str]) -> None:
        self.node_id = node_id
        self.lives = 0
        self.power = Power(machine=f"m{node_id}")
        self._new_cluster_id = new_cluster_id
        self.wipe()

    def wipe(self) -> None:
        self.lives += 1
        self.directory_id = f"d{self.node_id}-{self.lives}"
        self._disk: dict[bytes, bytes] = {}
        self.start()

    def start(self) -> None:
        self._store = FaultyStore(MemoryStateStore(self._disk), self.power)
        self._journal = None if is_blank(self._store) else Journal(self._store)
        self.formation = Formation(
            node_id=self.node_id,
            directory_id=self.directory_id,
            configured=IDS,
            new_cluster_id=self._new_cluster_id(),
            membership=self.stored,
        )
        # What was said to this process and has not arrived.
        self.letters: list[Account] = []
        self._do(self.formation.look_around)

    def hear(self, account: Account) -> None:
        self._do(lambda: self.formation.hear(account))

    @property
    def stored(self) -> Membership | None:
        return None if self._journal is None else self._journal.membership

    def _do(self, work: Callable[[], Membership | Refusal | None]) -> None:
        try:
            self._keep(work())
        except PowerCutError:
            self.power.cut(Random(0), Style.DROP)
            self.start()

    def _keep(self, result: Membership | Refusal | None) -> None:
        if not isinstance(result, Membership):
            return
        if self._journal is None:
            self._journal = create_journal(self._store, result)
        else:
            self._journal.set_membership(result)
            self._journal.sync()


class Village:
    """Three nodes that write to one another; letters come late, twice and out of order."""

    def __init__(self, seed: int, pinned: str | None = None) -> None:
        self.dice = Random(seed)
        name = (lambda: pinned) if pinned else (lambda: f"c{self.dice.getrandbits(32)}")
        self.homes = {node_id: Home(node_id, name) for node_id in IDS}

    def write(self) -> None:
        for sender, receiver in product(IDS, IDS):
            if sender != receiver:
                self.homes[receiver].letters.append(self.homes[sender].formation.account)

    def read_some(self) -> None:
        for home in self.homes.values():
            for _ in range(self.dice.randrange(4)):
                if home.letters:
                    # It stays, and may come once more.
                    home.hear(self.dice.choice(home.letters))
            self.check()

    def read_newest(self) -> None:
        for home in self.homes.values():
            newest, home.letters = home.letters[-2:], []
            for letter in newest:
                home.hear(letter)
            self.check()

    def voters(self) -> list[Membership]:
        stored = [home.stored for home in self.homes.values()]
        return [each for each in stored if each and each.standing is Standing.VOTER]

    def check(self) -> None:
        found = {(each.cluster_id, tuple(each.voters.items())) for each in self.voters()}
        assert len(found) <= 1, "two clusters"

    def settle(self) -> None:
        for _ in range(10):
            self.write()
            self.read_newest()


def test_wherever_the_power_goes_the_same_cluster_is_stored_by_all() -> None:
    places = [(node_id, moment) for node_id in IDS for moment in MOMENTS]
    cuts = 0
    for seed, (first, second) in enumerate(product(places, places)):
        village = Village(seed)
        for node_id, moment in (first, second):
            village.homes[node_id].power.cut_at = moment
        for _ in range(6):
            village.write()
            village.read_some()
        village.settle()
        assert len(village.voters()) == 3, (first, second)
        directories = {n: home.directory_id for n, home in village.homes.items()}
        assert all(each.voters == directories for each in village.voters())
        cuts += sum(home.power.cuts for home in village.homes.values())
    assert cuts > len(places) ** 2


@pytest.mark.parametrize("pinned", [None, "pinned"])
def test_disks_that_are_lost_while_a_cluster_forms_never_make_two_of_it(pinned: str | None) -> None:
    formed = joined = 0
    for seed in range(600):
        village = Village(seed, pinned)
        wipes = village.dice.randrange(1, 3)
        for _ in range(20):
            village.write()
            is_worst = [each.node_id for each in village.voters()] == [IDS[0]]
            if wipes and village.dice.random() < (0.9 if is_worst else 0.05):
                wipes -= 1
                # Rather the proposer, when nobody else has heard yet what it decided.
                village.homes[IDS[0] if is_worst else village.dice.choice(IDS)].wipe()
            village.read_some()
        village.settle()
        formed += len(village.voters()) == 3
        standings = [home.stored.standing for home in village.homes.values() if home.stored]
        joined += Standing.JOINING in standings
    # Both ends are reached: nobody lost anything that mattered, or somebody joins.
    assert formed > 50
    assert joined > 50
