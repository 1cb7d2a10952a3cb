"""Leaders, followers and the real metadata together: whatever happens, what was committed is kept.

After every step (`Copies.require_promises`):
  - whatever was below a high watermark anywhere, at any time, is held by every member of the
    in-sync set that the controller has committed, and by everybody who is eligible
    (rules 30, 31, 60)
  - high watermarks never fall, and no follower ever has to cut below its own (rules 44, 69)
  - acks=all was never acknowledged with fewer copies on disks than the minimum (rules 25 to 29)
And when everybody is back, all copies become equal, with all that was acknowledged.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scripts.replication.copies import Copies
from tests.scripts.replication.playing import WEIGHTS, Player, Step, thrown

# Frequent words stand more than once, so that they are drawn more often.
WORDS = [word for word, weight in WEIGHTS.items() for _ in range(max(1, weight // 3))]
STEPS = st.lists(
    st.tuples(st.sampled_from(WORDS), st.integers(0, 11), st.integers(0, 11)), max_size=80
)


def lived_through(world: Copies, steps: list[Step]) -> Copies:
    Player(world).play(steps)
    world.heal(30)
    world.require_agreement()
    return world


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.integers(1, 3), st.sampled_from(["fsync", "pagecache"]))
def test_rules_29_to_45_what_was_committed_is_kept(
    steps: list[Step], min_isr: int, durability: str
) -> None:
    lived_through(Copies(3, min_isr=min_isr, durability=durability), steps)


@pytest.mark.parametrize("seed", range(60))
def test_rules_29_to_45_what_was_committed_is_kept_in_long_lives(seed: int) -> None:
    size = 4 if seed % 3 == 0 else 3
    durability = "pagecache" if seed % 4 == 0 else "fsync"
    world = Copies(size, min_isr=1 + seed % 3, durability=durability)
    lived_through(world, thrown(seed, 200))


def test_the_lives_are_eventful() -> None:
    """Else the tests above would prove nothing."""
    worlds = [lived_through(Copies(3), thrown(seed, 200)) for seed in range(30)]
    assert sum(len(world.acknowledged) for world in worlds) > 50
    assert max(world.partition.leader_epoch for world in worlds) >= 4
    assert sum("cuts" in told for world in worlds for told in world.told) > 5
