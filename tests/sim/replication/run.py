"""One seed of replication, from beginning to end."""

from __future__ import annotations

import gc
from itertools import count

from ottla.replication.storage import failpoints
from tests.sim.replication.climate import ANY, scenario_of
from tests.sim.replication.world import World

# A world is a knot of references: so many are let go of at once.
WORLDS_KEPT = 16
_played = count(1)


def play(seed: int, family: str = ANY) -> World:
    """Run one seed; raises the name of what broke, with the story and the line to paste."""
    failpoints.disarm_all()
    # Looking for garbage all the time takes long; now and then, little.
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
            if next(_played) % WORLDS_KEPT == 0:
                gc.collect()
    return world
