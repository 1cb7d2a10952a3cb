"""`python -m tests.sim.run --seed 8412 --scenario truncates`, or `--runs 1000` to search."""

from __future__ import annotations

import argparse
import sys
import traceback

from ottla.replication.storage import failpoints
from tests.sim.scenarios import NOISY, SCENARIOS
from tests.sim.world import World

STEPS = 60


def play(seed: int, scenario: str, steps: int = STEPS) -> World:
    """Run one seed; raises what broke, with the story and the line to paste."""
    failpoints.disarm_all()
    world = World(seed, SCENARIOS[scenario])
    try:
        world.run(steps)
    except BaseException as error:
        story = "\n".join(world.story[-25:])
        error.add_note(f"{story}\nmake sim SEED={seed} SCENARIO={scenario}")
        raise
    finally:
        failpoints.disarm_all()
    return world


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.runs)
    scenarios = [given.scenario] if given.scenario else NOISY
    failed = 0
    for scenario in scenarios:
        for seed in seeds:
            try:
                play(seed, scenario)
            except Exception:  # noqa: BLE001 - whatever broke, the search goes on
                failed += 1
                traceback.print_exc()
                if failed >= 3:
                    return 1
    print(f"{len(list(seeds)) * len(scenarios)} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
