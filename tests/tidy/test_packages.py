"""Every package says what it is for, and can be imported under one name only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.tidy.tree import (
    ROOT,
    TOWERS,
    file_rows,
    packages,
    parsed,
    python_files,
    shown,
    statements,
)

HEADINGS: Final = (
    "What it is for",
    "What it may import",
    "Files in reading order",
    "Invariants",
)
# Folders that hold no importable package and still owe a newcomer the same page.
ALSO_WITH_README: Final = ("bench", "compose", "examples", "tests")

# What may be such an import, or a line of a text.
_BARE: Final = re.compile(rf"^\s*(?:from|import)\s+(?:{'|'.join(TOWERS)})\b", re.MULTILINE)


@pytest.mark.parametrize("package", packages(), ids=shown)
def test_package_has_a_readme_with_the_four_headings(package: Path) -> None:
    _require_readme(package)


@pytest.mark.parametrize("name", ALSO_WITH_README)
def test_folder_without_a_package_has_a_readme_too(name: str) -> None:
    if (ROOT / name).is_dir():
        _require_readme(ROOT / name)


def _require_readme(folder: Path) -> None:
    readme = folder / "README.md"
    assert readme.exists(), f"write {shown(readme)} with the headings {', '.join(HEADINGS)}"
    found = re.findall(r"^## (.+)$", readme.read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(found[:4]) == HEADINGS, f"{shown(readme)}: its headings must be {HEADINGS}"


@pytest.mark.parametrize("package", packages(), ids=shown)
def test_readme_names_every_module_and_no_other(package: Path) -> None:
    rows = {row.name for row in file_rows(package)}
    there = {path.name for path in package.glob("*.py") if path.name != "__init__.py"}
    named = {name for name in rows if name.endswith(".py") and "/" not in name}
    assert there <= named, f"add rows to {shown(package)}/README.md: {sorted(there - named)}"
    assert named <= there, (
        f"{shown(package)}/README.md has rows of no file: {sorted(named - there)}"
    )


@pytest.mark.parametrize("package", packages(), ids=shown)
def test_readme_names_every_package_inside(package: Path) -> None:
    text = (package / "README.md").read_text(encoding="utf-8")
    inside = [path.name for path in package.iterdir() if (path / "__init__.py").exists()]
    missing = [name for name in inside if f"`{name}/`" not in text]
    assert not missing, f"{shown(package)}/README.md must name {missing}, as `{missing[0]}/`"


@pytest.mark.parametrize("path", [p / "__init__.py" for p in packages()], ids=shown)
def test_init_holds_a_docstring_and_no_code(path: Path) -> None:
    body = parsed(path).body
    assert len(body) == 1, f"{shown(path)}: move the code into a module of its own"
    assert ast.get_docstring(parsed(path)), (
        f"{shown(path)}: say in one sentence what the package is"
    )


@pytest.mark.parametrize("name", TOWERS)
def test_top_level_package_has_its_link(name: str) -> None:
    link = ROOT / "ottla" / name
    told = f"run: ln -s ../{name} ottla/{name}"
    assert link.is_symlink(), told
    assert link.readlink() == Path("..") / name, told


def test_every_link_is_a_known_tower() -> None:
    links = {path.name for path in (ROOT / "ottla").iterdir() if path.is_symlink()}
    assert links == set(TOWERS), "name the new tower in tests/tidy/tree.py, or remove its link"


def _imported(path: Path) -> Iterator[str]:
    # A look at the text first: to parse a file takes a hundred times as long.
    if _BARE.search(path.read_text(encoding="utf-8")) is None:
        return
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_imports_go_through_ottla() -> None:
    bare = [
        f"{shown(path)}: {name}"
        for path in python_files()
        for name in _imported(path)
        if name.split(".")[0] in TOWERS
    ]
    assert not bare, f"put ottla. in front of these imports: {bare}"
