"""Dashboards and alerts ask for metrics that there are, and say what a reader should do."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from ottla.node.boards.grafana import BOARDS, dashboards
from ottla.node.boards.panel import Board, Panel
from ottla.node.metric_table import METRICS

ROOT: Final = Path(__file__).parents[3]
RULES: Final = (ROOT / "compose" / "prometheus" / "rules.yml").read_text(encoding="utf-8")
ALERTS: Final = re.findall(r"- alert: (\w+)", RULES)
PANELS: Final = [(board, panel) for board in BOARDS for panel in board.panels]
UNITS: Final = {"short", "bytes", "Bps", "s", "ms", "percentunit", "ops"}
_METRIC: Final = re.compile(r"\b(?:kafka|ottla|process|python)_\w+")


def _known() -> set[str]:
    parts = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}
    return {f"{row.name}{part}" for row in METRICS for part in parts[row.kind]}


def _expressions() -> list[str]:
    rules = re.findall(r"expr: (.*?)\n +(?:for|labels):", RULES, re.DOTALL)
    assert len(rules) == len(ALERTS)
    return [*rules, *(query.expression for _, panel in PANELS for query in panel.queries)]


@pytest.mark.parametrize("expression", _expressions())
def test_a_query_asks_for_metrics_that_there_are(expression: str) -> None:
    asked = set(_METRIC.findall(expression))
    assert asked or "up{" in expression
    assert asked <= _known()


@pytest.mark.parametrize("name", dashboards())
def test_a_dashboard_is_fresh(name: str) -> None:
    path = ROOT / "compose" / "grafana" / "dashboards" / name
    assert path.read_text(encoding="utf-8") == dashboards()[name], "run `ottla docs`"


def test_there_is_no_dashboard_that_nobody_makes() -> None:
    there = {path.name for path in (ROOT / "compose" / "grafana" / "dashboards").iterdir()}
    assert there == set(dashboards())


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda one: getattr(one, "title", None))
def test_a_panel_has_a_unit_a_sentence_and_names_for_its_lines(board: Board, panel: Panel) -> None:
    assert panel.unit in UNITS
    assert panel.doc.endswith(".")
    assert all(query.legend for query in panel.queries)
    is_of_one = ["$instance" in query.expression for query in panel.queries]
    assert is_of_one == [board.is_of_one_node] * len(is_of_one)


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    for text in dashboards().values():
        panels = json.loads(text)["panels"]
        places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
        assert len(set(places)) == len({one["id"] for one in panels}) == len(panels)


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_its_section_in_the_runbook(alert: str) -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert re.findall(rf"^## {alert}$", page, re.MULTILINE) == [f"## {alert}"]


def test_the_runbook_has_no_section_of_no_alert() -> None:
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^## (Ottla\w+)$", page, re.MULTILINE)) == set(ALERTS)


@pytest.mark.parametrize("word", ["severity: ", "summary: ", "runbook: "])
def test_every_alert_says_how_bad_it_is_what_it_is_and_what_to_do(word: str) -> None:
    assert RULES.count(f" {word}") == len(ALERTS)
