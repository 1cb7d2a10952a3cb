"""Seeds of the simulated disk, every scenario. `make sim RUNS=…` searches further."""

from __future__ import annotations

import pytest

from tests.sim.run import play
from tests.sim.scenarios import NOISY

# 2 × 8 seeds a scenario; CI plays 1,000.
BLOCKS = 2
SEEDS_PER_BLOCK = 8


@pytest.mark.parametrize("block", range(BLOCKS))
@pytest.mark.parametrize("scenario", NOISY)
def test_no_promise_is_broken(scenario: str, block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        play(seed, scenario)
