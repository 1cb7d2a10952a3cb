"""One seed of replication, from beginning to end."""

from __future__ import annotations

import gc

from ottla.replication.storage import failpoints
from tests.sim.replication.climate import ANY, scenario_of
from tests.sim.replication.world import World


def play(seed: int, family: str = ANY) -> World:
    """Run one seed; raises the name of what broke, with the story and the line to paste."""
    failpoints.disarm_all()
    # Ours is little garbage, and looking for it takes long.
    was_collecting = gc.isenabled()
    gc.disable()
    world = World(seed, family)
    try:
        world.run()
    except BaseException as error:
        line = f"make sim SEED={seed} SCENARIO={scenario_of(family)}"
        error.add_note(f"{world.climate}\n{world.schedule.story()}\n{line}")
        raise
    finally:
        if was_collecting:
            gc.enable()
    return world
