"""Every deliberate break is found within 500 seeds (`breaks.py`)."""

from __future__ import annotations

import pytest

from tests.sim.replication.breaks import BREAKS, Break
from tests.sim.replication.run import play
from tests.sim.replication.truth import BrokenRuleError

SEEDS = 500


@pytest.mark.parametrize("broken", BREAKS, ids=lambda one: one.undo.__name__)
def test_a_broken_rule_is_found(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken.undo(monkeypatch)
    for seed in range(SEEDS):
        try:
            play(seed, broken.family)
        except BrokenRuleError as error:
            # Another may be broken first, by somebody who notices what it has done.
            if error.name in broken.rules:
                print(f"{broken.undo.__name__}: {error.name}, seed {seed} of {broken.family}")
                return
    pytest.fail(f"{broken.undo.__name__} was not found in {SEEDS} seeds of {broken.family}")
