"""Every deliberate break is found within 500 seeds (`breaks.py`)."""

from __future__ import annotations

import pytest

from tests.sim.cluster.breaks import BREAKS, Break
from tests.sim.cluster.invariants import BrokenInvariantError
from tests.sim.cluster.run import play

SEEDS = 500
# The first of them are looked for in every run, the others in the long ones.
ALWAYS = 5


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
        except BrokenInvariantError as error:
            # Another may be broken first, by a member that notices what it has done.
            if error.name in broken.invariants:
                print(f"{broken.undo.__name__}: {error.name}, seed {seed} of {broken.family}")
                return
    pytest.fail(f"{broken.undo.__name__} was not found in {SEEDS} seeds of {broken.family}")
