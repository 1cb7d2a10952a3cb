"""A real process is killed at every named place in the code, and nothing acknowledged is lost."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from ottla.replication.storage.failpoints import FAILPOINTS
from tests.integration.test_kill_and_cut import Story

pytestmark = pytest.mark.integration

# Reached only by a start that finds something to recover.
RECOVERY = [point.name for point in FAILPOINTS if point.name.startswith("log.recovery.")]
# The others need a cluster.
OF_A_LOG = [point.name for point in FAILPOINTS if point.name.startswith(("log.", "state."))]
PLACES = [name for name in OF_A_LOG if name not in RECOVERY]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """What a process wrote before; each test goes on with a copy."""
    story = Story(tmp_path_factory.mktemp("begun") / "data")
    story.run("--seed", "3", "--steps", "30")
    return story


@pytest.mark.parametrize("place", PLACES)
def test_killed_at_a_named_place_nothing_is_lost(place: str, begun: Story, tmp_path: Path) -> None:
    story = begun.copy(tmp_path / "data")
    kill = f"{place}=kill@2"
    story.run("--seed", "4", "--steps", "400", code=-signal.SIGKILL, OTTLA_FAILPOINTS=kill)
    story.verify()
    story.open_twice()
    story.run("--seed", "5", "--steps", "20")
    story.verify()


@pytest.mark.parametrize("place", RECOVERY)
def test_killed_while_recovering_nothing_is_lost(place: str, tmp_path: Path) -> None:
    """Cuts the power until a start reaches the place: not every cut leaves something torn."""
    for moment in range(60, 90):
        story = Story(tmp_path / f"data{moment}")
        faults = f"power_cut={moment};style=torn;seed={moment}"
        story.run("--seed", "1", "--steps", "25", code=137, OTTLA_FAULTS=faults)
        with story.start("--steps", "0", OTTLA_FAILPOINTS=f"{place}=kill@1") as process:
            story.take(list(process.stdout or ()))
        if process.returncode == -signal.SIGKILL:
            story.verify()
            story.open_twice()
            return
    pytest.fail(f"no start came by {place}")
