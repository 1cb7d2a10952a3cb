"""A node is killed at every named place of replication, and nothing acknowledged is lost (rule 70).

The places of a log alone have tests of their own (`test_failpoints.py` of integration). Here the
victim comes back with one place armed, becomes a leader again, and another node comes and goes, so
that in-sync sets change, until the victim has come by that place.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.proto.errors import OttlaError
from ottla.proto.ids import TopicPartition
from ottla.replication.storage.failpoints import ENVIRONMENT_KEY, FAILPOINTS
from tests.integration.clusters import ClusterNode, make_cluster
from tests.integration.nodes import wait_until
from tests.integration.replicated.stage import (
    DEADLINE_S,
    RAW_TOPIC,
    Stage,
    on_stage,
    start_again,
    terminate,
)
from tests.integration.replicated.wire import elect_preferred

pytestmark = [pytest.mark.integration, pytest.mark.long]

PLACES = [
    point.name
    for point in FAILPOINTS
    if point.name.startswith(("leader.", "isr.", "follower.", "replica."))
]
# Not the first time: then little has happened.
NTH = 2
ROUNDS = 10


def _provoke(stage: Stage, victim: ClusterNode, third: ClusterNode) -> None:
    """Let the victim lead, and the third come back into in-sync sets."""
    place = TopicPartition(RAW_TOPIC, stage.brokers.index(victim.node_id))
    with suppress(OttlaError, OSError, TimeoutError):
        elect_preferred(stage.addresses, RAW_TOPIC, [place.partition])
    third.kill()
    third.start()
    wait_until(lambda: third.is_ready() or not victim.is_running, DEADLINE_S, "the third is back")


def _die_at(stage: Stage, victim: ClusterNode, third: ClusterNode, place: str) -> None:
    terminate(victim)
    victim.environment[ENVIRONMENT_KEY] = f"{place}=kill@{NTH}"
    victim.start()
    victim.is_expected = False
    del victim.environment[ENVIRONMENT_KEY]
    for _ in range(ROUNDS):
        wait_until(
            lambda: victim.is_ready() or not victim.is_running, DEADLINE_S, "it is back, or dead"
        )
        if not victim.is_running:
            break
        _provoke(stage, victim, third)
    assert victim.exit_code == -signal.SIGKILL, f"it never came by {place}"
    start_again(victim)
    third.wait_until_ready(DEADLINE_S)
    stage.wait_whole()


def test_a_node_that_dies_at_any_named_place_loses_nothing(tmp_path: Path) -> None:
    with on_stage(make_cluster(tmp_path), seed=70) as stage:
        for number, place in enumerate(PLACES):
            nodes = [stage.cluster[one] for one in stage.brokers]
            victim, third = nodes[number % 3], nodes[(number + 1) % 3]
            stage.move_to(TopicPartition(RAW_TOPIC, number % 3))
            _die_at(stage, victim, third, place)
        stage.judge_all(twice=True)
