"""What the tests of dashboards and alerts stand on: pictures, and rules in a shorter time."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from ottla.node.boards.panel import Query
from tests.observed.boards import legend_of
from tests.observed.chart import Chart, Line, draw, told, top_of
from tests.observed.prometheus import Series
from tests.observed.rules import shortened


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "short", "0"),
        (12, "short", "12"),
        (1_500, "short", "1.5 k"),
        (2_048, "bytes", "2 KiB"),
        (1_024_000, "bytes", "1000 KiB"),
        (3 * 1024**2, "Bps", "3 MiB/s"),
        (0.25, "s", "250 ms"),
        (2.5, "s", "2.5 s"),
        (1_500, "ms", "1.5 s"),
        (0.031, "percentunit", "3.1 %"),
        (5, "ops", "5/s"),
    ],
)
def test_a_value_is_told_in_its_unit(value: float, unit: str, text: str) -> None:
    assert told(value, unit) == text


@pytest.mark.parametrize(
    ("values", "unit", "top"),
    [([], "short", 1), ([0.0], "short", 1), ([37.0], "short", 40), ([3_000.0], "bytes", 4_096)],
)
def test_an_axis_ends_at_a_round_number_above_all_values(
    values: list[float], unit: str, top: float
) -> None:
    assert top_of(values, unit) == top


def _paths(drawn: str) -> list[str]:
    return re.findall(r'<path class="line"[^>]* d="([^"]*)"', drawn)


def test_a_picture_is_well_formed_whatever_names_hold() -> None:
    chart = Chart("<b> & more", "short", [Line('x"<>&', [(0.0, 1.0), (1.0, 2.0)])])
    root = ElementTree.fromstring(draw("a <heading>", [chart] * 4, 0.0, 10.0))
    assert root.tag.endswith("svg")
    assert len(_paths(draw("h", [chart] * 4, 0.0, 10.0))) == 4


def test_where_nothing_was_told_nothing_is_drawn() -> None:
    points = [(0.0, 1.0), (1.0, 1.0), (9.0, 1.0), (10.0, math.nan), (11.0, 1.0), (12.0, 1.0)]
    (path,) = _paths(draw("h", [Chart("t", "short", [Line("x", points)])], 0.0, 12.0))
    assert (path.count("M"), path.count("L")) == (3, 2)


def test_a_line_is_named_after_its_labels() -> None:
    series = Series({"peer": "2", "stream": "quorum"}, ())
    assert legend_of(Query("x", "{{stream}} to node {{peer}}"), series) == "quorum to node 2"


def test_rules_are_shortened_in_their_durations_and_nowhere_else() -> None:
    rule = "expr: changes(x[15m]) > 4 and predict_linear(y[30m], 14400) < 0\nfor: 10m\n# in 15m: 2h"
    assert shortened(rule) == (
        "expr: changes(x[30000ms]) > 4 and predict_linear(y[60000ms], 14400) < 0\n"
        "for: 20000ms\n# in 15m: 2h"
    )
