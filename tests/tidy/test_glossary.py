"""One word for one thing: what GLOSSARY.md says not to say is not said in names either."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.tidy.tree import ROOT, TOWERS, parsed, python_files, shown, table_cells

# Only words that can mean nothing else; "host", "message" and "entry" have honest uses.
BANNED: Final = {
    "leo": "end offset",
    "master": "controller",
    "slave": "follower",
    "shard": "partition",
    "hw": "high watermark",
}
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def _names(path: Path) -> Iterator[str]:
    """Yield the names that a file defines; names it merely uses may be somebody else's."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def test_names_use_the_words_of_the_glossary() -> None:
    wrong = {
        f"{shown(path)}: {name}": BANNED[part.lower()]
        for path in python_files(*TOWERS, "bench")
        for name in _names(path)
        for part in _PARTS.findall(name)
        if part.lower() in BANNED
    }
    assert not wrong, f"GLOSSARY.md has other words for these: {wrong}"


def test_glossary_says_what_this_test_bans() -> None:
    rows = table_cells((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    unsaid = " ".join(cells[2] for cells in rows if len(cells) == 3).lower()
    missing = [word for word in BANNED if not re.search(rf"\b{word}\b", unsaid)]
    assert not missing, f"GLOSSARY.md: put {missing} into the column 'do not say'"


def test_glossary_is_sorted_into_words_that_are_explained_once() -> None:
    rows = table_cells((ROOT / "GLOSSARY.md").read_text(encoding="utf-8"))
    words = [cells[0].lower() for cells in rows if len(cells) == 3 and cells[0] != "word"]
    twice = sorted({word for word in words if words.count(word) > 1})
    assert not twice, f"GLOSSARY.md explains these twice: {twice}"
