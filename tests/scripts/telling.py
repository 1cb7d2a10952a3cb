"""How a story is told: commands, `----`, what they answer. Somebody else knows the commands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

NOTHING = "(nothing)"


class Stage(Protocol):
    """Answers one command after the other."""

    def answer(self, line: str) -> str | None:
        """Return what the command has to tell, or None."""


def told_again(story: str, stage: Stage) -> str:
    """Return the story with the answers as they are now; what is no command stays as it is."""
    blocks = []
    for block in story.strip().split("\n\n"):
        head, marker, _ = block.partition("\n----")
        if marker:
            commands = [line for line in head.split("\n") if not line.startswith("#")]
            answers = [answer for line in commands if (answer := stage.answer(line)) is not None]
            blocks.append(f"{head}\n----\n" + ("\n".join(answers) or NOTHING))
        else:
            blocks.append(block)
    return "\n\n".join(blocks) + "\n"


def require_as_told(path: Path, stage: Stage) -> None:
    """Fail if a story ends otherwise. `REWRITE=1` writes the answers, to be read as a diff."""
    story = path.read_text(encoding="utf-8")
    actual = told_again(story, stage)
    if os.environ.get("REWRITE"):
        path.write_text(actual, encoding="utf-8")
        story = actual
    assert actual == story
