"""Every deliberate break is found within 500 seeds (`breaks.py`)."""

from __future__ import annotations

import pytest

from tests.sim.replication.breaks import BREAKS, Break
from tests.sim.replication.run import play
from tests.sim.replication.truth import BrokenRuleError

SEEDS = 500
# The first of them, those of chaos.md B6, are looked for in every run, the others in long ones.
ALWAYS = 8


def _shown(broken: Break) -> str:
    return broken.undo.__name__


@pytest.mark.parametrize(
    "broken",
    [
        *(pytest.param(one, id=_shown(one)) for one in BREAKS[:ALWAYS]),
        *(pytest.param(one, id=_shown(one), marks=pytest.mark.long) for one in BREAKS[ALWAYS:]),
    ],
)
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
