"""The power goes at every moment of the disk in turn: before and after each sync and commit.

One story per seed, told again and again; each time the machine dies one moment later, and each
time in every style. Afterwards the story goes on, on what was left.
"""

from __future__ import annotations

from random import Random

import pytest

from ottla.replication.log.manager import LogManager
from ottla.replication.storage import failpoints
from ottla.replication.storage.faults import FaultyFiles, FaultyStore, Power, PowerCutError
from ottla.replication.storage.memory import MemoryFiles, MemoryStateStore
from ottla.replication.storage.unsynced import Style
from tests.builders import EPOCH, NOW_MS, append, small_settings
from tests.sim.scenarios import QUIET, SCENARIOS
from tests.sim.world import PARTITION, World

STEPS = 40
# Every second moment of one story in `make test`; the rest of it and the others in `make crash`.
SEEDS_AND_PARTS = [
    (0, slice(0, None, 2)),
    *(
        pytest.param(seed, part, marks=pytest.mark.long)
        for seed, part in ((0, slice(1, None, 2)), (1, slice(None)), (2, slice(None)))
    ),
]


class Machine:
    """A disk and a state store that outlive processes."""

    def __init__(self) -> None:
        self.power = Power()
        self.records: dict[bytes, bytes] = {}
        disk = MemoryFiles()
        disk.make_dir("/data")
        self.files = FaultyFiles(disk, self.power)

    def boot(self) -> LogManager:
        store = FaultyStore(MemoryStateStore(self.records), self.power)
        manager = LogManager(self.files, store, "/data", lambda topic: small_settings())
        manager.open(now_ms=NOW_MS)
        return manager


def moments_of(seed: int, scenario: str) -> range:
    world = World(seed, SCENARIOS[scenario])
    world.run(STEPS)
    return range(world.first_moment, world.power.moments + 1)


@pytest.mark.parametrize("style", [Style.DROP, Style.TORN, Style.REORDER, Style.KEEP])
@pytest.mark.parametrize(("seed", "part"), SEEDS_AND_PARTS, ids=str)
@pytest.mark.parametrize("scenario", QUIET)
def test_a_power_cut_at_any_moment_breaks_no_promise(
    scenario: str, seed: int, part: slice, style: Style
) -> None:
    failpoints.disarm_all()
    moments = moments_of(seed, scenario)
    assert len(moments) >= STEPS, "the story is too short to show anything"
    for moment in moments[part]:
        world = World(seed, SCENARIOS[scenario], cut_at=moment, style=style)
        try:
            world.run(STEPS)
        except Exception as error:
            told = "\n".join(world.story[-20:])
            error.add_note(f"{told}\nmoment {moment} of {moments[-1]}, seed {seed}, {style}")
            raise
        assert world.power.cuts == 1, f"moment {moment} was never reached"


@pytest.mark.parametrize("style", [Style.DROP, Style.TORN, Style.REORDER, Style.KEEP])
def test_a_partition_whose_making_was_cut_short_is_there_or_can_be_made(style: Style) -> None:
    moment = 0
    while True:
        moment += 1
        machine = Machine()
        machine.power.cut_at = moment
        try:
            machine.boot().create(PARTITION)
        except PowerCutError:
            machine.power.cut(Random(moment), style)
        else:
            break
        manager = machine.boot()
        log = manager.logs.get(PARTITION) or manager.create(PARTITION)
        assert (log.start_offset, log.end_offset, log.offline) == (0, 0, None)
        log.assign_epoch(EPOCH)
        append(log, b"x")
        log.sync()
        machine.power.cut(Random(moment), Style.DROP)
        assert machine.boot().logs[PARTITION].end_offset == 1
    assert moment > 6, "nothing was cut"
