from __future__ import annotations

from random import Random

import pytest

from ottla.controller.quorum.formation import Account, Formation, Refusal
from ottla.controller.quorum.membership import Membership, Standing


class Nodes:
    """Members that tell one another what they are, and their disks."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.dice = Random(seed)
        self.ids = tuple(range(1, size + 1))
        self.disks: dict[int, Membership | None] = dict.fromkeys(self.ids)
        self.directories = {n: f"d{n}" for n in self.ids}
        self.up: dict[int, Formation] = {}
        self.refusals: list[str] = []
        # Every membership that was ever stored, in order.
        self.stored: list[Membership] = []
        self.crash_after: int | None = None

    def start(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.up[node_id] = Formation(
                node_id=node_id,
                directory_id=self.directories[node_id],
                configured=self.ids,
                new_cluster_id=f"cluster-{self.dice.getrandbits(32)}",
                membership=self.disks[node_id],
            )
            self._keep(node_id, self.up[node_id].look_around())

    def wipe(self, node_id: int) -> None:
        self.up.pop(node_id, None)
        self.disks[node_id] = None
        self.directories[node_id] += "x"

    def talk(self, rounds: int = 10) -> None:
        for _ in range(rounds):
            accounts = [each.account for each in self.up.values()]
            self.dice.shuffle(accounts)
            for account in accounts:
                for node_id in [n for n in self.up if n != account.node_id]:
                    if node_id in self.up:
                        self._keep(node_id, self.up[node_id].hear(account))

    def _keep(self, node_id: int, result: Membership | Refusal | None) -> None:
        if isinstance(result, Refusal):
            self.refusals.append(result.sentence)
        if not isinstance(result, Membership):
            return
        self.stored.append(result)
        is_crash = self.crash_after == len(self.stored)
        # Before or after the commit: half of the crashes lose it.
        if not is_crash or self.dice.random() < 0.5:
            before = self.disks[node_id]
            assert before is None or before.may_become(result)
            self.disks[node_id] = result
        if is_crash:
            del self.up[node_id]
            self.start(node_id)

    def standings(self) -> list[Standing]:
        return [each.account.standing for _, each in sorted(self.up.items())]


@pytest.mark.parametrize("size", [1, 3, 5])
def test_all_become_voters_of_one_cluster_with_one_list(size: int) -> None:
    nodes = Nodes(size)
    nodes.start(*nodes.ids)
    nodes.talk()
    assert nodes.standings() == [Standing.VOTER] * size
    kept = list(nodes.disks.values())
    assert len({each.cluster_id for each in kept if each}) == 1
    assert all(each and each.voters == nodes.directories for each in kept)


@pytest.mark.parametrize("size", [3, 5])
def test_a_crash_at_any_step_is_made_good_by_a_restart(size: int) -> None:
    quiet = Nodes(size)
    quiet.start(*quiet.ids)
    quiet.talk()
    for step in range(1, len(quiet.stored) + 1):
        for seed in range(8):
            nodes = Nodes(size, seed)
            nodes.crash_after = step
            nodes.start(*nodes.ids)
            nodes.talk()
            assert nodes.standings() == [Standing.VOTER] * size, (step, seed)
            clusters = {each.cluster_id for each in nodes.disks.values() if each}
            assert len(clusters) == 1


def test_nobody_is_a_voter_before_all_have_stored_the_same() -> None:
    nodes = Nodes(3)
    nodes.start(1, 2)
    nodes.talk()
    assert nodes.standings() == [Standing.BLANK, Standing.BLANK]
    assert nodes.up[1].missing == (3,)
    nodes.start(3)
    nodes.talk()
    first_voter = [each.standing for each in nodes.stored].index(Standing.VOTER)
    assert {each.node_id for each in nodes.stored[:first_voter]} == {1, 2, 3}
    assert nodes.stored[first_voter].node_id == 1


def test_one_that_lost_its_disk_joins_and_does_not_form() -> None:
    nodes = Nodes(3)
    nodes.start(1, 2, 3)
    nodes.talk()
    for node_id in (3, 1):
        nodes.wipe(node_id)
        nodes.start(node_id)
        nodes.talk()
        assert nodes.up[node_id].account.standing is Standing.JOINING
        found = nodes.up[node_id].membership
        assert found is not None
        assert found.cluster_id == nodes.up[2].account.cluster_id


def test_a_proposer_that_lost_its_disk_before_anybody_voted_forms_anew() -> None:
    nodes = Nodes(3)
    nodes.start(1, 2, 3)
    nodes.talk(1)
    assert Standing.VOTER not in nodes.standings()
    nodes.wipe(1)
    nodes.start(1)
    nodes.talk()
    assert nodes.standings() == [Standing.VOTER] * 3
    assert all(each and each.voters == nodes.directories for each in nodes.disks.values())


def test_a_follower_that_lost_its_disk_while_forming_is_listed_with_its_new_one_or_joins() -> None:
    for rounds in (1, 2, 3):
        nodes = Nodes(3)
        nodes.start(1, 2, 3)
        nodes.talk(rounds)
        nodes.wipe(2)
        nodes.start(2)
        nodes.talk()
        standing = nodes.up[2].account.standing
        assert standing in (Standing.VOTER, Standing.JOINING)
        if standing is Standing.VOTER:
            assert all(each and each.voters == nodes.directories for each in nodes.disks.values())


def test_members_that_disagree_about_who_votes_do_nothing_and_say_why() -> None:
    one = Formation(
        node_id=1, directory_id="d1", configured=(1, 2, 3), new_cluster_id="c", membership=None
    )
    told = one.hear(Account(2, "d2", (1, 2)))
    assert isinstance(told, Refusal)
    assert "the voters 1, 2 and this node has 1, 2, 3" in told.sentence
    stranger = one.hear(Account(9, "d9", (1, 2, 3)))
    assert isinstance(stranger, Refusal)
    assert one.membership is None
    assert one.missing == (2, 3)


@pytest.mark.parametrize(
    ("cluster_id", "directory", "sentence"),
    [("other", "d2", "votes in the cluster other"), ("c", "old", "another data directory")],
)
def test_one_that_was_forming_something_else_is_refused(
    cluster_id: str, directory: str, sentence: str
) -> None:
    stored = Membership(Standing.FORMING, "c", 2, "d2", {1: "d1", 2: "d2", 3: "d3"})
    two = Formation(
        node_id=2, directory_id="d2", configured=(1, 2, 3), new_cluster_id="x", membership=stored
    )
    voters = {1: "d1", 2: directory, 3: "d3"}
    told = two.hear(Account(1, "d1", (1, 2, 3), Standing.VOTER, cluster_id, voters))
    assert isinstance(told, Refusal)
    assert sentence in told.sentence
    assert two.membership == stored


def test_what_was_stored_is_not_replaced_once_somebody_votes() -> None:
    stored = Membership(Standing.FORMING, "c", 2, "d2", {1: "d1", 2: "d2", 3: "d3"})
    two = Formation(
        node_id=2, directory_id="d2", configured=(1, 2, 3), new_cluster_id="x", membership=stored
    )
    everybody = (1, 2, 3)
    assert isinstance(two.hear(Account(3, "d3", everybody, Standing.VOTER, "other", {})), Refusal)
    anew = {1: "d1x", 2: "d2", 3: "d3"}
    assert two.hear(Account(1, "d1x", everybody, Standing.FORMING, "y", anew)) is None
    assert two.membership == stored


def forming(node_id: int, voters: dict[int, str], cluster_id: str = "c") -> Formation:
    stored = Membership(Standing.FORMING, cluster_id, node_id, voters[node_id], dict(voters))
    return Formation(
        node_id=node_id,
        directory_id=voters[node_id],
        configured=(1, 2, 3),
        new_cluster_id="x",
        membership=stored,
    )


def said(standing: Standing, node_id: int, voters: dict[int, str], cluster_id: str) -> Account:
    return Account(node_id, voters[node_id], (1, 2, 3), standing, cluster_id, voters)


# The second one is what an operator gets who has set the cluster id.
@pytest.mark.parametrize("new_id", ["new", "c"])
def test_the_late_word_of_a_proposer_that_is_gone_brings_nobody_back(new_id: str) -> None:
    old, new = {1: "d1", 2: "d2", 3: "d3"}, {1: "d1x", 2: "d2", 3: "d3"}
    two = forming(2, old)
    followed = two.hear(said(Standing.FORMING, 1, new, new_id))
    assert isinstance(followed, Membership)
    assert followed.voters == new
    # The first proposer said this before it lost its disk. The second one counts on us by now.
    assert two.hear(said(Standing.FORMING, 1, old, "c")) is None
    late = two.hear(said(Standing.VOTER, 1, old, "c"))
    assert isinstance(late, Refusal)
    assert two.membership == followed
    voter = two.hear(said(Standing.VOTER, 1, new, new_id))
    assert isinstance(voter, Membership)
    assert (voter.standing, voter.cluster_id, voter.voters) == (Standing.VOTER, new_id, new)


def test_a_blank_member_whose_directory_votes_already_has_lost_its_journal_and_is_refused() -> None:
    three = Formation(
        node_id=3, directory_id="d3", configured=(1, 2, 3), new_cluster_id="x", membership=None
    )
    told = three.hear(said(Standing.VOTER, 1, {1: "d1", 2: "d2", 3: "d3"}, "c"))
    assert isinstance(told, Refusal)
    assert "its quorum's journal is gone" in told.sentence
    assert three.membership is None


def test_an_old_account_of_a_blank_member_changes_nothing_for_those_who_are_further() -> None:
    voters = {1: "d1", 2: "d2", 3: "d3"}
    for node_id in (1, 2):
        one = forming(node_id, voters)
        before = one.membership
        assert one.hear(Account(3, "d3", (1, 2, 3))) is None
        assert one.membership == before
    # To be finished, the proposer needs a newer one.
    one = forming(1, voters)
    assert one.hear(said(Standing.FORMING, 2, voters, "c")) is None
    assert one.hear(Account(3, "d3", (1, 2, 3))) is None
    assert isinstance(one.hear(said(Standing.FORMING, 3, voters, "c")), Membership)


@pytest.mark.parametrize("formed", [(1,), (1, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("is_forming", [False, True])
def test_who_meets_a_cluster_of_other_voters_stores_nothing_and_says_what_to_do(
    formed: tuple[int, ...], is_forming: bool
) -> None:
    if is_forming:
        two = forming(2, {1: "d1", 2: "d2", 3: "d3"})
    else:
        two = Formation(
            node_id=2,
            directory_id="d2",
            configured=(1, 2, 3),
            new_cluster_id="other",
            membership=None,
        )
    before = two.membership
    voters = {node_id: f"d{node_id}" for node_id in formed}
    for _ in range(2):
        told = two.hear(Account(1, "d1", (1, 2, 3), Standing.VOTER, "c", voters))
        assert isinstance(told, Refusal)
        assert f"with the voters {', '.join(map(str, formed))}, and" in told.sentence
        assert "set controller.quorum.voters back" in told.sentence
    assert two.look_around() is None
    assert two.membership is before
