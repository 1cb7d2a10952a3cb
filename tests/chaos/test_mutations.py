"""Every rule that is undone on purpose is found, by the scenario that is there for it.

    pytest -m long tests/chaos/test_mutations.py

A harness that stays green on a node that breaks its promises is worth nothing; and one that goes
red because the cluster stood still has not found the rule. So each names the rows that may find it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.chaos.backends.choose import open_backend
from ottla.chaos.checkers.judge import judge, outcome
from ottla.chaos.clock import now_s
from ottla.chaos.conductor import run
from ottla.chaos.evidence import Outcome, Ruling
from ottla.chaos.run_folder import RunFolder
from ottla.chaos.scenarios import load
from tests.chaos.mutations import MUTATIONS, Mutation

pytestmark = [pytest.mark.integration, pytest.mark.long]
# What is random may not show the first time.
SEEDS = (1, 2, 3)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_a_broken_rule_is_found(mutation: Mutation, tmp_path: Path) -> None:
    told = list[str]()
    for seed in SEEDS:
        scenario = load()[mutation.scenario]
        folder = RunFolder(tmp_path / str(seed))
        backend = open_backend(
            "local",
            folder.path / "cluster",
            nodes=scenario.nodes,
            controllers=scenario.controllers,
            options=scenario.options,
            seed=seed,
            program=("-m", "tests.chaos.broken_node", mutation.name),
        )
        began_s = now_s()
        run(scenario, backend, folder, seed, lambda what, facts: None)
        took_s = now_s() - began_s
        evidence = folder.read()
        verdicts = judge(evidence)
        broken = [one for one in verdicts if one.ruling is Ruling.BROKEN]
        told.append(f"seed {seed}: {[(one.row, one.sentence[:200]) for one in broken]}")
        told += evidence.harness_failures
        rows = mutation.found_by([one.row for one in broken])
        if rows and outcome(evidence, verdicts) is Outcome.FAILED:
            where = f"{scenario.id}, seed {seed}, {took_s:.0f} s"
            print(f"{mutation.name}: found by rows {rows} in {where}: {told[-1]}")
            return
    pytest.fail(f"no row of {sorted(mutation.rows)} noticed: {told}")
