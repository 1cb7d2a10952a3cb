"""Elections against an elector that is too simple to be wrong, and what must always hold."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.election import Terms, prefer, settle, settle_uncleanly
from ottla.controller.image import PartitionInfo
from ottla.proto.ids import BrokerId, LeaderEpoch

EVERYBODY = tuple(map(BrokerId, range(1, 6)))


@dataclass
class Naive:
    """Rules 16 and 17, word for word, on sets."""

    leader: int | None
    isr: set[int]
    elr: set[int]

    def elect(
        self,
        replicas: tuple[BrokerId, ...],
        target: set[int],
        active: set[int],
        lost: set[int],
        min_isr: int,
        *,
        unclean: bool,
    ) -> None:
        old = self.isr | self.elr
        isr = {one for one in target if one in active} - lost
        claims = old - isr - lost
        if self.leader not in isr:
            good = [one for one in replicas if one in active and one in isr]
            fair = [one for one in replicas if one in active and one in claims]
            rest = [one for one in replicas if one in active and one not in lost]
            if good:
                self.leader = good[0]
            elif fair:
                self.leader, isr = fair[0], {fair[0]}
            elif rest and unclean:
                self.leader, isr, claims = rest[0], {rest[0]}, set()
            else:
                self.leader = None
        self.isr = isr
        self.elr = claims - isr if len(isr) < min(min_isr, len(replicas)) else set()


_subsets = st.sets(st.sampled_from(EVERYBODY))


@dataclass(frozen=True)
class Turn:
    """Something that happens to a partition."""

    active: frozenset[BrokerId]
    lost: frozenset[BrokerId]
    min_isr: int
    is_unclean_allowed: bool
    wanted: frozenset[BrokerId] | None


_turns = st.builds(
    Turn,
    _subsets.map(frozenset),
    _subsets.map(frozenset),
    st.integers(1, 4),
    st.booleans(),
    st.none() | _subsets.map(frozenset),
)


def _first(replicas: tuple[BrokerId, ...]) -> PartitionInfo:
    return PartitionInfo(replicas, replicas, replicas[0], LeaderEpoch(0), 0)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(EVERYBODY), min_size=1, max_size=4, unique=True).map(tuple),
    st.lists(_turns, max_size=8),
)
def test_elections_agree_with_the_rules_word_for_word(
    replicas: tuple[BrokerId, ...], turns: list[Turn]
) -> None:
    partition = _first(replicas)
    naive = Naive(replicas[0], set(replicas), set())
    for turn in turns:
        target = turn.wanted
        # A leader asks for a set that holds itself; anything else was refused before.
        if target is not None and (partition.leader is None or partition.leader not in turn.active):
            target = None
        if target is not None:
            target = frozenset({partition.leader, *target} & set(replicas))  # type: ignore[arg-type]
        # That a disk was lost comes with a command of its own, and never with what a leader asks.
        lost = turn.lost if target is None else frozenset[BrokerId]()
        terms = Terms(turn.min_isr, turn.is_unclean_allowed, turn.active)
        after = settle(partition, terms, isr=target, lost=lost)
        naive.elect(
            replicas,
            set(partition.isr if target is None else target),
            set(turn.active),
            set(lost),
            turn.min_isr,
            unclean=turn.is_unclean_allowed,
        )
        assert (after.leader, set(after.isr), set(after.elr)) == (
            naive.leader,
            naive.isr,
            naive.elr,
        )
        _require_invariants(partition, after, terms, lost, target or frozenset())
        partition = after


def _require_invariants(
    before: PartitionInfo,
    after: PartitionInfo,
    terms: Terms,
    lost: frozenset[BrokerId],
    asked: frozenset[BrokerId],
) -> None:
    replicas = set(after.replicas)
    # E1
    assert set(after.isr) <= replicas & terms.active
    assert set(after.elr) <= replicas - set(after.isr)
    assert after.leader in after.isr if after.leader is not None else not after.isr
    # E2, E3
    assert after.leader_epoch - before.leader_epoch == (after.leader != before.leader)
    if after is not before:
        assert after != before
        assert after.partition_epoch == before.partition_epoch + 1
    # E4
    if len(after.isr) >= min(terms.min_insync, len(after.replicas)):
        assert not after.elr
    # Rule 16: without the topic's word nobody leads who may lack records.
    assert lost.isdisjoint({*after.isr, *after.elr})
    if after.leader != before.leader and after.leader is not None and not terms.is_unclean_allowed:
        assert after.leader in {*before.isr, *before.elr, *asked}
        assert after.last_unclean_epoch == before.last_unclean_epoch


@settings(deadline=None)
@given(st.permutations(EVERYBODY), _subsets.map(frozenset), _subsets)
def test_a_preferred_leader_leads_exactly_if_it_is_in_sync_and_active(
    order: list[BrokerId], active: frozenset[BrokerId], out: set[BrokerId]
) -> None:
    replicas = tuple(order[:3])
    terms = Terms(2, False, active)
    partition = settle(_first(replicas), terms, isr=[one for one in replicas if one not in out])
    moved = prefer(partition, terms)
    if replicas[0] in partition.isr:
        assert moved.leader == replicas[0]
        assert (moved.isr, moved.elr) == (partition.isr, partition.elr)
    else:
        assert moved is partition


@settings(deadline=None)
@given(_subsets.map(frozenset), _subsets.map(frozenset))
def test_an_unclean_election_finds_a_leader_whenever_anybody_is_active(
    before: frozenset[BrokerId], now: frozenset[BrokerId]
) -> None:
    partition = settle(_first(EVERYBODY), Terms(2, False, before))
    elected = settle_uncleanly(partition, Terms(2, False, now))
    assert (elected.leader is None) == (not now)
