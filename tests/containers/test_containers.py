"""What `docker compose up` gives: a cluster that is soon ready, and that every client finds."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

from ottla.chaos.backends.reserved import reserve_ports
from tests.containers import stranger
from tests.containers.engine import COMPOSE_FILE, NODES, ContainerCluster
from tests.integration.nodes import wait_until

UP_S_MAX = 10.0
TRIES = 3
IMAGE_BYTES_ADDED_MAX = 100 * 10**6
RSS_BYTES_MAX = 150 * 10**6


def test_it_is_ready_in_less_than_ten_seconds(cluster: ContainerCluster) -> None:
    """The best of three: what else a machine does may slow one start down, but not all."""
    took = [cluster.took_s]
    while min(took) >= UP_S_MAX and len(took) < TRIES:
        cluster.down()
        cluster.up()
        took.append(cluster.took_s)
    told = ", ".join(f"{one:.1f} s" for one in took)
    print(f"\nfrom `docker compose up` to three ready nodes: {told}")
    assert min(took) < UP_S_MAX


def test_its_image_and_its_nodes_are_small(cluster: ContainerCluster) -> None:
    layers = cluster.engine("history", "--no-trunc", "--format", "{{json .}}", cluster.image)
    size = cluster.engine.inspect(cluster.image, ".Size")
    base = cluster.engine.inspect("python:3.11-slim", ".Size")
    print(f"\nimage: {size / 1e6:.0f} MB, of which Ottla {(size - base) / 1e6:.0f} MB")
    assert size - base < IMAGE_BYTES_ADDED_MAX, layers
    for node in NODES:
        _, told = cluster.page(node, "/metrics")
        found = re.search(r"^process_resident_memory_bytes ([0-9.e+]+)$", told, re.MULTILINE)
        assert found is not None, told[:1000]
        rss = float(found[1])
        print(f"node {node}: {rss / 1e6:.0f} MB resident")
        assert rss < RSS_BYTES_MAX


def test_clients_on_this_machine_and_in_containers_find_all_brokers(
    cluster: ContainerCluster,
) -> None:
    stranger.create(cluster.bootstrap, "greetings")
    outside = [f"{number:06}" for number in range(100)]
    assert sorted(stranger.write(cluster.bootstrap, "greetings", outside)) == outside
    ports = {node: f"localhost:{cluster.ports[f'NODE{node}_PORT']}" for node in NODES}
    assert stranger.brokers(cluster.bootstrap) == ports
    said = cluster.run(
        *("-", "node2:19092", "greetings", "100", "100"),
        options=("--entrypoint", "python"),
        stdin=Path(stranger.__file__).read_text(),
    )
    assert said.code == 0, said.text
    told = json.loads(said.out)
    assert told["brokers"] == {str(node): f"node{node}:19092" for node in NODES}
    everything = [f"{number:06}" for number in range(200)]
    assert sorted(told["acknowledged"]) == everything[100:]
    assert sorted(told["read"]) == everything
    assert sorted(stranger.read(cluster.bootstrap, "greetings")) == everything


def test_the_command_works_inside_a_node(cluster: ContainerCluster) -> None:
    said = cluster.engine.try_(
        *("exec", cluster.container(1), "ottla", "quorum"),
        *("--bootstrap-server", "node1:19092"),
    )
    assert said.code == 0, said.text


def test_make_up_says_where_to_begin_and_make_status_how_it_is(cluster: ContainerCluster) -> None:
    said = cluster.script("up")
    assert said.code == 0, said.text
    first = f"Ottla is ready: bootstrap.servers=localhost:{cluster.ports['NODE1_PORT']}\n"
    assert said.out.startswith(first)
    assert f"in containers of the network {cluster.network}: " in said.out
    said = cluster.script("status")
    assert all(cluster.container(node) in said.out for node in NODES), said.text
    assert "healthy" in said.out


def test_a_fourth_node_joins_as_the_readme_says(cluster: ContainerCluster, tmp_path: Path) -> None:
    readme = (COMPOSE_FILE.parent / "README.md").read_text()
    (block,) = re.findall(r"```yaml\n(services:\n  node4:\n.*?)```", readme, re.DOTALL)
    port, http_port = reserve_ports(2)
    block = block.replace("file: compose.yaml", f"file: {COMPOSE_FILE}")
    block = block.replace("9095", str(port)).replace("9104", str(http_port))
    override = tmp_path / "compose.override.yaml"
    override.write_text(block)
    cluster.compose("-f", str(override), "up", "--detach", "--no-build", "node4")
    try:
        wait_until(
            lambda: stranger.brokers(cluster.bootstrap).get(4) == f"localhost:{port}",
            60,
            "clients on this machine are told of node 4",
        )
    finally:
        cluster.compose("-f", str(override), "rm", "--stop", "--force", "--volumes", "node4")
        cluster.engine("volume", "rm", cluster.volume(4))


def test_a_node_is_nobody_on_a_disk_that_it_cannot_write(cluster: ContainerCluster) -> None:
    said = cluster.engine.try_("exec", cluster.container(1), "sh", "-c", "id -u; touch /opt/x")
    assert said.out.strip() == "10001"
    assert "Read-only file system" in said.error
    assert cluster.engine.inspect(cluster.container(1), ".HostConfig.Init") is True
    assert cluster.engine.inspect(cluster.container(1), ".HostConfig.Memory") == 2**30


def test_every_line_of_the_log_is_json(cluster: ContainerCluster) -> None:
    for node in NODES:
        lines = cluster.log_lines(node)
        assert lines
        for line in lines:
            assert json.loads(line)["event"]


def test_docker_knows_whether_a_node_is_ready_and_why_not(cluster: ContainerCluster) -> None:
    name = cluster.container(3)
    wait_until(
        lambda: cluster.engine.inspect(name, ".State.Health.Status") == "healthy",
        60,
        "the engine calls node 3 healthy",
    )
    cluster.engine("stop", cluster.container(1), cluster.container(2))
    try:
        wait_until(
            lambda: "controller" in _last_check(cluster, 3) and _code(cluster, 3) == 1,
            60,
            "the health check says that there is no controller",
        )
    finally:
        cluster.engine("start", cluster.container(1), cluster.container(2))
    cluster.wait_until_ready()


def _last_check(cluster: ContainerCluster, node: int) -> str:
    checks = cluster.engine.inspect(cluster.container(node), ".State.Health.Log")
    return str(checks[-1]["Output"])


def _code(cluster: ContainerCluster, node: int) -> int:
    checks = cluster.engine.inspect(cluster.container(node), ".State.Health.Log")
    return int(checks[-1]["ExitCode"])


def test_prometheus_scrapes_every_node(cluster: ContainerCluster) -> None:
    where = cluster.ports["PROMETHEUS_PORT"]
    wait_until(lambda: _up(where) == dict.fromkeys(NODES, "1"), 60, "all nodes are scraped")


def _up(port: int) -> dict[int, str]:
    url = f"http://127.0.0.1:{port}/api/v1/query?query=up%7Bjob%3D%22ottla%22%7D"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return {}
    return {int(one["metric"]["instance"][4]): one["value"][1] for one in found}
