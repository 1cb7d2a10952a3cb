"""The power of leaders goes, and of all nodes at once; and all nodes are killed at once.

Every record is synced before it is acknowledged, so nothing may be missing, and every partition has
a leader again by itself (rule 8). The fault seam drops, tears and reorders what was not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.integration.clusters import RunningCluster, make_cluster
from tests.integration.nodes import wait_until
from tests.integration.replicated.figures import Figures
from tests.integration.replicated.goals import kind_of, missed
from tests.integration.replicated.stage import (
    CUT,
    DEADLINE_S,
    RESUMED,
    Stage,
    cut_power,
    draw_faults,
    on_stage,
    powered,
    pull_plug,
    start_again,
)
from tests.portion import is_whole, portion

pytestmark = [pytest.mark.integration, pytest.mark.long]


def _plugged(directory: Path, seed: int) -> RunningCluster:
    cluster = powered(make_cluster(directory))
    dice = Random(seed)
    for node in cluster.nodes.values():
        draw_faults(node, dice)
    return cluster


def test_the_power_of_leaders_goes_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    figures = Figures("power cuts of leaders")
    with on_stage(_plugged(tmp_path, 1), seed=1) as stage:
        for number in range(portion(10, least=2)):
            victim = stage.choose(is_active=number % 2 == 1)
            stage.write_where(victim.node_id)
            # Elections may have moved it meanwhile.
            kind = kind_of("power cut", is_active=stage.cluster.active_controller() is victim)
            figures.add(stage.strike(kind, victim, cut_power, start_again))
            draw_faults(victim, stage.dice)
        figures.tell(outcomes=stage.history.counts())
        stage.judge_all(twice=True)
    if is_whole():
        assert not (problems := missed(figures)), "\n".join(problems)


def _cut_all(cluster: RunningCluster) -> None:
    for node in cluster.nodes.values():
        pull_plug(node)
    for node in cluster.nodes.values():
        assert node.process.wait(DEADLINE_S) == CUT, node.failure("its power was not cut")


def _kill_all(cluster: RunningCluster) -> None:
    for node in cluster.nodes.values():
        node.is_expected = False
        node.process.kill()
    for node in cluster.nodes.values():
        node.process.wait(DEADLINE_S)


def _all_go(stage: Stage, end: Callable[[RunningCluster], None]) -> None:
    stage.wait_acknowledged(stage.dice.randint(5, 100))
    end(stage.cluster)
    for node in stage.cluster.nodes.values():
        draw_faults(node, stage.dice)
    stage.cluster.start()
    stage.cluster.wait_until_ready(deadline_s=DEADLINE_S)

    def all_have_leaders() -> bool:
        view = stage.view()
        return bool(view) and all(seen.leader >= 0 for seen in view.values())

    wait_until(all_have_leaders, DEADLINE_S, "every partition has a leader again")
    stage.wait_acknowledged(RESUMED)
    stage.wait_whole()


@pytest.mark.parametrize("end", [_cut_all, _kill_all], ids=["power", "kill"])
def test_all_nodes_go_at_once_and_come_back_by_themselves_with_everything(
    end: Callable[[RunningCluster], None], tmp_path: Path
) -> None:
    with on_stage(_plugged(tmp_path, 2), seed=2) as stage:
        for _ in range(portion(5, least=2)):
            _all_go(stage, end)
        stage.judge_all(twice=True)
