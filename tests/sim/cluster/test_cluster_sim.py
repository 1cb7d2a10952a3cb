"""Seeds of the simulated cluster. `make sim SCENARIO=cluster RUNS=…` searches further."""

from __future__ import annotations

import pytest

from tests.sim.cluster.climate import ANY, FAMILIES, scenario_of
from tests.sim.cluster.run import play
from tests.sim.scenarios import SCENARIOS

# 2 × 50 seeds.
BLOCKS = 2
SEEDS_PER_BLOCK = 50


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_invariant_is_broken(block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        play(seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_seed_is_one_story(family: str) -> None:
    first, second = play(7, family), play(7, family)
    assert first.schedule.digest == second.schedule.digest
    assert first.schedule.story() == second.schedule.story()
    assert first.invariants.digests == second.invariants.digests
    assert play(8, family).schedule.digest != first.schedule.digest


def test_much_happens_in_a_few_seeds() -> None:
    worlds = [play(seed) for seed in range(20)]
    assert {world.climate.family for world in worlds} == set(FAMILIES)
    assert sum(world.invariants.acknowledged for world in worlds) > 300
    assert sum(len(world.invariants.leaders) for world in worlds) > 25
    assert sum(world.committed.count for world in worlds) > 100


def test_the_two_simulators_have_scenarios_of_different_names() -> None:
    assert not {scenario_of(family) for family in (ANY, *FAMILIES)} & set(SCENARIOS)
