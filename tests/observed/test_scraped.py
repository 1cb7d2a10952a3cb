"""A real Prometheus scrapes a cluster under load: every metric and every panel has data."""

from __future__ import annotations

import time
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from ottla.node.boards.grafana import BOARDS
from ottla.node.boards.panel import Board
from ottla.node.metric_table import METRICS
from tests.observed.boards import picture, silent_queries
from tests.observed.stage import Observed, observed

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    with observed(tmp_path_factory.mktemp("observed")) as found:
        yield found


def test_every_metric_of_the_table_has_a_sample(stage: Observed) -> None:
    told = stage.prometheus.metric_names()
    names = [f"{row.name}_count" if row.kind == "histogram" else row.name for row in METRICS]
    assert [name for name in names if name not in told] == []


def test_nothing_is_told_that_is_not_in_the_table(stage: Observed) -> None:
    parts = ("", "_bucket", "_sum", "_count")
    known = {f"{row.name}{part}" for row in METRICS for part in parts}
    prefixes = ("kafka_", "ottla_", "process_", "python_")
    told = {name for name in stage.prometheus.metric_names() if name.startswith(prefixes)}
    assert told - known == set()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: str(board.name))
def test_every_panel_has_data_under_load(stage: Observed, board: Board) -> None:
    for node in stage.cluster.nodes.values():
        assert list(silent_queries(stage.prometheus, board, node.http)) == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: str(board.name))
def test_a_picture_of_it_has_every_panel_and_a_line_for_each_query(
    stage: Observed, board: Board
) -> None:
    end_s = time.time()
    drawn = picture(stage.prometheus, board, stage.cluster[1].http, end_s - 30, end_s)
    texts = {element.text for element in ElementTree.fromstring(drawn).iter() if element.text}
    assert {panel.title for panel in board.panels} <= texts
    assert drawn.count('class="line"') >= sum(len(panel.queries) for panel in board.panels)


# A machine that is too busy makes leaders late, and that is what these are for.
OF_A_SLOW_MACHINE = {"OttlaQuorumElectsOften", "OttlaIsrUnsteady", "OttlaStreamsBreak"}


def test_a_cluster_that_lost_a_node_and_has_it_back_fires_no_alert(stage: Observed) -> None:
    firing = {name for name, state in stage.prometheus.alerts().items() if state == "firing"}
    assert firing <= OF_A_SLOW_MACHINE
