"""The cluster in containers, as far as it goes without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.chaos.backends.choose import open_backend
from ottla.chaos.backends.containers import ContainerBackend, ContainerSettings
from ottla.chaos.ports import Backend, HarnessError, LinkFault, Means
from ottla.chaos.scenarios import load
from ottla.proto.errors import ConfigError


class FakeNetwork:
    """Writes down who comes and goes."""

    def __init__(self) -> None:
        self.story = list[tuple[Any, ...]]()

    def disconnect(self, container: Any) -> None:
        self.story.append(("off", container.name))
        container.attrs["NetworkSettings"]["Networks"] = {}

    def connect(self, container: Any, aliases: list[str]) -> None:
        self.story.append(("on", container.name, *aliases))


class FakeContainer:
    """One that runs, on one network."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attrs: dict[str, Any] = {
            "State": {"Pid": 7, "Running": True},
            "NetworkSettings": {"Networks": {"p_default": {"IPAddress": "10.0.0.1"}}},
        }


class FakeEngine:
    """Containers and one network, each by its name."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.made = dict[str, FakeContainer]()

    @property
    def containers(self) -> Any:
        return self

    @property
    def networks(self) -> Any:
        return self

    def get(self, name: str) -> Any:
        if name == "p_default":
            return self.network
        return self.made.setdefault(name, FakeContainer(name))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    made = FakeEngine()
    monkeypatch.setattr("ottla.chaos.backends.containers.docker.from_env", lambda: made)
    return made


def backend_of(tmp_path: Path, *, has_gates: bool) -> ContainerBackend:
    return ContainerBackend(
        ContainerSettings(
            directory=tmp_path,
            compose_file=Path("compose/compose.yaml"),
            project="p",
            has_gates=has_gates,
        )
    )


@pytest.mark.usefixtures("engine")
def test_there_are_gates_between_nodes_where_weather_is_needed(tmp_path: Path) -> None:
    told = list[tuple[bool, str]]()
    for needs in (frozenset({Means.WEATHER}), frozenset({Means.LINKS})):
        backend: Backend = open_backend("docker", tmp_path, needs=needs)
        told.append((Means.WEATHER in backend.means, backend.system.partition("(")[2]))
        backend.close()
    assert told[0] == (True, "cuts, delay and loss between nodes by gates, not by netem)")
    assert told[1][0] is False
    assert "gates" not in told[1][1]


@pytest.mark.usefixtures("engine")
def test_no_two_runs_share_a_project(tmp_path: Path) -> None:
    found = set[str]()
    for _ in range(2):
        backend = open_backend("docker", tmp_path)
        assert isinstance(backend, ContainerBackend)
        found.add(backend.project)
        backend.close()
    assert len(found) == 2


def test_other_clusters_than_the_one_of_compose_are_refused(tmp_path: Path) -> None:
    for nodes, controllers in ((5, 0), (3, 3)):
        with pytest.raises(ConfigError, match="three nodes"):
            open_backend("docker", tmp_path, nodes=nodes, controllers=controllers)


def test_every_scenario_for_containers_fits_the_cluster_of_compose() -> None:
    rows = [one for one in load().values() if "docker" in one.backends]
    assert {(one.nodes, one.controllers) for one in rows} == {(3, 0)}


def test_a_node_goes_off_its_network_and_comes_back_by_its_name(
    engine: FakeEngine, tmp_path: Path
) -> None:
    backend = backend_of(tmp_path, has_gates=False)
    try:
        backend.unplug(2)
        backend.plug_in(2)
        backend.plug_in(2)
        backend.plug_in(1)
    finally:
        backend.close()
    assert engine.network.story == [("off", "p-node2-1"), ("on", "p-node2-1", "node2")]


@pytest.mark.usefixtures("engine")
def test_without_gates_there_is_no_weather(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, has_gates=False)
    try:
        with pytest.raises(HarnessError, match="has no means for this: delaying"):
            backend.set_link(1, 2, LinkFault(delay_ms=5))
    finally:
        backend.close()


@pytest.mark.usefixtures("engine")
def test_nodes_that_are_gone_use_nothing(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, has_gates=False)
    try:
        assert backend.resources() == {}
    finally:
        backend.close()
