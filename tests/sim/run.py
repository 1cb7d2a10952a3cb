"""`python -m tests.sim.run --seed 8412 --scenario truncates`, or `--runs 1000` to search.

Three simulators share this line: the log on its disk (`scenarios.py`), the cluster
(`cluster/climate.py`) and replication (`replication/climate.py`). The scenarios `cluster` and
`replication` draw one of their families for each seed; `cluster-wipes`, `replication-cuts` and the
like play one family only. Every core plays; a seed is the same story whoever plays it.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from ottla.replication.storage import failpoints
from tests.sim.cluster.climate import ANY, FAMILIES, scenario_of
from tests.sim.cluster.run import play as play_cluster
from tests.sim.replication import climate as replication
from tests.sim.replication.run import play as play_replication
from tests.sim.scenarios import NOISY, SCENARIOS
from tests.sim.world import World

STEPS = 60
FAILURES_MAX = 3
TOLD_EVERY = 500
# Seeds that are handed to a process at once.
CHUNK = 10
CLUSTER = {scenario_of(family): family for family in (ANY, *FAMILIES)}
REPLICATION = {
    replication.scenario_of(family): family for family in (replication.ANY, *replication.FAMILIES)
}


def play(seed: int, scenario: str, steps: int = STEPS) -> World:
    """Run one seed of the log; raises what broke, with the story and the line to paste."""
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


def play_any(seed: int, scenario: str) -> None:
    """Run one seed of the log, of the cluster or of replication."""
    if scenario in CLUSTER:
        play_cluster(seed, CLUSTER[scenario])
    elif scenario in REPLICATION:
        play_replication(seed, REPLICATION[scenario])
    else:
        play(seed, scenario)


def played(scenario: str, seed: int) -> str | None:
    """Run one seed of a scenario; return what broke, with its story, or None."""
    try:
        play_any(seed, scenario)
    except (Exception, failpoints.CrashError):  # noqa: BLE001 - the search goes on
        return traceback.format_exc()
    return None


def search(scenarios: Sequence[str], seeds: Sequence[int], jobs: int) -> tuple[int, int]:
    """Play all seeds of all scenarios until a few broke; return how many ran, and how many broke.

    They are told in their order, whoever plays them. A process that dies ends the search.
    """
    runs, failed = 0, 0
    pairs = [(scenario, seed) for scenario in scenarios for seed in seeds]
    workers = ProcessPoolExecutor(jobs, mp_context=get_context("fork"))
    try:
        # One seed is played here, where a debugger sees it.
        outcomes = (
            map(played, *zip(*pairs, strict=True))
            if len(pairs) == 1
            else workers.map(played, *zip(*pairs, strict=True), chunksize=CHUNK)
        )
        for (scenario, seed), broken in zip(pairs, outcomes, strict=True):
            runs += 1
            if broken is not None:
                failed += 1
                print(broken, file=sys.stderr, flush=True)
                if failed >= FAILURES_MAX:
                    break
            if runs % TOLD_EVERY == 0:
                print(f"{runs} runs, the last one seed {seed} of {scenario}", flush=True)
    finally:
        workers.shutdown(cancel_futures=True)
    return runs, failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="make sim")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--scenario", choices=sorted((*SCENARIOS, *CLUSTER, *REPLICATION)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(given.first, given.first + given.runs)
    if given.runs < 1 or given.jobs < 1:
        parser.error("there is at least one run, and one job")
    scenarios = [given.scenario] if given.scenario else [*NOISY, ANY, replication.ANY]
    runs, failed = search(scenarios, seeds, given.jobs)
    print(f"{runs} runs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
