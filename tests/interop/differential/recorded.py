"""The answers of Kafka 4.3.1, written down: `recorded.json`.

Versions with the same answer stand together, one line each, so that a change is a short diff.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop.differential.run import Answers

RECORDED: Final = Path(__file__).with_name("recorded.json")


def load_answers(path: Path = RECORDED) -> Answers:
    grouped: dict[str, dict[str, list[Any]]] = json.loads(path.read_text())
    return {
        case: {
            version: answer
            for versions, answer in answers.items()
            for version in _parse_versions(versions)
        }
        for case, answers in grouped.items()
    }


def save_answers(answers: Answers, path: Path = RECORDED) -> None:
    path.write_text(render(answers))


def render(answers: Answers) -> str:
    """Return the file's text: one line for each case and each group of versions."""
    blocks = []
    for case in sorted(answers):
        lines = [
            f"  {json.dumps(_name_versions(versions))}: {text}"
            for text, versions in _group(answers[case]).items()
        ]
        blocks.append(f" {json.dumps(case)}: {{\n" + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _group(answers: Mapping[int, list[Any]]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for version in sorted(answers):
        text = json.dumps(answers[version], sort_keys=True, ensure_ascii=True)
        groups.setdefault(text, []).append(version)
    return groups


def _name_versions(versions: list[int]) -> str:
    """Return "3-5,9" for 3, 4, 5 and 9. A negative version stands alone."""
    runs: list[list[int]] = []
    for version in versions:
        if runs and version == runs[-1][-1] + 1 and version > 0:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _parse_versions(text: str) -> list[int]:
    versions: list[int] = []
    for run in text.split(","):
        first, dash, last = run.rpartition("-")
        if dash and first:
            versions.extend(range(int(first), int(last) + 1))
        else:
            versions.append(int(run))
    return versions
