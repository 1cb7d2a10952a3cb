"""The power of nodes goes at any sync of the journal, one by one and all at once.

The fault seam drops, tears and reorders what was not synced. A stream of changes runs; afterwards
everything that was acknowledged is there, on every node.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.integration.admin_stream import AdminStream, Fate, Notebook, judge, read_topics
from tests.integration.clusters import RunningCluster, living, make_cluster
from tests.integration.nodes import wait_until
from tests.portion import portion, stride

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
# What the process leaves with when the fault seam cuts its power.
CUT = 137
STYLES = ("drop", "torn", "reorder", "mixed")
# A start takes about the first half of them.
MOMENTS = 50


def _faults(dice: Random) -> str:
    # The first moments are those of the start: the power may go there as well.
    moment = dice.choice((dice.randint(1, 40), dice.randint(40, 400)))
    return f"power_cut={moment};style={dice.choice(STYLES)};seed={dice.randrange(1000)}"


def _judged(cluster: RunningCluster, notebook: Notebook) -> None:
    """Start all without faults, and compare what each node tells with what was answered."""
    for node in cluster.nodes.values():
        node.environment.pop("OTTLA_FAULTS", None)
        if not node.is_running:
            node.start()
    cluster.wait_until_ready()

    def is_one_version() -> bool:
        versions = {node.metadata_version() for node in cluster.nodes.values()}
        return len(versions) == 1 and None not in versions

    wait_until(is_one_version, DEADLINE_S, "all nodes have the same version")
    for node in cluster.nodes.values():
        judge(notebook, read_topics(node.bootstrap), others=set())


@pytest.mark.parametrize(
    ("nodes", "count"),
    [
        (1, 1),
        pytest.param(1, portion(10), id="1-10", marks=pytest.mark.long),
        pytest.param(3, portion(10), id="3-10", marks=pytest.mark.long),
    ],
)
def test_the_power_of_all_nodes_goes_and_nothing_acknowledged_is_lost(
    nodes: int, count: int, tmp_path: Path
) -> None:
    notebook, dice, cluster = Notebook(), Random(100 * nodes + count), make_cluster(tmp_path, nodes)
    cuts = 0
    with living(cluster):
        _judged(cluster, notebook)
        for number in range(count):
            for node in cluster.nodes.values():
                node.stop()
                node.environment["OTTLA_FAULTS"] = _faults(dice)
            addresses = [node.bootstrap for node in cluster.nodes.values()]
            stream = AdminStream(addresses, name=f"round-{number}", notebook=notebook)
            cluster.start()
            for node in cluster.nodes.values():
                node.is_expected = False
            stream.start()
            # Without the others one that still has power may have nothing left to sync.
            wait_until(lambda: len(cluster.running) <= nodes // 2, DEADLINE_S, "most have none")
            for node in cluster.nodes.values():
                node.live_for(0.5)
            for node in cluster.running:
                node.kill()
            stream.stop()
            cuts += sum(node.exit_code == CUT for node in cluster.nodes.values())
            _judged(cluster, notebook)
    assert cuts >= count
    print(f"{cuts} power cuts, requests: {dict(notebook.fates)}")
    assert count < 10 or notebook.fates[Fate.ACKNOWLEDGED.value] > count


@pytest.mark.long
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_power_of_a_node_goes_at_each_moment_in_turn(nodes: int, tmp_path: Path) -> None:
    """Moments are syncs of files and commits of stores, from the first one of a start on."""
    notebook, cluster = Notebook(), make_cluster(tmp_path, nodes)
    moments = range(1, MOMENTS + 1, stride())
    cuts = 0
    with living(cluster):
        _judged(cluster, notebook)
        for moment in moments:
            victim = cluster.nodes[1 + moment % nodes]
            victim.stop()
            style = STYLES[moment % len(STYLES)]
            victim.environment["OTTLA_FAULTS"] = f"power_cut={moment};style={style};seed={moment}"
            addresses = [node.bootstrap for node in cluster.nodes.values()]
            stream = AdminStream(addresses, name=f"moment-{moment}", notebook=notebook)
            victim.start()
            victim.is_expected = False
            stream.start()
            wait_until(lambda one=victim: not one.is_running, DEADLINE_S, f"moment {moment} came")  # type: ignore[misc]
            stream.stop()
            cuts += victim.exit_code == CUT
            _judged(cluster, notebook)
    assert cuts == len(moments)
    print(f"{cuts} moments, requests: {dict(notebook.fates)}")
    assert notebook.fates[Fate.ACKNOWLEDGED.value] > len(moments)
