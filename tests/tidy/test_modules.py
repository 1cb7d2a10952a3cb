"""Small modules that say what they are."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Final

from tests.tidy.tree import TOWERS, parsed, python_files, shown, statements

FILE_LINES_MAX: Final = 500
FUNCTION_LINES_MAX: Final = 60
# Exceptions, each with its reason. A limit with hidden exceptions is no limit; a stale one fails.
LONG_FILES: Final[dict[str, str]] = {}
LONG_FUNCTIONS: Final[dict[str, str]] = {}
# Names that say nothing about what is inside.
EMPTY_NAMES: Final = frozenset({"base", "common", "helper", "helpers", "misc", "util", "utils"})


def _functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return [node for node in statements(path) if isinstance(node, kinds)]


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def _long_files() -> dict[str, int]:
    lines = {
        shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()
    }
    return {name: count for name, count in lines.items() if count > FILE_LINES_MAX}


@functools.cache
def _long_functions() -> dict[str, int]:
    return {
        f"{shown(path)}:{function.name}": _length(function)
        for path in python_files()
        # A test's table of cases may be long: it is read row by row.
        if not shown(path).startswith("tests/")
        for function in _functions(path)
        if _length(function) > FUNCTION_LINES_MAX
    }


def test_every_module_says_what_it_is() -> None:
    modules = python_files(*TOWERS, "ottla", "bench", "docs")
    mute = [shown(path) for path in modules if not ast.get_docstring(parsed(path))]
    told = "begin with a docstring: what it is, what it is not, its invariants"
    assert not mute, f"{told}: {mute}"


def test_files_are_short() -> None:
    long = {name: count for name, count in _long_files().items() if name not in LONG_FILES}
    assert not long, f"split these files, at most {FILE_LINES_MAX} lines each: {long}"


def test_functions_are_short() -> None:
    long = {name: count for name, count in _long_functions().items() if name not in LONG_FUNCTIONS}
    assert not long, f"split these functions, at most {FUNCTION_LINES_MAX} lines each: {long}"


def test_no_exception_is_stale() -> None:
    stale = (set(LONG_FILES) - set(_long_files())) | (set(LONG_FUNCTIONS) - set(_long_functions()))
    assert not stale, f"these are short now, or gone; take them off the list: {sorted(stale)}"


def test_every_module_is_named_after_a_thing() -> None:
    wrong = [shown(path) for path in python_files() if path.stem in EMPTY_NAMES]
    assert not wrong, f"name these after what lives there: {wrong}"
