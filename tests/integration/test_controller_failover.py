"""kill -9 of the active controller, again and again, under a stream of changes.

Three nodes; several clients make topics, change options, add partitions and delete. The active
controller dies, another takes over, the dead one comes back. Afterwards nothing that was
acknowledged is lost or was applied twice, every node tells the same, and no node's metadata ever
went back. How long the cluster was without a controller is measured from outside: from the kill to
the first change that a surviving node acknowledged.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from ottla.proto.kafka.uuids import UUID
from tests.integration.admin_stream import (
    FIRST_VALUE,
    AdminStream,
    Fate,
    Notebook,
    TopicNotes,
    TopicSeen,
    first_acknowledged,
    judge,
    make_topics,
    new_topic,
    read_topics,
)
from tests.integration.clusters import ClusterNode, RunningCluster, running_cluster
from tests.integration.nodes import wait_until
from tests.portion import portion

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
PROBE = "probe"
POLL_S = 0.1


class VersionWatch:
    """Looks at the metadata version of every node all the time; it must never go back."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._cluster = cluster
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        # By node and process: the last version seen.
        self._last: dict[tuple[int, int], int] = {}
        self.went_back: list[str] = []
        self.seen = 0

    def __enter__(self) -> VersionWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)

    def highest(self, node_id: int) -> int:
        """Return the highest version that any life of a node has shown."""
        return max((last for (node, _), last in self._last.items() if node == node_id), default=-1)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_S):
            for node in self._cluster.nodes.values():
                self._look(node)

    def _look(self, node: ClusterNode) -> None:
        pid = node.pid
        version = node.metadata_version()
        # It may have died, and come back, while it was asked.
        if version is None or node.pid != pid:
            return
        self.seen += 1
        before = self._last.get((node.node_id, pid), -1)
        if version < before:
            self.went_back.append(f"node {node.node_id} went from {before} to {version}")
        self._last[node.node_id, pid] = version


def _notes(**changes: Any) -> TopicNotes:
    return replace(TopicNotes(Fate.ACKNOWLEDGED, topic_id=UUID(int=1), value=7), **changes)


@pytest.mark.parametrize(
    ("notes", "seen", "told"),
    [
        (_notes(), None, "is gone"),
        (_notes(deleted=Fate.ACKNOWLEDGED), TopicSeen(UUID(int=1), 1, 7), "is there again"),
        (_notes(), TopicSeen(UUID(int=2), 1, 7), "is another topic"),
        (_notes(), TopicSeen(UUID(int=1), 2, 7), "has 2 partitions"),
        (_notes(value_maybe=8), TopicSeen(UUID(int=1), 1, 6), "has 6"),
        (_notes(created=Fate.NOT_DONE), TopicSeen(UUID(int=1), 1, 7), "was never sent"),
    ],
)
def test_the_judge_notices_what_must_not_be(
    notes: TopicNotes, seen: TopicSeen | None, told: str
) -> None:
    notebook = Notebook(topics={"orders": notes})
    with pytest.raises(AssertionError, match=told):
        judge(notebook, {} if seen is None else {"orders": seen}, others=set())


def test_the_judge_takes_what_may_be() -> None:
    lost = _notes(created=Fate.UNKNOWN)
    half = _notes(value_maybe=8, partitions_maybe=2)
    notebook = Notebook(topics={"lost": lost, "half": half})
    for value, count in ((7, 1), (8, 1), (7, 2)):
        judge(notebook, {"half": TopicSeen(UUID(int=1), count, value)}, others=set())
    with pytest.raises(AssertionError, match="nobody made these"):
        judge(Notebook(), {"stranger": TopicSeen(UUID(int=1), 1, 7)}, others=set())


def _kill_active(cluster: RunningCluster, watch: VersionWatch, number: int) -> float:
    """Kill the active controller and bring it back; return how long changes were impossible."""
    active = cluster.active_controller()
    survivors = [node.bootstrap for node in cluster.others(active.node_id)]
    before = watch.highest(active.node_id)
    began = time.monotonic()
    active.kill()
    acknowledged = first_acknowledged(survivors, PROBE, FIRST_VALUE + number)
    active.start()
    active.wait_until_ready()
    # Whoever is ready has caught up with all that it knew before it died.
    wait_until(
        lambda: (active.metadata_version() or -1) >= before,
        DEADLINE_S,
        f"node {active.node_id} knows version {before} again",
    )
    return acknowledged - began


def _hang_active(cluster: RunningCluster, number: int) -> float:
    """Pause the active controller until another one acts; return how long that took."""
    active = cluster.active_controller()
    survivors = [node.bootstrap for node in cluster.others(active.node_id)]
    began = time.monotonic()
    active.pause()
    acknowledged = first_acknowledged(survivors, PROBE, FIRST_VALUE + number)
    active.resume()
    wait_until(
        lambda: active.leader() not in (None, active.node_id),
        DEADLINE_S,
        f"node {active.node_id} hears that it was replaced",
    )
    cluster.wait_until_ready()
    return acknowledged - began


def _wait_until_all_know_the_same(cluster: RunningCluster) -> None:
    def holds() -> bool:
        versions = {node.metadata_version() for node in cluster.nodes.values()}
        return len(versions) == 1 and None not in versions

    wait_until(holds, DEADLINE_S, "all nodes have the same version")


def _tell(what: str, took_s: list[float], stream: AdminStream) -> None:
    ordered = sorted(took_s)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    fates = dict(stream.notebook.fates)
    print(
        f"{len(took_s)} {what} of the active controller: a change was acknowledged after "
        f"p50 {median(ordered):.2f} s, p99 {p99:.2f} s, max {ordered[-1]:.2f} s; requests: {fates}"
    )
    print("in order: " + " ".join(f"{one:.2f}" for one in took_s))


def _judge_all(cluster: RunningCluster, stream: AdminStream, count: int) -> None:
    """End the stream; compare what every node tells with what was answered."""
    notebook = stream.stop()
    cluster.wait_until_ready()
    _wait_until_all_know_the_same(cluster)
    told = [read_topics(node.bootstrap) for node in cluster.nodes.values()]
    assert told[0] == told[1] == told[2], "the nodes do not tell the same"
    judge(notebook, told[0], others={PROBE})
    assert told[0][PROBE].value == FIRST_VALUE + count
    assert notebook.fates[Fate.ACKNOWLEDGED.value] > 2 * count, "nothing was acknowledged"


@pytest.mark.parametrize("kills", [1, pytest.param(portion(30), id="30", marks=pytest.mark.long)])
def test_killing_the_active_controller_loses_nothing_acknowledged(
    kills: int, tmp_path: Path
) -> None:
    with running_cluster(tmp_path) as cluster, VersionWatch(cluster) as watch:
        make_topics(cluster[1].bootstrap, new_topic(PROBE))
        stream = AdminStream([node.bootstrap for node in cluster.nodes.values()])
        stream.start()
        took_s = [_kill_active(cluster, watch, number) for number in range(1, kills + 1)]
        _tell("kills", took_s, stream)
        _judge_all(cluster, stream, kills)
    assert not watch.went_back, watch.went_back
    assert watch.seen > kills, "nobody looked at the versions: this proved nothing"


@pytest.mark.parametrize("count", [pytest.param(portion(15), id="15", marks=pytest.mark.long)])
def test_a_controller_that_hangs_is_replaced_and_harms_nobody_when_it_goes_on(
    count: int, tmp_path: Path
) -> None:
    with running_cluster(tmp_path) as cluster, VersionWatch(cluster) as watch:
        make_topics(cluster[1].bootstrap, new_topic(PROBE))
        stream = AdminStream([node.bootstrap for node in cluster.nodes.values()])
        stream.start()
        took_s = [_hang_active(cluster, number) for number in range(1, count + 1)]
        _tell("hangs", took_s, stream)
        _judge_all(cluster, stream, count)
    assert not watch.went_back, watch.went_back
