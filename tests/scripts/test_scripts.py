"""Runs the stories in this folder: commands, `----`, what they answer.

`REWRITE=1` writes the answers as they are now, to be read as a diff. `stage.py` has the commands.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.scripts.stage import Stage

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
NOTHING = "(nothing)"


def told_again(story: str) -> str:
    """Return the story with the answers as they are now; what is no command stays as it is."""
    stage, blocks = Stage(), []
    for block in story.strip().split("\n\n"):
        head, marker, _ = block.partition("\n----")
        if marker:
            commands = [line for line in head.split("\n") if not line.startswith("#")]
            answers = [answer for line in commands if (answer := stage.answer(line)) is not None]
            blocks.append(f"{head}\n----\n" + ("\n".join(answers) or NOTHING))
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_story_ends_as_it_is_told(path: Path) -> None:
    story = path.read_text(encoding="utf-8")
    actual = told_again(story)
    if os.environ.get("REWRITE"):
        path.write_text(actual, encoding="utf-8")
        story = actual
    assert actual == story


def test_there_are_stories() -> None:
    assert len(STORIES) >= 6
