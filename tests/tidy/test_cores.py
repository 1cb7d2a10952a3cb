"""A file of proto, replication or controller is a core by contract or a shell by its README."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.tidy.tree import contract, file_rows, module_name, python_files, shown

CONTRACT: Final = "Cores do no I/O"
SHELL_MARKS: Final = frozenset({"S", "shell"})


def _modules() -> list[Path]:
    found = python_files("controller", "proto", "replication")
    return [path for path in found if path.name != "__init__.py" and "gen" not in path.parts]


def _is_shell(path: Path) -> bool:
    if not (path.parent / "README.md").exists():
        return False
    marks = {row.name: row.mark for row in file_rows(path.parent)}
    return marks.get(path.name) in SHELL_MARKS


def _is_core(path: Path) -> bool:
    return module_name(path) in contract(CONTRACT)["source_modules"]


def test_every_file_is_a_core_or_a_shell() -> None:
    neither = [shown(path) for path in _modules() if not _is_core(path) and not _is_shell(path)]
    assert not neither, (
        f"add these to the contract '{CONTRACT}' in pyproject.toml, or, if they do I/O, give them "
        f"the mark S in the second column of their package's README: {neither}"
    )


def test_no_file_is_both() -> None:
    both = [shown(path) for path in _modules() if _is_core(path) and _is_shell(path)]
    assert not both, f"a core does no I/O; take these off one of the two lists: {both}"


def test_contract_names_only_modules_that_exist() -> None:
    there = {module_name(path) for path in python_files()}
    gone = [name for name in contract(CONTRACT)["source_modules"] if name not in there]
    assert not gone, f"take these off the contract '{CONTRACT}': {gone}"
