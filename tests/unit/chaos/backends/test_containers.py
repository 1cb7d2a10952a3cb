"""The cluster in containers, as far as it goes without an engine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ottla.chaos.backends import containers
from ottla.chaos.backends.choose import open_backend
from ottla.chaos.backends.containers import ContainerBackend, ContainerSettings
from ottla.chaos.ports import Backend, HarnessError, LinkFault, Means
from ottla.chaos.scenarios import load
from ottla.proto.errors import ConfigError
from ottla.proto.options.endpoints import Address
from ottla.proto.options.load import advertised_of, listeners_of
from ottla.proto.options.load import load as read_options


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

    def __init__(self, name: str, removed: list[str]) -> None:
        self.name = name
        self.removed = removed
        self.attrs: dict[str, Any] = {
            "State": {"Pid": 7, "Running": True},
            "NetworkSettings": {"Networks": {"p_default": {"IPAddress": "10.0.0.1"}}},
        }

    def remove(self, force: bool) -> None:
        assert force
        self.removed.append(self.name)


class FakeEngine:
    """Containers and one network, each by its name."""

    def __init__(self) -> None:
        self.network = FakeNetwork()
        self.removed = list[str]()
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
        return self.made.setdefault(name, FakeContainer(name, self.removed))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    made = FakeEngine()
    monkeypatch.setattr("ottla.chaos.backends.containers.docker.from_env", lambda: made)
    return made


class FakeKeeper:
    """Gates that only write down what is asked of them."""

    def __init__(self) -> None:
        self.story = list[tuple[Any, ...]]()

    def add(self, *way: Any) -> int:
        self.story.append(("add", *way))
        return 40_000 + len(self.story)

    def set(self, *way: Any) -> None:
        self.story.append(("set", *way))

    def met_pieces(self, source: int, target: int) -> int:
        return 10 * source + target

    def watch(self, node: int, pid: int) -> None:
        self.story.append(("watch", node, pid))

    def close(self) -> None:
        self.story.append(("close",))


class Stage:
    """A cluster that starts on paper: what compose is told, and what the kernel offers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told = list[tuple[str, ...]]()
        self.why: str | None = None
        self.lacking: str | None = None
        self.gates = FakeKeeper()
        self.tried = list[int]()
        monkeypatch.setattr(ContainerBackend, "_compose", self._compose)
        monkeypatch.setattr(ContainerBackend, "wait_ready", lambda *_: None)
        monkeypatch.setattr(containers, "why_no_netem", self._try)
        monkeypatch.setattr(containers, "lacking", lambda *_: self.lacking)
        monkeypatch.setattr(containers, "can_cut", lambda: True)
        monkeypatch.setattr(containers, "Gatekeeper", self._keeper)

    def _compose(self, *words: Any) -> None:
        self.told.append(tuple(map(str, words[-3:] if words[0] == "run" else words[:1])))

    def _try(self, pid: int) -> str | None:
        self.tried.append(pid)
        return self.why

    def _keeper(self, seed: int, *command: Any, **_: Any) -> FakeKeeper:
        # Those of clients are given no command.
        return self.gates if command else FakeKeeper()


@pytest.fixture
def stage(engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def backend_of(tmp_path: Path, *, has_weather: bool) -> ContainerBackend:
    return ContainerBackend(
        ContainerSettings(
            directory=tmp_path,
            compose_file=Path("compose/compose.yaml"),
            project="p",
            has_weather=has_weather,
        )
    )


def detour_of(tmp_path: Path, node: int) -> str | None:
    told = json.loads((tmp_path / "override.json").read_text())
    found: str | None = told["services"][f"node{node}"]["environment"].get("OTTLA_DIAL")
    return found


def test_where_the_kernel_offers_netem_nodes_dial_each_other(
    engine: FakeEngine, stage: Stage, tmp_path: Path
) -> None:
    backend = backend_of(tmp_path, has_weather=True)
    assert "not tried yet" in backend.system
    backend.start()
    told = "(cuts between nodes by iptables, delay and loss by tc netem)"
    assert backend.system.endswith(told)
    assert stage.tried == [7]
    assert engine.removed == ["p-tried"]
    assert stage.told == [("sleep", "gates", "120"), ("up",)]
    assert (detour_of(tmp_path, 1), stage.gates.story) == (None, [])


def test_nodes_tell_each_other_their_names_and_the_ports_of_compose(
    stage: Stage, tmp_path: Path
) -> None:
    backend_of(tmp_path, has_weather=False).start()
    told = json.loads((tmp_path / "override.json").read_text())["services"]["node2"]["environment"]
    given = re.search(r"OTTLA_LISTENERS: (\S+)", Path("compose/compose.yaml").read_text())
    assert given is not None
    options = read_options(environment={"OTTLA_LISTENERS": given[1], **told})
    for name in ("INTERNAL", "REPLICATION"):
        assert advertised_of(options)[name] == Address("node2", listeners_of(options)[name].port)


@pytest.mark.parametrize("is_tried", [True, False])
def test_where_it_does_not_or_a_program_is_missing_nodes_dial_gates(
    engine: FakeEngine, stage: Stage, tmp_path: Path, is_tried: bool
) -> None:
    stage.why = "the kernel does not offer it (no)"
    stage.lacking = None if is_tried else "there is no tc here"
    backend = backend_of(tmp_path, has_weather=True)
    backend.start()
    why = "the kernel does not offer it (no)" if is_tried else "there is no tc here"
    told = f"(cuts, delay and loss between nodes by gates, not by tc netem: {why})"
    assert backend.system.endswith(told)
    assert (stage.tried, engine.removed) == (([7], ["p-tried"]) if is_tried else ([], []))
    assert detour_of(tmp_path, 3) == (
        "node1:9093>gates:40009;node1:9094>gates:40010;"
        "node2:9093>gates:40011;node2:9094>gates:40012"
    )
    backend.set_link(1, 2, LinkFault(delay_ms=5))
    assert stage.gates.story[-4:] == [
        *(("watch", node, 7) for node in (1, 2, 3)),
        ("set", 1, 2, LinkFault(delay_ms=5)),
    ]
    assert backend.weather_met(2, 3) == 23


def test_a_container_in_which_it_was_tried_goes_also_when_that_failed(
    engine: FakeEngine, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pid: int) -> str | None:
        raise HarnessError("no")

    monkeypatch.setattr(containers, "why_no_netem", fail)
    with pytest.raises(HarnessError, match="no"):
        backend_of(tmp_path, has_weather=True).start()
    assert engine.removed == ["p-tried"]


def test_where_no_weather_is_needed_none_is_looked_for(stage: Stage, tmp_path: Path) -> None:
    backend = backend_of(tmp_path, has_weather=False)
    backend.start()
    assert backend.system.endswith("(cuts between nodes by iptables)")
    assert stage.told == [("up",)]


@pytest.mark.usefixtures("engine")
def test_what_is_needed_decides_whether_there_is_weather(tmp_path: Path) -> None:
    for needs in (frozenset({Means.WEATHER}), frozenset({Means.LINKS})):
        backend: Backend = open_backend("docker", tmp_path, needs=needs)
        assert (Means.WEATHER in backend.means) is (Means.WEATHER in needs)
        backend.close()


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
    backend = backend_of(tmp_path, has_weather=False)
    try:
        backend.unplug(2)
        backend.plug_in(2)
        backend.plug_in(2)
        backend.plug_in(1)
    finally:
        backend.close()
    assert engine.network.story == [("off", "p-node2-1"), ("on", "p-node2-1", "node2")]


@pytest.mark.usefixtures("engine")
def test_weather_that_nobody_asked_for_is_refused(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, has_weather=False)
    try:
        with pytest.raises(HarnessError, match="cannot fare so here"):
            backend.set_link(1, 2, LinkFault(delay_ms=5))
    finally:
        backend.close()


@pytest.mark.usefixtures("engine")
def test_nodes_that_are_gone_use_nothing(tmp_path: Path) -> None:
    backend = backend_of(tmp_path, has_weather=False)
    try:
        assert backend.resources() == {}
    finally:
        backend.close()
