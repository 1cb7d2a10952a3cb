"""Two that ask at the same time do not both stand, and nobody waits for ever (V5)."""

from __future__ import annotations

from collections import Counter

from ottla.controller.quorum.election import PreElection, Rank
from ottla.controller.quorum.messages import AskPreVote, PreVote
from ottla.controller.quorum.seam import Timing
from tests.unit.controller.quorum.cluster import Cluster

# So near to each other that most of the members lose their patience at the same time.
ALIKE = Timing(election_min_ms=500, election_max_ms=550)


def terms_used(seed: int, timing: Timing) -> int:
    """Return how many terms it takes from a leader's silent death to the next leader."""
    cluster = Cluster(3, seed=seed, timing=timing)
    leader = cluster.elect()
    cluster.run(300)
    term = cluster.members[leader].status().term
    cluster.kill(leader)
    following = cluster.elect()
    return cluster.members[following].status().term - term


def test_two_of_three_elect_a_leader_in_one_term() -> None:
    used = Counter(terms_used(seed, ALIKE) for seed in range(200))
    assert used[1] >= 198, used


def _elected(cluster: Cluster) -> int:
    cluster.run_until(lambda: bool(cluster.leaders()), within_ms=5_000)
    return cluster.leaders()[0]


def test_one_that_asks_and_hears_no_answer_keeps_nobody_from_standing() -> None:
    for seed in range(10):
        cluster = Cluster(5, seed=seed, timing=ALIKE)
        leader = cluster.elect()
        cluster.run(300)
        deaf = min(set(cluster.members) - {leader})
        for peer in sorted(cluster.members):
            if peer != deaf:
                cluster.network.cut(peer, deaf)
        cluster.kill(leader)
        assert deaf != _elected(cluster)


def test_the_lower_rank_waits_once_in_a_term_and_the_higher_never() -> None:
    pre = PreElection(voters=3, patience_ms=500, now_ms=0)
    mine = Rank(last_term=3, last_index=9, minus_node_id=-2)
    # The same log and a higher id.
    assert not pre.yields_to(3, AskPreVote(7, 9, 3), mine)
    # The same log and a lower id, once.
    assert pre.yields_to(1, AskPreVote(7, 9, 3), mine)
    assert not pre.yields_to(1, AskPreVote(7, 9, 3), mine)
    assert pre.yields_to(1, AskPreVote(8, 9, 3), mine)
    # A newer log, whatever its id is.
    assert pre.yields_to(3, AskPreVote(7, 10, 3), mine)
    assert pre.yields_to(5, AskPreVote(7, 2, 4), mine)


def test_who_lets_another_go_first_asks_anew() -> None:
    pre = PreElection(voters=3, patience_ms=500, now_ms=0)
    asked = pre.ask(7, 9, 3)
    assert pre.yields_to(1, asked, Rank(3, 9, -2))
    pre.take_answer(1, PreVote(7, 7, granted=True), 10)
    assert not pre.has_won(10)
    pre.ask(7, 9, 3)
    pre.take_answer(1, PreVote(7, 7, granted=True), 20)
    assert pre.has_won(20)
