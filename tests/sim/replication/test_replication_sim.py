"""Seeds of simulated replication. `make sim SCENARIO=replication RUNS=…` searches further."""

from __future__ import annotations

import pytest

from tests.sim.cluster.climate import scenario_of as cluster_scenario_of
from tests.sim.replication.climate import ANY, FAMILIES, scenario_of
from tests.sim.replication.run import play
from tests.sim.scenarios import SCENARIOS

# 3 × 50 seeds; CI plays 1,000.
BLOCKS = 3
SEEDS_PER_BLOCK = 50


@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_rule_is_broken(block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        play(seed)


# 208468: a leader whose disk had failed was told of a smaller in-sync set, and acknowledged.
# 312437, 317410: a leader whose settings were pagecache already, and whose view was fsync still,
#   acknowledged what was in its page cache (`tests/unit/replication/test_durability_changes.py`).
# 321536: a mistake of the observer. A record was deleted on purpose, then there was an unclean
#   leader, and it rightly knew a late retry of that record.
@pytest.mark.parametrize("seed", [208468, 312437, 317410, 321536])
def test_a_seed_that_once_broke_a_rule_breaks_none(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_seed_is_one_story(family: str) -> None:
    first, second = play(7, family), play(7, family)
    assert first.schedule.digest == second.schedule.digest
    assert first.schedule.story() == second.schedule.story()
    assert [known.data for known in first.truth.committed] == [
        known.data for known in second.truth.committed
    ]
    assert play(8, family).schedule.digest != first.schedule.digest


def test_much_happens_in_a_few_seeds() -> None:
    worlds = [play(seed) for seed in range(40)]
    assert {world.climate.family for world in worlds} == set(FAMILIES)
    assert sum(sum(map(len, world.truth.acknowledged)) for world in worlds) > 300
    assert sum(known.end for world in worlds for known in world.truth.committed) > 600
    assert sum(world.truth.cuts for world in worlds) > 10
    assert sum(world.faults.count for world in worlds) > 400


def test_the_simulators_have_scenarios_of_different_names() -> None:
    ours = {scenario_of(family) for family in (ANY, *FAMILIES)}
    assert not ours & {*SCENARIOS, *map(cluster_scenario_of, FAMILIES)}
