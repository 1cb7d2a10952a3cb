"""What must not be in any file that is kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tests.tidy.tree import files, shown, text_of

BLOB_BYTES_MAX: Final = 1 << 20
_FIX: Final = re.compile(r"\bFIXME\b")
_TO_DO: Final = re.compile(r"\bTODO\b(?!\(#\d+\): )")
_MERGE: Final = re.compile(r"^(<{7}|>{7}) ", re.MULTILINE)
_MACHINE: Final = re.compile(r"(?<![\w.$}])/(?:work|root|home|Users|scratch|workspace)/")
_URL: Final = re.compile(r"https?://([\w.-]+)")
# Hosts that a file may name. Package indexes, mirrors and image registries are not among them:
# where packages come from is the business of the machine that installs them.
HOSTS: Final = frozenset(
    {
        "127.0.0.1",
        "cwiki.apache.org",
        "github.com",
        "kafka.apache.org",
        "keepachangelog.com",
        "localhost",
        "maven.apache.org",
        "prometheus",  # a service of compose/compose.yaml
        "semver.org",
        "www.apache.org",
        "www.w3.org",
    }
)
_REGISTRIES: Final = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|repo1?\.maven|registry\.npmjs|docker\.io|ghcr\.io|quay\.io"
    r"|artifactory|index-url)\b",
    re.IGNORECASE,
)
# It holds what it looks for.
_RULE_FILE: Final = Path(__file__).resolve()
TEXTS: Final = {
    path: text for path in files() if path != _RULE_FILE and (text := text_of(path)) is not None
}


def _lines(text: str, pattern: re.Pattern[str]) -> list[int]:
    return [text.count("\n", 0, found.start()) + 1 for found in pattern.finditer(text)]


def _found(pattern: re.Pattern[str], *, except_in: frozenset[str] = frozenset()) -> list[str]:
    """Return every place, as file:line, where a pattern occurs."""
    return [
        f"{shown(path)}:{line}"
        for path, text in TEXTS.items()
        if path.name not in except_in
        for line in _lines(text, pattern)
    ]


def test_nothing_is_left_to_be_fixed() -> None:
    found = _found(_FIX, except_in=frozenset({"STYLE.md"}))
    assert not found, f"fix it before it is merged: {found}"


def test_what_is_to_be_done_has_an_issue() -> None:
    found = _found(_TO_DO)
    assert not found, f"write it with the number of an issue, and a colon: {found}"


def test_no_merge_was_left_half_done() -> None:
    assert not (found := _found(_MERGE)), f"finish the merge: {found}"


def test_no_path_of_one_machine() -> None:
    found = _found(_MACHINE)
    assert not found, f"paths of one machine; use relative ones, or examples: {found}"


def test_no_host_that_is_not_known() -> None:
    unknown = {
        f"{shown(path)}: {host}"
        for path, text in TEXTS.items()
        for host in _URL.findall(text)
        if host.rstrip(".") not in HOSTS
    }
    assert not unknown, f"take these out, or add them to HOSTS in this test: {sorted(unknown)}"


def test_no_package_index_and_no_registry() -> None:
    found = _found(_REGISTRIES)
    assert not found, f"where packages come from is set on the machine, not here: {found}"


def test_no_blanks_at_the_ends_of_lines() -> None:
    found = _found(re.compile(r"[ \t\r]+$", re.MULTILINE), except_in=frozenset({"LICENSE"}))
    assert not found, f"take them away: {found}"


def test_every_text_ends_with_one_newline() -> None:
    wrong = [
        shown(path)
        for path, text in TEXTS.items()
        if text and (not text.endswith("\n") or text.endswith("\n\n"))
    ]
    assert not wrong, f"end these with one newline: {wrong}"


def test_no_large_files() -> None:
    large = {shown(path): path.stat().st_size for path in files()}
    large = {name: size for name, size in large.items() if size > BLOB_BYTES_MAX}
    assert not large, f"make these when they are needed, instead of keeping them: {large}"
