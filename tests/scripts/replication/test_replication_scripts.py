"""Runs the stories of leaders and followers in this folder; `stage.py` has the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.replication.stage import Stage
from tests.scripts.telling import require_as_told

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_ends_as_it_is_told(path: Path) -> None:
    require_as_told(path, Stage())


def test_there_are_stories() -> None:
    assert len(STORIES) >= 7
