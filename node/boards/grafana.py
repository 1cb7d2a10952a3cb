"""The dashboards in Grafana's format, made from the boards by `ottla docs`.

Not here: what is shown, and where Grafana finds the files (compose/grafana/provisioning).
"""

from __future__ import annotations

import json
from typing import Any, Final

from ottla.node.boards.clients import CLIENTS
from ottla.node.boards.cluster import CLUSTER
from ottla.node.boards.one_node import NODE
from ottla.node.boards.panel import Board, Panel
from ottla.node.boards.replication import REPLICATION

BOARDS: Final = (CLUSTER, REPLICATION, CLIENTS, NODE)

# As compose/grafana/provisioning/datasources names it.
SOURCE: Final = {"type": "prometheus", "uid": "prometheus"}
# Of the 24 columns that Grafana has.
_WIDTH: Final = 8
_HEIGHT: Final = 8
_COLUMNS: Final = 24 // _WIDTH
_SCHEMA: Final = 39


def dashboards() -> dict[str, str]:
    """Return the text of every dashboard by the name of its file."""
    return {
        f"{board.name}.json": json.dumps(_dashboard(board), indent=1) + "\n" for board in BOARDS
    }


def _dashboard(board: Board) -> dict[str, Any]:
    return {
        "uid": board.name,
        "title": board.title,
        "tags": ["ottla"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_choice_of_node()] if board.is_of_one_node else []},
        "links": [_links()],
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def _links() -> dict[str, Any]:
    return {"type": "dashboards", "tags": ["ottla"], "title": "Ottla", "keepTime": True}


def _choice_of_node() -> dict[str, Any]:
    return {
        "name": "instance",
        "label": "node",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(ottla_build_info, instance)", "refId": "nodes"},
        "refresh": 2,
        "sort": 1,
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.doc,
        "datasource": SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"lineWidth": 2, "fillOpacity": 5, "showPoints": "never"},
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for place, query in enumerate(panel.queries)
        ],
    }
