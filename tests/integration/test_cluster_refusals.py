"""What a running cluster refuses: strangers, impostors, garbage and what came too late.

Each is told why, or its log says it; and the cluster does not notice: the same controller in the
same term, not one command more, and the next one commits.

Not here: how a cluster forms, and what it refuses while it does (`test_cluster_formation.py`).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import grpc
import pytest

from ottla.controller.commands import Command, CreateTopic, TakeProducerIds
from ottla.controller.door import Denied, NotActive
from ottla.controller.outcome import Outcome
from ottla.controller.port import NewTopic, TopicDefaults
from ottla.node.clock import new_id
from ottla.node.internal.channels import Channels
from ottla.node.internal.introductions import INTRODUCE
from ottla.node.internal.sender import RAFT
from ottla.node.internal.service import SERVICE
from ottla.node.internal.tls import name_of
from ottla.proto.errors import ErrorCode
from ottla.proto.ids import BrokerId
from tests.integration.admin_stream import read_topics
from tests.integration.clusters import (
    ClusterNode,
    RunningCluster,
    living,
    make_cluster,
    running_cluster,
)
from tests.integration.insider import at_door, image_at, internal_address, propose
from tests.integration.nodes import wait_until
from tests.integration.strangers import (
    DEADLINE_S,
    LOG_LINES,
    alive,
    ends_with,
    is_calm,
    pin,
    require_commits,
    says,
    stranger,
    undisturbed,
    wait_for_log,
)
from tests.unit.node.internal.certificates import Authority

pytestmark = pytest.mark.integration

OTHER_CLUSTER = "AnotherClusterAltogthr"
KEYS = "listener.name.internal.ssl.keystore.location"
TRUSTED = "listener.name.internal.ssl.truststore.location"
Call: TypeAlias = "grpc.aio.StreamStreamCall[bytes, bytes]"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster whose nodes prove who they are, and who vouches for them."""

    cluster: RunningCluster
    authority: Authority


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority(folder)
    made = make_cluster(folder, options_of=lambda key: keys_of(authority, key))
    with living(made):
        made.start()
        made.wait_until_ready()
        yield Guarded(made, authority)


def keys_of(authority: Authority, node_id: int) -> dict[str, str]:
    return {KEYS: str(authority.keys(name_of(node_id))), TRUSTED: str(authority.trusted)}


def new_topic_command(name: str) -> CreateTopic:
    wanted = NewTopic(name=name, partitions=1, replication_factor=1)
    return CreateTopic(wanted, uuid4(), TopicDefaults(partitions=1, replication_factor=1), seed=1)


# ── Nodes that do not belong here ─────────────────────────────────────────────────────────────


def test_a_broker_of_another_cluster_is_given_nothing(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    broker = stranger(cluster, tmp_path)
    pin(broker, OTHER_CLUSTER)
    sentence = f"This is the cluster '{cluster[1].status()['cluster_id']}'"
    sentence = f"{sentence}, and '{OTHER_CLUSTER}' was meant."
    with undisturbed(cluster), alive(broker):
        ends_with(broker, "The controllers are of another cluster than this node: ")
        ends_with(broker, "Correct controller.quorum.voters, or give this node a data directory")
        ends_with(broker, sentence)
    assert any(sentence in node.log_tail(LOG_LINES) for node in cluster.running)


def test_a_voter_of_another_cluster_is_not_listened_to(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster_id = cluster[1].status()["cluster_id"]
        own = cluster[3]
        own.stop()
        active = cluster.active_controller()
        wait_until(lambda: image_at(active).brokers[BrokerId(3)].is_fenced, DEADLINE_S, "fenced")
        with undisturbed(cluster):
            # It was told its cluster and nothing else; and it was made a voter of that one.
            for name, voters in (("blank", ()), ("voter", (1, 2, 3))):
                other = ClusterNode(3, tmp_path / name, own.options, {}, own.ports)
                other.options["log.dirs"] = str(other.data_dir)
                pin(other, OTHER_CLUSTER, {key: new_id() for key in voters})
                with alive(other):
                    ends_with(other, OTHER_CLUSTER)
                    assert cluster_id in other.log_tail()
            # Node 1 says why it refused, or that whoever called had no time to say who it is: it
            # hears of the other cluster by itself, and may have ended before.
            why = f"Node 3 is of the cluster {OTHER_CLUSTER}, and node 1 of the cluster"
            heard = (f"{why} {cluster_id}.", "A Raft stream ended before its Hello.")
            wait_until(
                lambda: any(one in cluster[1].log_tail(LOG_LINES) for one in heard),
                DEADLINE_S,
                "node 1 has heard it",
            )
        own.restart()


def test_a_controller_that_no_voter_knows_is_refused_by_all(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    both = {"process_roles": "broker,controller"}
    unlisted = stranger(cluster, tmp_path / "unlisted", 5, **both)
    fourth = stranger(cluster, tmp_path / "fourth", 4, **both)
    fourth.options["controller.quorum.voters"] += f",4@{fourth.internal}"
    with undisturbed(cluster), alive(unlisted), alive(fourth):
        ends_with(unlisted, "node.id (5) must be one of controller.quorum.voters (1, 2, 3)")
        sentence = (
            "Node 1 has the voters 1, 2, 3 and this node has 1, 2, 3, 4: set "
            "controller.quorum.voters to the same on all."
        )
        wait_for_log(fourth, sentence)
        assert says(fourth, sentence)
        for node in cluster.running:
            wait_for_log(node, "Node 4 is not among the voters of this node.")


def test_a_second_process_with_the_id_of_a_voter_is_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    active = cluster.active_controller()
    other, witness = cluster.others(active.node_id)
    twin = stranger(cluster, tmp_path / "twin", other.node_id, process_roles="broker,controller")
    usurper = stranger(cluster, tmp_path / "usurper", active.node_id, process_roles="controller")
    with undisturbed(cluster), alive(twin), alive(usurper):
        for second, first in ((twin, other), (usurper, active)):
            sentence = f"Another process is node {first.node_id}, and answers at its address."
            wait_for_log(second, sentence)
            wait_for_log(witness, sentence)
            # It is found out by itself, or as a broker by the controllers.
            ends_with(second, "Another process is ")
            ends_with(second, "another node.id.")
    for first in (active, other):
        lost = f"A newer stream of node {first.node_id} has taken the place of this one."
        assert lost not in first.log_tail(LOG_LINES)


def test_two_processes_on_one_data_directory_are_refused(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    other = stranger(cluster, tmp_path, 3, process_roles="broker,controller")
    other.options["log.dirs"] = str(cluster[3].data_dir)
    with undisturbed(cluster), alive(other):
        ends_with(other, f"{cluster[3].data_dir} is in use by another process")


# ── Certificates ──────────────────────────────────────────────────────────────────────────────


def test_keys_that_others_would_refuse_stop_the_start(guarded: Guarded, tmp_path: Path) -> None:
    authority, other = guarded.authority, Authority(tmp_path, "other")
    trusted = authority.trusted
    wrong = {
        "foreign": (other.keys(name_of(9)), "unable to get local issuer certificate"),
        "expired": (authority.keys(name_of(9), age_days=2), "certificate has expired"),
        "of node 1": (authority.keys(name_of(1)), "not valid for 'ottla-node-9'"),
    }
    nodes = {name: stranger(guarded.cluster, tmp_path / name) for name in wrong}
    with undisturbed(guarded.cluster):
        for name, node in nodes.items():
            node.options.update({KEYS: str(wrong[name][0]), TRUSTED: str(trusted)})
        with alive(nodes["foreign"]), alive(nodes["expired"]), alive(nodes["of node 1"]):
            for name, node in nodes.items():
                ends_with(node, f"{KEYS} would be refused by other nodes: ")
                ends_with(node, wrong[name][1])
                ends_with(node, f"It needs a certificate for ottla-node-9 that {trusted} vouches")


def test_who_cannot_prove_anything_gets_nothing_from_a_cluster_with_certificates(
    guarded: Guarded, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    foreign, plain = (stranger(guarded.cluster, tmp_path / name) for name in ("foreign", "plain"))
    foreign.options.update(keys_of(other, 9))
    with undisturbed(guarded.cluster), alive(foreign), alive(plain):
        wait_for_log(foreign, "CERTIFICATE_VERIFY_FAILED")
        wait_for_log(plain, "does that node expect TLS?")
        assert not foreign.is_ready()
        assert not plain.is_ready()


def test_a_node_speaks_for_itself_only(guarded: Guarded) -> None:
    cluster, authority = guarded.cluster, guarded.authority
    first = authority.tls(1)
    active = cluster.active_controller()
    epoch = cluster[2].status()["broker"]["broker_epoch"]
    with undisturbed(cluster):
        answer = propose(
            active, new_topic_command("forged"), broker_id=2, broker_epoch=epoch, tls=first
        )
        assert answer == Denied(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "Node 1 may not propose in the name of node 2.",
        )
        wait_for_log(active, "Node 1 may not propose in the name of node 2.")


# ── What is no message, and what comes too late ───────────────────────────────────────────────

NO_GRPC = {
    "HTTP/1.1": b"GET / HTTP/1.1\r\n\r\n",
    "TLS": b"\x16\x03\x01" * 100,
    "zeros": bytes(100_000),
    "a Kafka request": b"\x00\x00\x00\x0a" + bytes(10),
}
PICKLED = (
    b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94."
)
CLUSTER_METHODS = ("Register", "Propose", "ReadVersion", "DescribeQuorum", "Follow", "Heartbeats")
METHODS = (RAFT, INTRODUCE, *(f"/{SERVICE}/{name}" for name in CLUSTER_METHODS))
STREAMS = (RAFT, f"/{SERVICE}/Heartbeats")
MIB = 1 << 20


def test_bytes_that_are_no_grpc_disturb_nobody(cluster: RunningCluster) -> None:
    with undisturbed(cluster):
        for node, sent in itertools.product(cluster.running, NO_GRPC.values()):
            where = internal_address(node)
            # It may hang up before it has read all.
            with (
                socket.create_connection((where.host, where.port), DEADLINE_S) as connection,
                suppress(ConnectionError),
            ):
                connection.sendall(sent)
                while connection.recv(MIB):
                    pass


def test_messages_that_cannot_be_read_or_are_too_large_are_refused(cluster: RunningCluster) -> None:
    active = cluster.active_controller()
    # All others have what this one has.
    other = next(node for node in cluster.running if node is not active)
    with undisturbed(cluster):
        for node in (active, other):
            told = asyncio.run(say_nonsense(node))
            for (method, size), code in told.items():
                is_huge = size > 4 * MIB
                wanted = "RESOURCE_EXHAUSTED" if is_huge else "INVALID_ARGUMENT"
                assert code == wanted, (method, size, code)
            for sentence in (
                "A frame of a Raft stream cannot be read.",
                f"A frame of a Raft stream has {3 * MIB} bytes; {2 * MIB} are allowed.",
                "What a member says about itself cannot be read.",
                f"What a member says about itself has {3 * MIB} bytes; 65536 are allowed.",
                "These 4 bytes are no Registration.",
            ):
                wait_for_log(node, sentence)


async def say_nonsense(node: ClusterNode) -> dict[tuple[str, int], str]:
    """Send what is no message to every method of a node; return how each call ended."""
    channels = Channels(None)
    channel = channels.fresh(node.node_id, internal_address(node))
    told = dict[tuple[str, int], str]()

    async def ask(method: str, said: bytes) -> None:
        # Every method can be called as if both sides were to say as much as they like.
        call: Call = channel.stream_stream(method)()
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(said)
            if method not in STREAMS:
                await call.done_writing()
        told[method, len(said)] = (await call.code()).name

    try:
        async with asyncio.timeout(DEADLINE_S):
            sizes = (b"\xff" * 4, PICKLED, b"\xff" * (3 * MIB), b"\xff" * (5 * MIB))
            for method, said in itertools.product(METHODS, sizes):
                await ask(method, said)
    finally:
        await channels.close()
        await channel.close()
    return told


def test_a_command_that_is_too_large_or_none_is_denied(cluster: RunningCluster) -> None:
    active = cluster.active_controller()
    with undisturbed(cluster):
        for said, sentence in (
            (bytes(40_000), "A command has at most 32768 bytes, not 40000; ask for less at once."),
            (PICKLED, "there is no format 128"),
        ):
            answer = at_door(active, methodcaller("propose", said, client="a test"))
            assert isinstance(answer, Denied)
            assert answer.code is ErrorCode.INVALID_REQUEST
            assert sentence in answer.sentence
            wait_for_log(active, sentence)


def test_a_command_of_an_earlier_life_or_a_second_time_has_no_effect(
    cluster: RunningCluster,
) -> None:
    active = cluster.active_controller()
    broker = cluster.others(active.node_id)[0]
    old = broker.status()["broker"]["broker_epoch"]
    broker.restart()
    new = broker.status()["broker"]["broker_epoch"]
    assert new > old
    term = active.status()["quorum"]["term"]

    def ask(command: Command, epoch: int) -> Outcome:
        answer = propose(active, command, broker_id=broker.node_id, broker_epoch=epoch)
        assert isinstance(answer, Outcome), answer
        return answer

    late = ask(new_topic_command("late"), old)
    assert late.is_unknown
    first = ask(TakeProducerIds(10), new)
    assert ask(TakeProducerIds(10), new) == first
    image = image_at(active)
    assert "late" not in image.topics
    assert first.producer_ids is not None
    assert image.next_producer_id == first.producer_ids.stop
    is_same = (cluster.active_controller(), active.status()["quorum"]["term"]) == (active, term)
    assert is_same or not is_calm()
    require_commits(cluster)


def test_only_the_active_controller_takes_commands(cluster: RunningCluster) -> None:
    active = cluster.active_controller()
    epoch = active.status()["broker"]["broker_epoch"]
    with undisturbed(cluster):
        for other in cluster.others(active.node_id):
            answer = propose(
                other, new_topic_command("astray"), broker_id=active.node_id, broker_epoch=epoch
            )
            assert isinstance(answer, NotActive), answer
            assert answer.leader == active.node_id


# ── Lost disks ────────────────────────────────────────────────────────────────────────────────


def quorum_of(node: ClusterNode) -> dict[str, Any]:
    """Return what `ottla quorum` tells."""
    command = [sys.executable, "-m", "ottla", "quorum", "--json"]
    where = ["--bootstrap-server", node.bootstrap]
    done = subprocess.run(
        [*command, *where], check=True, capture_output=True, text=True, timeout=DEADLINE_S
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_one_lost_disk_is_made_good_and_two_are_refused_until_they_are_brought_back(
    tmp_path: Path,
) -> None:
    with running_cluster(tmp_path) as cluster:
        require_commits(cluster)
        cluster[3].kill()
        shutil.rmtree(cluster[3].data_dir)
        cluster[3].restart()
        wait_for_log(cluster[3], "standing=voter")
        told = quorum_of(cluster[3])
        assert [(one["id"], one["voter"]) for one in told["members"]] == [
            *((1, True), (2, True), (3, True))
        ]
        require_commits(cluster)
        before = set(read_topics(cluster[3].bootstrap))

        lost = [cluster[2], cluster[3]]
        for node in lost:
            node.kill()
            node.data_dir.rename(node.directory / "kept")
        for node in lost:
            node.start()
        for node in lost:
            wait_until(node.answers, DEADLINE_S, "it tells how it is")
            wait_until(partial(says, node, "lost its disk"), DEADLINE_S, "it says why")
        too_many = "Too many voters have lost their data directories (2, 3)"
        wait_until(partial(says, cluster[1], too_many), DEADLINE_S, "it says why")
        wait_until(
            lambda: {node.leader() for node in cluster.running} == {None},
            DEADLINE_S,
            "nobody leads without a majority",
        )
        assert not any(node.is_ready() for node in cluster.running)

        for node in lost:
            node.kill()
            shutil.rmtree(node.data_dir)
            (node.directory / "kept").rename(node.data_dir)
        for node in lost:
            node.start()
        cluster.wait_until_ready()
        assert all(before <= set(read_topics(node.bootstrap)) for node in cluster.running)
        require_commits(cluster)
