"""The small world of copies goes red for each rule that is broken on purpose.

A checker that never complains proves nothing. Each of these cores forgets one rule; dice must find
out, or a chain of events that is told step by step.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.proto.errors import ErrorCode, InvariantError
from ottla.replication.follower import FollowerCore
from ottla.replication.leader import LeaderCore
from tests.scripts.replication.breaks import (
    CountsUnsynced,
    CutsAtHighWatermark,
    ExpandsLate,
    ForgetsDoubt,
    NeverLooksBack,
    NoEpochStart,
    NoMinimum,
    NoSyncAtLeader,
    OldLivesCount,
    RevertsOnTimeOut,
    ShrinksEarly,
)
from tests.scripts.replication.copies import LAG_MS, Copies
from tests.scripts.replication.playing import Player, thrown

SEEDS = 150
STEPS = 200

# Those that dice find soon.
BREAKS: list[type[LeaderCore] | type[FollowerCore]] = [
    ShrinksEarly,
    NoMinimum,
    CountsUnsynced,
    NoSyncAtLeader,
    CutsAtHighWatermark,
    NeverLooksBack,
]


def is_found(broken: type[LeaderCore] | type[FollowerCore], seed: int) -> bool:
    leads = broken if issubclass(broken, LeaderCore) else LeaderCore
    follows = broken if issubclass(broken, FollowerCore) else FollowerCore
    world = Copies(3, min_isr=1 + seed % 3, leads=leads, follows=follows)
    try:
        Player(world).play(thrown(seed, STEPS))
        world.heal(30)
        world.require_agreement()
    except (AssertionError, InvariantError):
        return True
    return False


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.__name__)
def test_a_broken_rule_is_found(broken: type[LeaderCore] | type[FollowerCore]) -> None:
    assert any(is_found(broken, seed) for seed in range(SEEDS))


# ── Those that take a longer chain of events, told step by step ───────────────────────────────


def go_on(world: Copies, *numbers: int) -> None:
    """These brokers sync and fetch until nothing is new."""
    for _ in range(3):
        for number in numbers:
            world.sync(number)
            world.fetch(number)
        world.require_promises()


def third_returns(world: Copies) -> None:
    """Broker 3 was away, and is proposed by 1, which leads, to be in sync again."""
    world.write(1, "a")
    go_on(world, 1, 2, 3)
    world.crash(3)
    world.cluster.fence(3)
    go_on(world, 1, 2)
    world.restart(3)
    world.cluster.unfence(3)
    for number in (1, 2, 3):
        world.learn(number)
    go_on(world, 3)
    world.propose(1)
    assert world.letters[0].proposal.members == (1, 2, 3)


def written_without_third(world: Copies) -> None:
    """So much later that nobody waits for 3 because it was caught up a moment ago."""
    world.wait(LAG_MS + 1)
    world.write(1, "b")
    go_on(world, 1, 2)


def it_is_committed_late(world: Copies) -> None:
    """The proposal is committed after something was written that 3 does not have."""
    third_returns(world)
    written_without_third(world)
    world.decide(world.letters[0])


def it_times_out_and_is_committed(world: Copies) -> None:
    third_returns(world)
    world.reply(world.letters[0], ErrorCode.REQUEST_TIMED_OUT)
    written_without_third(world)
    world.decide(world.letters[0])


def its_second_copy_is_refused_and_the_first_committed(world: Copies) -> None:
    third_returns(world)
    first = world.letters[0]
    world.reply(first, ErrorCode.REQUEST_TIMED_OUT)
    world.propose(1)
    world.cluster.fence(3)
    second = world.letters[1]
    world.decide(second)
    assert second.code is ErrorCode.INELIGIBLE_REPLICA
    world.reply(second)
    world.cluster.unfence(3)
    written_without_third(world)
    world.decide(first)


def it_lacks_what_the_last_leader_has_committed(world: Copies) -> None:
    """2 takes over, and knows of less that is committed than 1 did."""
    world.write(1, "a")
    go_on(world, 1, 2, 3)
    world.crash(3)
    world.cluster.fence(3)
    world.learn(1)
    world.write(1, "b")
    world.sync(1)
    world.fetch(2)
    # 2 holds b, and 1 has committed it; 2 has not heard of that.
    world.sync(2)
    world.ask(2)
    world.arrive(2)
    world.require_promises()
    world.restart(3)
    world.cluster.unfence(3)
    world.cluster.fence(1)
    for number in (2, 3):
        world.learn(number)
    world.ask(3)
    world.arrive(3)
    world.propose(2)
    for letter in world.letters:
        world.decide(letter)


def its_last_word_comes_after_its_disk_is_gone(world: Copies) -> None:
    world.write(1, "a")
    go_on(world, 1, 2, 3)
    world.ask(3)
    world.wipe(3)
    world.cluster.unfence(3)
    world.learn(1)
    world.arrive(3)
    world.propose(1)
    for letter in world.letters:
        world.decide(letter)


CHAINS = [
    (ExpandsLate, it_is_committed_late),
    (RevertsOnTimeOut, it_times_out_and_is_committed),
    (ForgetsDoubt, its_second_copy_is_refused_and_the_first_committed),
    (NoEpochStart, it_lacks_what_the_last_leader_has_committed),
    (OldLivesCount, its_last_word_comes_after_its_disk_is_gone),
]


@pytest.mark.parametrize(
    ("broken", "chain"), CHAINS, ids=[f"{broken.__name__}" for broken, _ in CHAINS]
)
def test_a_broken_rule_is_found_by_hand(
    broken: type[LeaderCore], chain: Callable[[Copies], None]
) -> None:
    world = Copies(3, leads=broken)
    chain(world)
    with pytest.raises(AssertionError, match="lacks"):
        world.require_promises()
    world = Copies(3)
    chain(world)
    world.require_promises()
    world.heal(30)
    world.require_agreement()
