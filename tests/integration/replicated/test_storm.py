"""Anything happens to any node at any time, and nobody waits until all is well again.

Nodes are killed, lose their power, hang, and are asked to go, also two or three at once, also while
they are starting. Nothing is measured here: only what was acknowledged counts. `OTTLA_SEED=n` draws
another storm.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from tests.integration.clusters import ClusterNode, make_cluster
from tests.integration.replicated.stage import (
    DEADLINE_S,
    Stage,
    draw_faults,
    on_stage,
    powered,
    pull_plug,
)
from tests.portion import portion

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROUNDS = portion(40)
SEED = int(os.environ.get("OTTLA_SEED", "7"))


def _end(node: ClusterNode, dice: Random) -> None:
    """End a node one way or another; it may be starting."""
    node.is_expected = False
    node.resume()
    match dice.choice(("kill", "kill", "cut", "go")):
        case "kill":
            node.process.kill()
        case "cut":
            pull_plug(node)
        case _:
            node.ask_to_stop()


def _strike(stage: Stage) -> None:
    """Something happens to one node, or to two, seldom to all."""
    dice = stage.dice
    victims = dice.sample(stage.brokers, dice.choice((1, 1, 1, 1, 2, 2, 3)))
    nodes = [stage.cluster[one] for one in victims]
    if dice.random() < 0.2:
        # They hang, and are back with the next stroke, or end in it.
        for node in nodes:
            node.pause()
        return
    for node in nodes:
        _end(node, dice)
    for node in nodes:
        node.process.wait(DEADLINE_S)
        draw_faults(node, dice)
        node.start()


def _calm(stage: Stage) -> None:
    """Let hanging nodes go on; wait for some acknowledged writes, or for none at all."""
    for node in stage.cluster.running:
        node.resume()
    count = stage.dice.choice((0, 0, 1, 5, 50))
    if count:
        stage.wait_acknowledged(count)


def test_a_storm_loses_nothing_acknowledged(tmp_path: Path) -> None:
    cluster = powered(make_cluster(tmp_path))
    dice = Random(SEED)
    for node in cluster.nodes.values():
        draw_faults(node, dice)
    with on_stage(cluster, seed=SEED) as stage:
        for _ in range(ROUNDS):
            _strike(stage)
            _calm(stage)
        for node in cluster.running:
            node.resume()
        cluster.wait_until_ready(deadline_s=DEADLINE_S)
        stage.judge_all(twice=True)
