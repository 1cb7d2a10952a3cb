"""Which things happen how often, by name: `make sim SCENARIO=…`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scenario:
    """How often what happens; a weight each, for the `op_…` methods of the world."""

    name: str
    weights: dict[str, int]
    compact: bool = False
    delete: bool = True


def _scenario(name: str, *, compact: bool = False, **weights: int) -> Scenario:
    return Scenario(name, weights, compact)


TABLE = (
    _scenario("appends", append=60, sync=10, checkpoint=5, crash=4, cut=8),
    _scenario(
        "truncates", append=40, sync=8, checkpoint=5, truncate=10, epoch=5, cut=8, crash=3, reset=1
    ),
    _scenario("retains", append=50, sync=8, checkpoint=6, delete=6, retain=6, cut=6, crash=3),
    _scenario(
        "compacts", compact=True,
        append=60, sync=8, checkpoint=12, clean=14, cut=6, crash=4, retain=2,
    ),
    _scenario(
        "errors", append=50, sync=12, checkpoint=8, truncate=4, error=8, cut=3, retain=2, epoch=2
    ),
    _scenario(
        "everything", compact=True, append=50, follow=8, sync=8, checkpoint=8, truncate=5, epoch=4,
        delete=3, retain=3, clean=8, reset=1, cut=6, crash=4, error=3, convert=2,
    ),
    _scenario(
        "jobs", append=40, overlap=20, sync=3, roll=4, error=8, cut=6, crash=4, truncate=2,
    ),
    _scenario(
        "pagecache", append=50, ahead=8, checkpoint=4, delete=5, retain=5, cut=8, crash=3,
        truncate=2,
    ),
    _scenario(
        "policies", compact=True, append=40, follow=12, policy=6, sync=8, checkpoint=3, clean=5,
        cut=6, crash=5,
    ),
    _scenario(
        "converts", compact=True, append=50, convert=6, follow=6, sync=6, checkpoint=10, clean=10,
        truncate=4, roll=3, delete=2, retain=2, cut=5, crash=5,
    ),
    # Nothing goes wrong by itself: for tests that cut the power at each moment in turn.
    _scenario(
        "quiet", append=30, follow=2, sync=6, checkpoint=6, truncate=4, epoch=3, delete=2, retain=2,
        reset=1,
    ),
    _scenario(
        "quiet-cleaning", compact=True,
        append=30, sync=4, checkpoint=6, clean=6, truncate=2, retain=2,
    ),
)  # fmt: skip
SCENARIOS = {scenario.name: scenario for scenario in TABLE}
QUIET = ("quiet", "quiet-cleaning")
NOISY = tuple(name for name in SCENARIOS if name not in QUIET)
