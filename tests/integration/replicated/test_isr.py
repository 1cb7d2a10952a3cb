"""Who is in sync: a follower that hangs leaves in time and comes back; a slow cable harms nobody.

`OTTLA_LONG=1` lets the slow cable be used for 60 s instead of 15.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ottla.chaos.backends.reserved import HOST, reserve_ports
from ottla.proto.ids import TopicPartition
from tests.integration.clusters import RunningCluster, make_cluster
from tests.integration.insider import image_at
from tests.integration.nodes import wait_until
from tests.integration.replicated.delaying import DelayingCables
from tests.integration.replicated.foreign_writer import FOREIGN
from tests.integration.replicated.stage import (
    DEADLINE_S,
    RAW_TOPIC,
    RESUMED,
    Stage,
    on_stage,
)
from tests.integration.replicated.wire import look

pytestmark = [pytest.mark.integration, pytest.mark.long]

LAG_MS = 1500
# For the looking, on a busy machine.
SLACK_S = 0.5
HERE = TopicPartition(RAW_TOPIC, 0)
DELAY_S = 0.1
PER_S = 1000
WATCHED_S = 60.0 if os.environ.get("OTTLA_LONG") == "1" else 15.0


def _in_sync(stage: Stage, leader: int) -> tuple[int, ...]:
    """Return the ISR as the leader tells it: whoever hangs would not answer."""
    seen = look({leader: stage.addresses[leader]}, [RAW_TOPIC]).get(HERE)
    assert seen is not None
    return seen.isr


def test_a_follower_that_hangs_leaves_in_time_and_joins_again(tmp_path: Path) -> None:
    options = {
        "replica.lag.time.max.ms": str(LAG_MS),
        "replica.fetch.wait.max.ms": "250",
        # The lag is to decide, and not the session.
        "broker.session.timeout.ms": "30000",
    }
    took_s = list[float]()
    with on_stage(make_cluster(tmp_path, options=options), seed=5) as stage:
        for _ in range(3):
            leader = stage.leader_of(HERE)
            active = stage.cluster.active_controller().node_id
            follower = stage.cluster[
                next(one for one in stage.brokers if one not in (leader, active))
            ]
            stage.wait_acknowledged(stage.dice.randint(1, 50))
            follower.pause()
            began_s = time.monotonic()
            wait_until(
                lambda one=follower.node_id, leader=leader: one not in _in_sync(stage, leader),  # type: ignore[misc]
                DEADLINE_S,
                f"node {follower.node_id} leaves",
            )
            took_s.append(time.monotonic() - began_s)
            stage.wait_acknowledged(RESUMED)
            follower.resume()
            stage.wait_whole()
        stage.judge_all()
    print(f"left after {' '.join(f'{one:.2f}' for one in took_s)} s")
    assert max(took_s) <= 1.5 * LAG_MS / 1000 + SLACK_S


def _slowed(directory: Path) -> tuple[RunningCluster, DelayingCables]:
    """Return a cluster whose nodes reach each other only through slow cables."""
    cluster = make_cluster(directory)
    cables = dict(zip(reserve_ports(len(cluster.nodes)), cluster.nodes.values(), strict=True))
    voters = ",".join(f"{node.node_id}@{HOST}:{port}" for port, node in cables.items())
    for port, node in cables.items():
        node.options["advertised.listeners"] = f"INTERNAL://{HOST}:{port}"
        node.options["controller.quorum.voters"] = voters
    targets = {port: int(node.internal.rpartition(":")[2]) for port, node in cables.items()}
    return cluster, DelayingCables(targets, DELAY_S)


def _partition_epochs(stage: Stage) -> dict[TopicPartition, tuple[int, int]]:
    """Return both epochs of every partition: any change of leader or ISR raises one."""
    image = image_at(stage.cluster.active_controller())
    return {
        TopicPartition(name, index): (info.leader_epoch, info.partition_epoch)
        for name, topic in image.topics.items()
        for index, info in enumerate(topic.partitions)
    }


def test_a_slow_cable_changes_no_isr(tmp_path: Path) -> None:
    cluster, cables = _slowed(tmp_path)
    with cables, on_stage(cluster, seed=6, foreign_per_s=PER_S) as stage:
        stage.wait_whole()
        before = _partition_epochs(stage)
        began_s = time.monotonic()
        _let_write(stage, began_s)
        assert _partition_epochs(stage) == before
        kept = stage.history.acknowledged_since(FOREIGN, began_s)
        rate = kept / (time.monotonic() - began_s)
        print(f"{rate:.0f} writes/s over {cables.connections} slow connections")
        assert rate > PER_S / 2
        stage.judge_all()


def _let_write(stage: Stage, began_s: float) -> None:
    def is_enough() -> bool:
        stage.require_sound()
        return time.monotonic() - began_s > WATCHED_S

    wait_until(is_enough, WATCHED_S + DEADLINE_S, "it was watched long enough")
