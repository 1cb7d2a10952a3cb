"""In which order the tests go to the workers of a parallel run, and what stays together.

Whoever moves house loads the piano first. The order of files is by lot, so that no test leans on
another; but a file that takes a minute must not be drawn last, when all other workers are done.

H1  the tests of one file stay with one worker, and so do those of a folder that shares its nodes
H2  folders whose tests start processes or play seeds go first, then properties, then the rest

Not here: what a worker is (`pytest-xdist`), and how many there are (`run.py`).
"""

from __future__ import annotations

from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

# One cluster or node for all tests of the folder: a second worker would start another.
SHARING: Final = ("tests/integration/clients_own", "tests/hostile")
# The longest first.
_FIRST: Final = ("tests/integration/clients_own", "tests/sim", "tests/integration", "tests/hostile")
_THEN: Final = ("tests/hazards", "tests/contract", "tests/unit/controller/quorum")


def scope_of(nodeid: str) -> str:
    """Return what is handed to one worker as a whole: a file, or a folder (H1)."""
    path = nodeid.partition("::")[0]
    return next((folder for folder in SHARING if path.startswith(f"{folder}/")), path)


def turn_of(nodeid: str) -> int:
    """Return when it is its turn: what has a small number goes first (H2)."""
    path = nodeid.partition("::")[0]
    for turn, folder in enumerate((*_FIRST, *_THEN)):
        if path.startswith(f"{folder}/"):
            return turn
    return len(_FIRST) + len(_THEN) + (0 if path.endswith("_properties.py") else 1)


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out files and folders in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        # Its own order is by the number of tests in a file, and the longest files have few.
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)
