"""Who is in sync: a follower that hangs leaves in time and returns; a slow cable harms nobody."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
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
from tests.portion import portion

pytestmark = [pytest.mark.integration, pytest.mark.long]

LAG_MS = 1500
# Leaders look every half of it, so whoever hangs is out after one and a half.
LEAVES_S = 1.5 * LAG_MS / 1000
# Asking takes time as well. Beyond this a figure would say nothing.
ASKING_S_MAX = 0.5
HERE = TopicPartition(RAW_TOPIC, 0)
# By what nodes reach each other.
BETWEEN = ("INTERNAL", "REPLICATION")
DELAY_S = 0.1
PER_S = 1000
# Acknowledged in the watched window itself: a writer that is held up writes less, and proves less.
PER_S_MIN = 950
WATCHED_S = float(portion(60, least=5))


def _in_sync(stage: Stage, leader: int) -> tuple[int, ...]:
    """Return the ISR as the leader tells it: whoever hangs would not answer."""
    seen = look({leader: stage.addresses[leader]}, [RAW_TOPIC]).get(HERE)
    assert seen is not None
    return seen.isr


@dataclass(slots=True)
class Leaving:
    """When a node that hangs since a moment was last seen in the ISR, and first seen outside."""

    began_s: float
    # When the last question began that was answered with it in the ISR.
    still_s: float = 0.0
    # When the first answer was there without it.
    gone_s: float = 0.0

    def look(self, stage: Stage, leader: int, follower: int) -> bool:
        asked_s = time.monotonic() - self.began_s
        if follower in _in_sync(stage, leader):
            self.still_s = asked_s
            return False
        self.gone_s = time.monotonic() - self.began_s
        return True

    @property
    def asking_s(self) -> float:
        return self.gone_s - self.still_s

    def require_in_time(self) -> None:
        """It was out after 1.5 × lag and the time that it took to ask, which is measured."""
        assert self.asking_s <= ASKING_S_MAX, f"to ask took {self.asking_s:.2f} s"
        assert self.gone_s <= LEAVES_S + self.asking_s, str(self)

    def __str__(self) -> str:
        return f"{self.gone_s:.2f} s (in it at {self.still_s:.2f} s)"


def test_a_follower_that_hangs_leaves_in_time_and_joins_again(tmp_path: Path) -> None:
    options = {
        "replica.lag.time.max.ms": str(LAG_MS),
        "replica.fetch.wait.max.ms": "250",
        # The lag is to decide, and not the session.
        "broker.session.timeout.ms": "30000",
    }
    leavings = list[Leaving]()
    with on_stage(make_cluster(tmp_path, options=options), seed=5) as stage:
        for _ in range(3):
            leader = stage.leader_of(HERE)
            active = stage.cluster.active_controller().node_id
            follower = stage.cluster[
                next(one for one in stage.brokers if one not in (leader, active))
            ]
            stage.wait_acknowledged(stage.dice.randint(1, 50))
            follower.pause()
            leaving = Leaving(time.monotonic())
            wait_until(
                partial(leaving.look, stage, leader, follower.node_id),
                DEADLINE_S,
                f"node {follower.node_id} leaves",
            )
            leavings.append(leaving)
            stage.wait_acknowledged(RESUMED)
            follower.resume()
            stage.wait_whole()
        stage.judge_all()
    print(f"left after {', '.join(map(str, leavings))}; {LEAVES_S:.2f} s and asking are allowed")
    for leaving in leavings:
        leaving.require_in_time()


def _slowed(directory: Path) -> tuple[RunningCluster, DelayingCables]:
    """Return a cluster whose nodes reach each other only through slow cables."""
    cluster = make_cluster(directory)
    drawn = {
        key: dict(zip(BETWEEN, reserve_ports(len(BETWEEN)), strict=True)) for key in cluster.nodes
    }
    voters = ",".join(f"{key}@{HOST}:{cables['INTERNAL']}" for key, cables in drawn.items())
    targets = dict[int, int]()
    for node in cluster.nodes.values():
        cables = drawn[node.node_id]
        told = (f"{name}://{HOST}:{port}" for name, port in cables.items())
        node.options["advertised.listeners"] = ",".join(told)
        node.options["controller.quorum.voters"] = voters
        targets |= {port: node.ports[name] for name, port in cables.items()}
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
        kept = stage.history.acknowledged_since(FOREIGN, began_s)
        watched_s = time.monotonic() - began_s
        assert _partition_epochs(stage) == before
        told = f"{kept / watched_s:.0f} writes/s in {watched_s:.1f} s"
        print(f"no change at {told} over {cables.connections} slow connections")
        assert kept / watched_s >= PER_S_MIN, told
        stage.judge_all()


def _let_write(stage: Stage, began_s: float) -> None:
    def is_enough() -> bool:
        stage.require_sound()
        return time.monotonic() - began_s > WATCHED_S

    wait_until(is_enough, WATCHED_S + DEADLINE_S, "it was watched long enough")
