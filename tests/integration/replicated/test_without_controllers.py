"""Brokers go on without controllers, as long as all in-sync replicas are there (rule 13).

Three controllers and three brokers, each a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ottla.proto.ids import TopicPartition
from tests.integration.clusters import ClusterNode, RunningCluster, make_cluster
from tests.integration.nodes import wait_until
from tests.integration.replicated.history import Fate
from tests.integration.replicated.raw_writer import RAW
from tests.integration.replicated.reader import read_all
from tests.integration.replicated.stage import (
    DEADLINE_S,
    RAW_TOPIC,
    RESUMED,
    Stage,
    on_stage,
)

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONTROLLERS = (1, 2, 3)
BROKERS = (4, 5, 6)
SESSION_S = 2.0
TIMEOUT_MS = 1000
HERE = TopicPartition(RAW_TOPIC, 0)


def _separate(directory: Path) -> RunningCluster:
    def roles(node_id: int) -> Mapping[str, str]:
        return {"process.roles": "controller" if node_id in CONTROLLERS else "broker"}

    return make_cluster(directory, 6, voters=3, options_of=roles)


def _pause(node: ClusterNode) -> None:
    node.pause()


def _resume(node: ClusterNode) -> None:
    node.resume()


def _kill(node: ClusterNode) -> None:
    node.kill()


def _start(node: ClusterNode) -> None:
    # It is ready only when there is a majority of them.
    node.start()


def _said_since(stage: Stage, since_s: float) -> list[str]:
    """Return what the raw writer was told, in order, once for each run of the same."""
    told = list[str]()
    for one in stage.history.since(RAW, since_s):
        said = one.fate.value if one.fate is Fate.OK else one.said
        if said and (not told or told[-1] != said):
            told.append(said)
    return told


def _require_reads(stage: Stage) -> None:
    """All that was acknowledged so far can be read now."""
    kept = [one for one in stage.history.since(RAW, 0.0) if one.fate is Fate.OK]
    end = max(one.offset for one in kept if one.place == HERE) + 1
    back = read_all(stage.addresses, [HERE], ends={HERE: end}, deadline_s=10.0)
    assert back[HERE].high_watermark >= end


@pytest.mark.parametrize(
    ("end", "mend"), [(_pause, _resume), (_kill, _start)], ids=["stopped", "killed"]
)
def test_writes_go_on_without_controllers_until_a_follower_is_missing(
    end: Callable[[ClusterNode], None], mend: Callable[[ClusterNode], None], tmp_path: Path
) -> None:
    with on_stage(_separate(tmp_path), 1, brokers=BROKERS, timeout_ms=TIMEOUT_MS) as stage:
        controllers = [stage.cluster[one] for one in CONTROLLERS]
        for controller in controllers:
            end(controller)
        # Far longer than a session: whoever needed a controller would have noticed.
        without_s = time.monotonic()
        _write_until(stage, without_s + 3 * SESSION_S)
        assert _said_since(stage, without_s + 0.5) == ["ok"], _said_since(stage, without_s)
        _require_reads(stage)

        follower = stage.cluster[BROKERS[1]]
        follower.pause()
        alone_s = time.monotonic()
        _wait_said(stage, alone_s, "REQUEST_TIMED_OUT")
        _wait_said(stage, alone_s, "NOT_LEADER_OR_FOLLOWER")
        refused_s = time.monotonic()
        print(f"told after {refused_s - alone_s:.1f} s: {_said_since(stage, alone_s)}")
        assert refused_s - alone_s < 3 * SESSION_S + TIMEOUT_MS / 1000
        _require_reads(stage)
        late = stage.history.since(RAW, alone_s + SESSION_S + TIMEOUT_MS / 1000)
        assert not [one for one in late if one.fate is Fate.OK], "nobody could keep this"

        follower.resume()
        for controller in controllers:
            mend(controller)
        back_s = time.monotonic()
        stage.wait_acknowledged(RESUMED, back_s)
        print(f"writes go on {time.monotonic() - back_s:.1f} s after all are back")
        stage.cluster.wait_until_ready(deadline_s=DEADLINE_S)
        stage.judge_all(twice=True)
        # It gave nothing up, so it had no reason to send anything with another number.
        assert not stage.new_epochs()


def _write_until(stage: Stage, end_s: float) -> None:
    def holds() -> bool:
        stage.require_sound()
        return time.monotonic() > end_s and stage.history.acknowledged_since(RAW, end_s) > 0

    wait_until(holds, DEADLINE_S, "writes go on without controllers")


def _wait_said(stage: Stage, since_s: float, word: str) -> None:
    try:
        wait_until(lambda: word in _said_since(stage, since_s), DEADLINE_S, f"{word} is said")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; said was {_said_since(stage, since_s)}") from None
