"""The files of the repository, as the tidy tests see them: what git would keep, each file once.

Not here: any rule.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TOWERS: Final = ("chaos", "clients", "controller", "node", "proto", "replication")
# Made on this machine, and ignored by git.
_NOT_OURS: Final = frozenset({"__pycache__", "build", "dist", "target"})
_HIDDEN_OURS: Final = frozenset({".ci", ".gitignore", ".pre-commit-config.yaml"})


def files() -> list[Path]:
    return list(_walk(ROOT))


def _walk(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        is_hidden = path.name.startswith(".") and path.name not in _HIDDEN_OURS
        if is_hidden or path.name in _NOT_OURS or path.name.endswith(".egg-info"):
            continue
        # The links in ottla/ would show every file twice.
        if path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(path: Path) -> str | None:
    """Return a file's text, or None for a file of bytes."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def python_files(*folders: str) -> list[Path]:
    """Return all Python files, or those in some top-level folders."""
    found = [path for path in files() if path.suffix == ".py"]
    return [path for path in found if not folders or path.relative_to(ROOT).parts[0] in folders]


def parsed(path: Path) -> ast.Module:
    # Not remembered: millions of nodes would make every later collection of garbage dear.
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def statements(path: Path) -> Iterator[ast.stmt]:
    """Yield the statements of a file at every depth; most of a tree is the expressions in them."""
    waiting: list[ast.AST] = [parsed(path)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting.extend(getattr(node, name, ()))


def packages() -> list[Path]:
    """Return the folders with an `__init__.py` in the towers and in bench."""
    found = {path.parent for path in python_files(*TOWERS) if path.name == "__init__.py"}
    if (ROOT / "bench" / "__init__.py").exists():
        found.add(ROOT / "bench")
    return sorted(found)


def module_name(path: Path) -> str:
    return "ottla." + ".".join(path.relative_to(ROOT).with_suffix("").parts)


@functools.cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def contract(name: str) -> dict[str, Any]:
    """Return one contract of import-linter, by its name."""
    contracts: list[dict[str, Any]] = pyproject()["tool"]["importlinter"]["contracts"]
    return next(row for row in contracts if row["name"] == name)


@functools.cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE))


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of the table "Files in reading order" in a package's README."""

    name: str
    # The second column if the table has three: C core, S shell, T table. Empty if it has two.
    mark: str


_ROW: Final = re.compile(r"^\| *`([\w./-]+)` *\|(.*)\|\s*$", re.MULTILINE)


def file_rows(package: Path) -> list[FileRow]:
    readme = (package / "README.md").read_text(encoding="utf-8")
    rows = list[FileRow]()
    for name, rest in _ROW.findall(readme):
        mark, bar, _ = rest.partition("|")
        rows.append(FileRow(name, mark.strip() if bar else ""))
    return rows


def table_cells(text: str) -> list[list[str]]:
    """Return the cells of every row of every Markdown table, the rulers left out."""
    rows = list[list[str]]()
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|:\- ]+", line):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows
