"""Documents that must agree with what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from ottla.node.commands.docs import PAGES
from tests.tidy.tree import ROOT, files, make_targets, pyproject, shown, table_cells

ADR_HEADINGS: Final = ["Context", "Decision", "Consequences", "How we would notice it was wrong"]
ADR_LINES_MAX: Final = 70
ARCHITECTURE_LINES_MAX: Final = 300
CHANGELOG_SECTIONS: Final = ("Safety", "Features", "Internals")
ADRS: Final = sorted((ROOT / "docs" / "adr").glob("*.md"))
MARKDOWN: Final = [path for path in files() if path.suffix == ".md"]
_CODE: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize("path", ADRS, ids=shown)
def test_decision_record_has_its_four_parts(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", path.name), (
        f"{path.name}: name it 0042-like-this.md"
    )
    assert text.startswith(f"# {path.name[:4]} "), (
        f"{path.name}: begin with '# {path.name[:4]} Title'"
    )
    found = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert found == ADR_HEADINGS, f"{path.name}: its headings must be {ADR_HEADINGS}"
    assert len(text.splitlines()) <= ADR_LINES_MAX, f"{path.name}: a decision fits on one page"


def test_decision_records_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in ADRS]
    assert numbers == list(range(1, len(ADRS) + 1)), f"number them 0001 and on: {numbers}"


def test_every_decision_record_that_is_referred_to_exists() -> None:
    known = {path.name[:4] for path in ADRS}
    for path in files():
        if path.suffix in {".py", ".md"}:
            told = set(re.findall(r"\bADR (\d{4})\b", path.read_text(encoding="utf-8")))
            assert told <= known, f"{shown(path)} refers to ADR {sorted(told - known)}"


def test_architecture_stays_readable_in_one_sitting() -> None:
    count = len((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines())
    assert count <= ARCHITECTURE_LINES_MAX, f"ARCHITECTURE.md has {count} lines: move details away"


def test_changelog_begins_with_the_version_of_the_package() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## \[(.+?)\]", text, re.MULTILINE)
    version = pyproject()["project"]["version"]
    assert found, "CHANGELOG.md: head each version '## [1.2.3] - date'"
    assert found[1] == version, f"CHANGELOG.md begins with {found[1]}, pyproject.toml has {version}"
    sections = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert sections <= set(CHANGELOG_SECTIONS), f"its sections are {CHANGELOG_SECTIONS}"


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_page_is_fresh(name: str) -> None:
    page = ROOT / "docs" / "generated" / name
    told = f"run `make docs` and keep {shown(page)}"
    assert page.exists(), told
    assert page.read_text(encoding="utf-8") == PAGES[name](), told


def test_every_generated_page_has_a_generator() -> None:
    there = {path.name for path in (ROOT / "docs" / "generated").iterdir()}
    assert there == set(PAGES), "a page that nothing generates belongs elsewhere in docs"


def test_every_table_has_a_generated_page() -> None:
    tables = {
        "APIS.md": "APIs",
        "CONFIG.md": "options",
        "ERRORS.md": "error codes",
        "FAILPOINTS.md": "failpoints",
        "METRICS.md": "metrics",
    }
    missing = {page: table for page, table in tables.items() if page not in PAGES}
    assert not missing, f"add them to PAGES in node/commands/docs.py: {missing}"


def test_links_lead_somewhere() -> None:
    broken = [
        f"{shown(path)}: {link}"
        for path in MARKDOWN
        for link in _LINK.findall(path.read_text(encoding="utf-8"))
        if "://" not in link and not (path.parent / link).exists()
    ]
    assert not broken, f"these links lead nowhere: {broken}"


def _commands() -> list[str]:
    text = (ROOT / "docs" / "EVIDENCE.md").read_text(encoding="utf-8")
    rows = [cells for cells in table_cells(text) if len(cells) >= 3 and cells[1] != "command"]
    return [command for cells in rows for command in _CODE.findall(cells[1])]


@pytest.mark.parametrize("command", sorted(set(_commands())))
def test_evidence_can_be_asked_for(command: str) -> None:
    words = command.split()
    if words[0] == "make":
        assert words[1] in make_targets(), f"docs/EVIDENCE.md: there is no target {words[1]}"
    for word in words:
        if re.match(r"(tests|bench|docs)/", word):
            assert (ROOT / word.split("::")[0]).exists(), f"docs/EVIDENCE.md: {word} is not there"
    for module in re.findall(r"-m ((?:bench|tests)[\w.]+)", command):
        path = (ROOT / module.replace(".", "/")).with_suffix(".py")
        assert path.exists(), f"docs/EVIDENCE.md: there is no module {module}"


def test_every_target_is_explained_where_people_look() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    missing = [name for name in sorted(make_targets() - {"help"}) if f"make {name}" not in text]
    assert not missing, f"say in CONTRIBUTING.md what these targets do: {missing}"
