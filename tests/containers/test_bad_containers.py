"""A container that cannot be a node stops, with a sentence that says what to change."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

from ottla.chaos.backends.reserved import reserve_ports
from tests.containers.engine import ContainerCluster, Said
from tests.integration.nodes import wait_until

VOTERS: Final = "OTTLA_CONTROLLER_QUORUM_VOTERS=1@node1:9093,2@node2:9093,3@node3:9093"
LISTENERS: Final = "OTTLA_LISTENERS=INSIDE://:19092,INTERNAL://:9093"
ADVERTISED: Final = "OTTLA_ADVERTISED_LISTENERS=INSIDE://other:19092,INTERNAL://other:9093"


def _environment(*settings: str) -> tuple[str, ...]:
    return tuple(word for one in settings for word in ("--env", one))


def _sentence(said: Said) -> str:
    """Return why a node ended: the last line of its log, and the only one that says so."""
    lines = [json.loads(line) for line in said.text.splitlines()]
    (ended,) = [line for line in lines if line["event"] == "node_ended"]
    assert ended is lines[-1], said.text
    assert ended["exit_code"] == said.code
    return str(ended["reason"])


def test_a_typo_in_a_variable_is_named_with_what_was_meant(cluster: ContainerCluster) -> None:
    said = cluster.run(options=_environment("OTTLA_LISTNERS=CLIENT://:9092"))
    assert said.code == 2
    assert _sentence(said) == (
        'unknown option "listners" (environment OTTLA_LISTNERS): did you mean OTTLA_LISTENERS?'
    )


def test_a_port_that_is_taken_is_named(cluster: ContainerCluster) -> None:
    said = cluster.run(
        options=(
            *("--network", f"container:{cluster.container(1)}"),
            *_environment("OTTLA_LISTENERS=CLIENT://127.0.0.1:19092"),
        )
    )
    assert said.code == 2
    assert _sentence(said).startswith("cannot listen on 127.0.0.1:19092: Address already in use. ")


def test_a_port_of_this_machine_that_is_taken_is_named(cluster: ContainerCluster) -> None:
    taken = str(cluster.ports["NODE1_PORT"])
    others = dict(zip(cluster.ports, map(str, reserve_ports(len(cluster.ports))), strict=True))
    other = {**others, "NODE1_PORT": taken, "COMPOSE_PROJECT_NAME": f"{cluster.project}-other"}
    try:
        said = cluster.script("up", **other)
    finally:
        cluster.script("down", VOLUMES="1", **other)
    assert said.code == 1
    assert f"127.0.0.1:{taken}" in said.error
    assert said.error.splitlines()[-1] == (
        "make: a port is taken. Stop what listens there, or choose others: NODE1_PORT=… make up "
        "(compose/README.md lists them)."
    )


def test_make_up_says_why_a_node_does_not_come_up(
    cluster: ContainerCluster, tmp_path: Path
) -> None:
    typo = tmp_path / "typo.yaml"
    typo.write_text('services: {node2: {environment: {OTTLA_LISTNERS: "x"}}}\n')
    other = {
        **dict(zip(cluster.ports, map(str, reserve_ports(len(cluster.ports))), strict=True)),
        "COMPOSE_PROJECT_NAME": f"{cluster.project}-other",
        "COMPOSE_FILE": f"compose.yaml:{typo}",
    }
    try:
        said = cluster.script("up", WAIT_S="30", **other)
    finally:
        cluster.script("down", VOLUMES="1", **other)
    assert said.code == 1
    assert "make: these are not ready:\n" in said.error
    assert (
        'unknown option "listners" (environment OTTLA_LISTNERS): did you mean OTTLA_LISTENERS?'
    ) in said.error
    # The others say for whom they wait.
    assert re.search(r"other-node1-1 +running: .*\b2\b", said.error), said.error


def test_a_volume_that_cannot_be_written_is_named(cluster: ContainerCluster) -> None:
    said = cluster.run(options=("--tmpfs", "/var/lib/ottla:uid=0,gid=0,mode=0755"))
    assert said.code == 1
    told = _sentence(said)
    assert "The data directory /var/lib/ottla cannot be used" in told
    assert "let the user 10001 write there" in told


def test_a_volume_of_another_cluster_is_refused(cluster: ContainerCluster) -> None:
    """A voter knows its cluster from its journal, a broker only from its volume: both are asked."""
    volume = f"{cluster.project}_stray"
    cluster.engine("volume", "create", volume)
    mounted = ("--volume", f"{volume}:/var/lib/ottla")
    try:
        # A cluster of one, which gives the volume its identity.
        alone = cluster.engine(
            *("run", "--detach", "--network", cluster.network, *mounted),
            *_environment("OTTLA_NODE_ID=4"),
            cluster.image,
        )
        try:
            wait_until(
                lambda: "node_serving" in cluster.engine.try_("logs", alone).text,
                60,
                "the other cluster serves",
            )
        finally:
            cluster.engine("stop", alone)
            cluster.engine("rm", alone)
        said = cluster.run(
            options=(
                *mounted,
                *_environment("OTTLA_NODE_ID=4", "OTTLA_PROCESS_ROLES=broker"),
                *_environment(VOTERS, LISTENERS, ADVERTISED),
            )
        )
        assert said.code == 2, said.text
        told = _sentence(said)
        assert told.startswith("The controllers are of another cluster than this node")
        assert "Correct controller.quorum.voters, or give this node a data directory" in told
    finally:
        cluster.engine("volume", "rm", volume)


def test_a_second_node_of_the_same_id_is_refused(cluster: ContainerCluster) -> None:
    said = cluster.run(
        options=_environment("OTTLA_NODE_ID=2", VOTERS, LISTENERS, ADVERTISED),
    )
    assert said.code == 2, said.text
    told = _sentence(said)
    assert told.startswith("Another process is ")
    assert "Stop that process, or give this " in told
    assert "another node.id" in told
    cluster.wait_until_ready()


def test_a_node_that_is_started_again_and_again_says_the_same_each_time(
    cluster: ContainerCluster,
) -> None:
    """`restart: unless-stopped` starts it again, and waits twice as long each time."""
    name = cluster.engine(
        *("run", "--detach", "--restart", "unless-stopped"),
        *_environment("OTTLA_NODE_ID=one"),
        cluster.image,
    )
    try:
        wait_until(
            lambda: cluster.engine.inspect(name, ".RestartCount") >= 2, 60, "it is started again"
        )
        assert cluster.engine.inspect(name, ".State.ExitCode") in (0, 2)
        lines = cluster.engine.try_("logs", name).text.splitlines()
        assert len(lines) >= 2
        assert {json.loads(line)["reason"] for line in lines} == {
            'node.id must be a whole number; it is "one" (environment OTTLA_NODE_ID).'
        }
    finally:
        cluster.engine("rm", "--force", name)
