"""How real processes become a cluster, and what each of them refuses.

A first start, with crashes in it; voters that lost their disks; nodes that do not belong together.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from tests.integration.admin_stream import make_topics, new_topic, read_topics
from tests.integration.clusters import (
    ClusterNode,
    RunningCluster,
    living,
    make_cluster,
    running_cluster,
)
from tests.integration.commands import ottla
from tests.integration.nodes import wait_until

pytestmark = pytest.mark.integration

DEADLINE_S = 30.0
# Long enough that a cluster which wrongly forms would have formed.
SETTLE_S = 4.0
LONG_SEEDS = [pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 13)]


def cluster_ids(cluster: RunningCluster) -> set[str]:
    return {node.status()["cluster_id"] for node in cluster.running}


def reason(node: ClusterNode) -> str:
    """Return why a node is not ready."""
    return node.get("/health/ready")[1]


def ends_with(node: ClusterNode, told: str) -> None:
    """Wait until a node has ended by itself, and said why in its log."""
    node.is_expected = False
    wait_until(lambda: not node.is_running, DEADLINE_S, f"node {node.node_id} ends")
    assert node.exit_code not in (0, None)
    assert told in node.log_tail(), node.log_tail()


def holds_for(node: ClusterNode, condition: Callable[[], bool], seconds: float) -> None:
    """Let a node live for so long, and fail if the condition stops to hold meanwhile."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition()
        node.live_for(0.05)


def random_ids(count: int) -> list[str]:
    return [ottla("format", "--random-uuid").stdout.strip() for _ in range(count)]


def _ottla(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def format_node(node: ClusterNode, cluster_id: str, directories: Mapping[int, str]) -> None:
    node.directory.mkdir(parents=True, exist_ok=True)
    voters = [f"--voter-directory={number}={one}" for number, one in directories.items()]
    options = [f"{name}={value}" for name, value in node.options.items()]
    _ottla("format", "--cluster-id", cluster_id, *voters, *options)


# ── A first start ─────────────────────────────────────────────────────────────────────────────


def test_three_blank_nodes_become_one_cluster_and_are_the_same_one_afterwards(
    tmp_path: Path,
) -> None:
    cluster = make_cluster(tmp_path)
    with living(cluster):
        cluster.start()
        cluster.wait_until_ready()
        (before,) = cluster_ids(cluster)
        make_topics(cluster[2].bootstrap, new_topic("kept"))
    with living(cluster):
        cluster.start()
        cluster.wait_until_ready()
        assert cluster_ids(cluster) == {before}
        for node in cluster.nodes.values():
            assert "kept" in read_topics(node.bootstrap), f"node {node.node_id} has forgotten it"


def test_a_first_start_waits_for_every_voter_and_names_who_is_missing(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    with living(cluster):
        cluster[1].start()
        cluster[2].start()

        wait_until(cluster[1].answers, DEADLINE_S, "node 1 tells how it is")
        wait_until(lambda: "3" in reason(cluster[1]), DEADLINE_S, "it says that 3 is missing")
        assert not cluster[1].is_ready()
        cluster[3].start()
        cluster.wait_until_ready()
        assert len(cluster_ids(cluster)) == 1


@pytest.mark.parametrize("seed", [1, *LONG_SEEDS])
def test_a_first_start_that_crashes_anywhere_goes_on_where_it_was(
    seed: int, tmp_path: Path
) -> None:
    dice, cluster = Random(seed), make_cluster(tmp_path)
    with living(cluster):
        cluster.start()
        for _ in range(4):
            victim = cluster[dice.choice((1, 2, 3))]
            # Somewhere between the first import and the first election.
            victim.live_for(dice.uniform(0.0, 0.7))
            if victim.is_running:
                victim.kill()
            victim.start()
        cluster.wait_until_ready()
        assert len(cluster_ids(cluster)) == 1
        make_topics(cluster[1].bootstrap, new_topic("made"))


def test_formatted_voters_need_no_first_talk_so_that_a_majority_can_start(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    cluster_id, *directories = random_ids(4)
    for node in cluster.nodes.values():
        format_node(node, cluster_id, dict(enumerate(directories, start=1)))
    with living(cluster):
        cluster[1].start()
        cluster[3].start()
        cluster.wait_until_ready()
        assert cluster_ids(cluster) == {cluster_id}
        cluster[2].start()
        cluster.wait_until_ready()


def test_nodes_that_were_only_told_their_cluster_form_that_one(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    (cluster_id,) = random_ids(1)
    for node in cluster.nodes.values():
        format_node(node, cluster_id, {})
    with living(cluster):
        cluster.start()
        cluster.wait_until_ready()
        assert cluster_ids(cluster) == {cluster_id}


# ── Brokers and controllers apart ─────────────────────────────────────────────────────────────


def test_brokers_and_controllers_may_be_different_processes(tmp_path: Path) -> None:
    def roles(node_id: int) -> Mapping[str, str]:
        return {"process.roles": "controller" if node_id <= 3 else "broker"}

    cluster = make_cluster(tmp_path, 5, voters=3, options_of=roles)
    with living(cluster):
        cluster.start()
        cluster.wait_until_ready()
        make_topics(cluster[4].bootstrap, new_topic("apart", partitions=4))
        wait_until(lambda: "apart" in read_topics(cluster[5].bootstrap), DEADLINE_S, "it is known")
        active = cluster.active_controller()
        active.kill()
        make_topics(cluster[5].bootstrap, new_topic("later"))


# ── Voters that lost their disks ──────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster that every test leaves as it found it."""
    with running_cluster(tmp_path_factory.mktemp("shared")) as cluster:
        yield cluster


@pytest.fixture
def formed(tmp_path: Path) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path) as cluster:
        make_topics(cluster[1].bootstrap, new_topic("before"))
        yield cluster


def wipe(node: ClusterNode) -> None:
    node.kill()
    shutil.rmtree(node.data_dir)


def test_a_voter_that_lost_its_disk_comes_back_and_its_vote_counts(formed: RunningCluster) -> None:
    for node_id in (3, 1):
        wipe(formed[node_id])
        formed[node_id].restart()
        assert "before" in read_topics(formed[node_id].bootstrap)
    # Without it there would be no majority now.
    formed[2].kill()
    formed.active_controller(not_=2)
    make_topics(formed[1].bootstrap, new_topic("after"))
    formed[2].restart()


# What it shows at once, `test_cluster_refusals.py` shows too; here it holds for a while.
@pytest.mark.long
def test_two_voters_that_lost_their_disks_do_not_outvote_the_one_that_remembers(
    formed: RunningCluster,
) -> None:
    wipe(formed[2])
    wipe(formed[3])
    for node_id in (2, 3):
        formed[node_id].start()
        wait_until(formed[node_id].answers, DEADLINE_S, f"node {node_id} tells how it is")
    holds_for(
        formed[1], lambda: not any(formed[node_id].is_ready() for node_id in (2, 3)), SETTLE_S
    )
    told = {node.status()["cluster_id"] for node in formed.running}
    assert len(told - {""}) == 1
    assert not [node for node in formed.running if node.leader() == node.node_id]
    for node in formed.running:
        node.kill()


def test_a_voter_whose_quorum_was_removed_is_no_new_one(shared: RunningCluster) -> None:
    shared[2].stop()
    quorum = shared[2].data_dir / "quorum"
    aside = quorum.rename(shared[2].directory / "aside")
    # Again and again: whoever supervises it starts it anew.
    for _ in range(2):
        shared[2].start()
        ends_with(shared[2], "its quorum's journal is gone")
    shutil.rmtree(quorum, ignore_errors=True)
    aside.rename(quorum)
    shared[2].restart()


def test_a_voter_with_the_journal_of_another_is_refused(shared: RunningCluster) -> None:
    for node in (shared[1], shared[2]):
        node.stop()
    own, other = (node.data_dir / "quorum" for node in (shared[1], shared[2]))
    aside = own.rename(shared[1].directory / "aside")
    other.rename(own)
    shared[1].start()
    ends_with(shared[1], "is that of node 2")
    own.rename(other)
    aside.rename(own)
    # Both, before either can be ready: without them there is no majority.
    shared[1].start()
    shared[2].start()
    shared.wait_until_ready()


def test_another_list_of_voters_than_the_quorum_was_formed_with_is_refused(
    shared: RunningCluster,
) -> None:
    shared[3].stop()
    voters = shared[3].options["controller.quorum.voters"]
    shared[3].options["controller.quorum.voters"] = f"{voters},4@127.0.0.1:1"
    shared[3].start()
    ends_with(shared[3], "cannot be changed yet")
    shared[3].options["controller.quorum.voters"] = voters
    shared[3].restart()


# ── What does not belong together ─────────────────────────────────────────────────────────────


def test_a_second_process_with_the_id_of_a_living_broker_is_refused(
    shared: RunningCluster, tmp_path: Path
) -> None:
    twins = [make_cluster(tmp_path / name, 1)[1] for name in ("first", "second")]
    for twin in twins:
        twin.options["node.id"] = "9"
        twin.options["process.roles"] = "broker"
        voters = shared[1].options["controller.quorum.voters"]
        twin.options["controller.quorum.voters"] = voters
    first, second = twins
    with living(RunningCluster({9: first})):
        first.start()
        first.wait_until_ready()
        second.start()
        ends_with(second, "Another process is broker 9 and does not go away")
        assert first.is_ready()


def test_voters_that_disagree_about_who_votes_do_nothing_and_say_why(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    shorter = cluster[3].options["controller.quorum.voters"].partition(",")[2]
    cluster[3].options["controller.quorum.voters"] = shorter
    with living(cluster):
        cluster.start()
        wait_until(
            lambda: any("the same on all" in node.log_tail(400) for node in cluster.nodes.values()),
            DEADLINE_S,
            "somebody says that the voters differ",
        )
        assert not any(node.is_ready() for node in cluster.running)
        for node in cluster.running:
            node.kill()


def test_a_voter_of_another_cluster_is_refused_with_the_reason_and_harms_nobody(
    formed: RunningCluster,
) -> None:
    stranger = formed[3]
    stranger.stop()
    shutil.rmtree(stranger.data_dir)
    cluster_id, *directories = random_ids(4)
    format_node(stranger, cluster_id, dict(enumerate(directories, start=1)))
    stranger.log_path.unlink()
    stranger.start()
    stranger.is_expected = False
    wait_until(
        lambda: cluster_id in formed[1].log_tail(400) + formed[2].log_tail(400),
        DEADLINE_S,
        "the others say that it belongs to another cluster",
    )
    holds_for(formed[1], lambda: not stranger.is_ready(), 1.0)
    if stranger.is_running:
        stranger.kill()
    make_topics(formed[1].bootstrap, new_topic("unharmed"))
