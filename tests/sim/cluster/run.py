"""One seed of the cluster, from beginning to end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ottla.controller.quorum import seam, snapshots
from tests.sim.cluster.climate import ANY, Climate, scenario_of
from tests.sim.cluster.world import World

SMALL = {
    (seam, "_BATCH_BYTES"): "batch_bytes",
    (snapshots, "SNAPSHOT_PART_BYTES_MAX"): "part_bytes",
}


@contextmanager
def _sizes(climate: Climate) -> Iterator[None]:
    """Make batches and parts small, or a storm of a few seconds would never see two of them."""
    before = {place: getattr(*place) for place in SMALL}
    try:
        for place, name in SMALL.items():
            setattr(*place, getattr(climate, name))
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


# One copy of the library for each member: of two lives of it, only one is ever running.
_COPIES: dict[int, ModuleType] = {}
_new_copy = seam._private_copy


@contextmanager
def _kept_copies(world: World) -> Iterator[None]:
    """Read the library once for each member and not at every start of it, which takes long."""

    def kept() -> ModuleType:
        if world.starting not in _COPIES:
            _COPIES[world.starting] = _new_copy()
        return _COPIES[world.starting]

    seam._private_copy = kept
    # Ours is little garbage, and looking for it takes long.
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        seam._private_copy = _new_copy
        if was_collecting:
            gc.enable()


def play(seed: int, family: str = ANY) -> World:
    """Run one seed; raises the name of what broke, with the story and the line to paste."""
    world = World(seed, family)
    try:
        with _sizes(world.climate), _kept_copies(world):
            world.run()
    except BaseException as error:
        line = f"make sim SEED={seed} SCENARIO={scenario_of(family)}"
        error.add_note(f"{world.climate}\n{world.schedule.story()}\n{line}")
        raise
    return world
