"""The panels of the dashboards, asked of a real Prometheus as Grafana would, and drawn.

Not here: which panels there are (`ottla.node.boards`), and how lines are drawn (`chart.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ottla.node.boards.panel import INSTANCE, RATE, Board, Panel, Query
from tests.observed.chart import Chart, Line, draw
from tests.observed.prometheus import Prometheus, Series

# Four scrapes at least, as Grafana has it.
WINDOW: Final = "6s"


def expression(query: Query, instance: str) -> str:
    """Return what is asked when this node is chosen."""
    return query.expression.replace(RATE, WINDOW).replace(INSTANCE, instance)


def silent_queries(prometheus: Prometheus, board: Board, instance: str) -> Iterator[str]:
    """Yield the queries of a dashboard that return nothing, or nothing that is a number."""
    for panel in board.panels:
        for query in panel.queries:
            asked = expression(query, instance)
            if not any(series.has_data for series in prometheus.query(asked)):
                yield f"{board.title}, {panel.title}: {asked}"


def picture(
    prometheus: Prometheus, board: Board, instance: str, start_s: float, end_s: float
) -> str:
    """Return a dashboard as SVG."""
    charts = [_chart(prometheus, panel, instance, start_s, end_s) for panel in board.panels]
    return draw(board.title, charts, start_s, end_s)


def _chart(
    prometheus: Prometheus, panel: Panel, instance: str, start_s: float, end_s: float
) -> Chart:
    lines = [
        Line(legend_of(query, series), series.points)
        for query in panel.queries
        for series in prometheus.query_range(expression(query, instance), start_s, end_s)
    ]
    return Chart(panel.title, panel.unit, lines)


def legend_of(query: Query, series: Series) -> str:
    """Return what a line is called, with the values of its labels put in."""

    def label(found: re.Match[str]) -> str:
        return series.labels.get(found[1], "")

    return re.sub(r"\{\{(\w+)\}\}", label, query.legend)
