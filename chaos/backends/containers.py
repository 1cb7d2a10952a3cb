"""The cluster of `compose/` in containers, broken by the engine that runs it.

Kill, stop, pause and unplug are the engine's. Clients go through gates on this machine, as in
`local.py`. What is between nodes depends on what a scenario needs, and on the kernel (`ways.py`):

    cuts only                 nodes dial each other; packets are lost by iptables
    weather, and netem        the same, and packets are delayed and lost by `tc netem`
    weather, and no netem     nodes dial the service `gates`, the same gates in a container of
                              their own; an address behind a gate is its name, always

Whether there is netem is tried once, before the nodes start, in the network of a container beside
theirs: it decides whom they dial. `system` says from then on which it was, and why.

Not here: one process without a container (`local.py`), packets (`cuts.py`, `weather.py`).

G1  the project has a name of its own, and only its containers, networks and volumes are touched
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import docker  # type: ignore[import-not-found,import-untyped,unused-ignore]  # it has no types

from ottla.chaos.backends import dumps, inside
from ottla.chaos.backends.cuts import Cuts, can_cut, lacking
from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.links import CLIENTS, EVERYWHERE
from ottla.chaos.backends.process import uses_of
from ottla.chaos.backends.reserved import HOST, reserve_ports
from ottla.chaos.backends.verifying import problems_in
from ottla.chaos.backends.ways import GatedWays, KernelWays, Ways
from ottla.chaos.backends.weather import Weather, why_no_netem
from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.evidence import FinalRead, ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.ports import HarnessError, LinkFault, Means

START_DEADLINE_S: Final = 120.0
_COMMAND_DEADLINE_S: Final = 180.0
_STOP_S: Final = 40
_NODES: Final = (1, 2, 3)
_DATA: Final = "/var/lib/ottla"
# Where nodes dial each other; as in `compose.yaml`.
_BETWEEN_NODES: Final = {"INTERNAL": 9093, "REPLICATION": 9094}
# The service of `compose.yaml`, and its name on the network.
_GATES: Final = "gates"
# How long a container lasts in which netem is tried, if nobody ends it.
_TRIED_S: Final = 120
_MEANS: Final = frozenset(
    {
        Means.KILL, Means.PAUSE, Means.STOP, Means.CLIENT_LINKS, Means.WIPE, Means.UNPLUG,
        Means.TRACE, Means.DIGEST, Means.OFFLINE, Means.PREPARING,
    }
)  # fmt: skip
_ILL: Final = frozenset({Means.LINKS, Means.WEATHER})


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What a cluster in containers is made of."""

    directory: Path
    # Where `compose.yaml` is.
    compose_file: Path
    project: str
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)
    # Whether more than cuts is done to the ways between nodes.
    has_weather: bool = False


class _Whereabouts:
    """Where the containers of a project are, asked of the engine each time."""

    def __init__(self, engine: Any, project: str) -> None:
        self._engine: Final = engine
        self._project: Final = project

    def container(self, node: int) -> Any:
        return self._engine.containers.get(f"{self._project}-node{node}-1")

    def state(self, node: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.container(node).attrs["State"]
        return found

    def pid(self, node: int) -> int:
        return int(self.state(node)["Pid"])

    def networks(self, node: int) -> Mapping[str, Mapping[str, Any]]:
        """Return what a node is connected to, by name."""
        settings = self.container(node).attrs["NetworkSettings"]
        found: Mapping[str, Mapping[str, Any]] = settings["Networks"]
        return found

    def addresses(self, node: int) -> list[str]:
        own = (one["IPAddress"] for one in self.networks(node).values())
        return [address for address in own if address]


class ContainerBackend:
    """Three containers and their gates; opened once, closed once. See `ports.Backend`."""

    name: Final = "docker"
    nodes: Final = _NODES
    controllers: Final = _NODES

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings: Final = settings
        self._engine: Final = docker.from_env()
        self._links: Final = Gatekeeper(settings.seed)
        self._ports: Final = {node: (_draw_port(), _draw_port()) for node in _NODES}
        self._gates: Final = {
            node: self._links.add(CLIENTS, node, self._ports[node][0]) for node in _NODES
        }
        self._where: Final = _Whereabouts(self._engine, settings.project)
        # Between nodes; by whom they are thinned and delayed is known when those start.
        self._ways: Ways = self._kernel_ways(has_netem=False)
        self._is_decided = not settings.has_weather
        self._paused: Final = set[int]()
        # Of each node that was started, the process of its last life.
        self._pids: Final = dict[int, int]()
        # Networks that nodes were taken off.
        self._unplugged: Final = dict[int, tuple[str, ...]]()
        own = _ILL if settings.has_weather else frozenset({Means.LINKS} if can_cut() else ())
        self.means: Final = _MEANS | own

    @property
    def system(self) -> str:
        image = os.environ.get("NODE_IMAGE", "ottla")
        how = self._ways.how if self._is_decided else "delay and loss between nodes not tried yet"
        return f"the image {image} in containers of Docker ({how})"

    @property
    def project(self) -> str:
        """Return what the engine knows its containers by."""
        return self._settings.project

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        for node in _NODES:
            folder = self._folder(node)
            folder.mkdir(parents=True, exist_ok=True)
            # The user of the container writes its trace there.
            folder.chmod(0o777)
        self._write_override({})
        if self._settings.has_weather:
            self._find_weather()
        self._compose("up", "--detach", *(f"node{node}" for node in _NODES))
        for node in _NODES:
            self._watch(node)
        self.wait_ready(_NODES, START_DEADLINE_S)

    def _find_weather(self) -> None:
        """Decide by what the ways between nodes are delayed and thinned."""
        # Who has no iptables could not cut, and gates can do both.
        why = lacking("nsenter", "iptables", "tc") or self._why_no_netem()
        if why is None:
            self._ways = self._kernel_ways(has_netem=True)
        else:
            self._write_override(self._open_gates(why))
        self._is_decided = True

    def _kernel_ways(self, *, has_netem: bool) -> KernelWays:
        cuts = Cuts(self._where) if can_cut() else None
        return KernelWays(cuts, Weather(self._where) if has_netem else None)

    def _why_no_netem(self) -> str | None:
        """Try it in a container on the network of the nodes; return why not, None: it works."""
        name, lasts = f"{self._settings.project}-tried", ("--entrypoint", "sleep")
        self._compose("run", "--detach", "--name", name, *lasts, _GATES, str(_TRIED_S))
        tried = self._engine.containers.get(name)
        try:
            return why_no_netem(int(tried.attrs["State"]["Pid"]))
        finally:
            tried.remove(force=True)

    def _open_gates(self, why: str) -> dict[int, str]:
        """Start the gates between nodes; return of each node where to dial instead."""
        keeper = Gatekeeper(
            self._settings.seed,
            self._command("run", "--rm", "--no-TTY", "--use-aliases", _GATES),
            host=EVERYWHERE,
            environment=self._environment(),
            # It may have to make the image first.
            answer_s=_COMMAND_DEADLINE_S,
        )
        self._ways = GatedWays(keeper, why)

        def way(source: int, target: int, port: int) -> str:
            gate = keeper.add(source, target, port, f"node{target}")
            return f"node{target}:{port}>{_GATES}:{gate}"

        return {
            source: ";".join(
                way(source, target, port)
                for target in _NODES
                for port in _BETWEEN_NODES.values()
                if target != source
            )
            for source in _NODES
        }

    def _write_override(self, detours: Mapping[int, str]) -> None:
        services = {f"node{node}": self._service(node, detours.get(node)) for node in _NODES}
        # JSON is YAML.
        self._override.write_text(json.dumps({"services": services}, indent=2))

    @property
    def _override(self) -> Path:
        return self._settings.directory / "override.json"

    def _folder(self, node: int) -> Path:
        return self._settings.directory / f"node-{node}"

    def _service(self, node: int, detours: str | None) -> dict[str, Any]:
        advertised = (
            f"INSIDE://node{node}:19092",
            f"OUTSIDE://{HOST}:{self._gates[node]}",
            *(f"{name}://node{node}:{port}" for name, port in _BETWEEN_NODES.items()),
        )
        options = {
            "advertised.listeners": ",".join(advertised),
            "trace.file": "/trace/trace.jsonl",
            **self._settings.options,
        }
        environment = {
            f"OTTLA_{name.upper().replace('.', '_')}": value for name, value in options.items()
        }
        return {
            "restart": "no",
            "environment": environment | ({"OTTLA_DIAL": detours} if detours else {}),
            "volumes": [f"{self._folder(node).resolve()}:/trace"],
        }

    def _environment(self) -> dict[str, str]:
        """Return what `compose.yaml` reads: ports that nobody else has."""
        ports = {f"NODE{node}_PORT": str(own[0]) for node, own in self._ports.items()}
        ports |= {f"NODE{node}_HTTP_PORT": str(own[1]) for node, own in self._ports.items()}
        return ports

    def _command(self, *words: str) -> list[str]:
        return [
            *("docker", "compose", "--progress", "quiet"),
            *("--project-name", self._settings.project),
            *("--file", str(self._settings.compose_file), "--file", str(self._override)),
            *words,
        ]

    def _compose(self, *words: str) -> None:
        done = subprocess.run(
            self._command(*words),
            capture_output=True,
            text=True,
            timeout=_COMMAND_DEADLINE_S,
            check=False,
            env={**os.environ, **self._environment()},
        )
        if done.returncode != 0:
            raise HarnessError(f"docker compose {words[0]} failed: {done.stderr[-500:]}")

    def close(self) -> None:
        self._paused.clear()
        self._links.close()
        self._ways.close()
        if self._override.exists():
            try:
                self._logs = self.log_lines()
            finally:
                self._compose("down", "--volumes", "--remove-orphans", "--timeout", "5")

    def bootstrap(self, node: int) -> str:
        return f"{HOST}:{self._gates[node]}"

    def inside(self, node: int) -> str:
        return f"{HOST}:{self._ports[node][0]}"

    def _http(self, node: int) -> str:
        return f"{HOST}:{self._ports[node][1]}"

    def _container(self, node: int) -> Any:
        return self._where.container(node)

    def _watch(self, node: int) -> None:
        self._pids[node] = pid = self._where.pid(node)
        self._links.watch(node, pid)
        self._ways.began(node, pid)

    def is_running(self, node: int) -> bool:
        return bool(self._where.state(node)["Running"])

    def is_ready(self, node: int) -> bool:
        return node not in self._paused and inside.is_ready(self._http(node))

    def exit_code(self, node: int) -> int | None:
        state = self._where.state(node)
        return None if state["Running"] else int(state["ExitCode"])

    def active_controller(self) -> int | None:
        found = [
            (told[1], node)
            for node in _NODES
            if node not in self._paused
            and (told := inside.controller_of(self._http(node))) is not None
            and told[0] == node
        ]
        return max(found)[1] if found else None

    # -- nodes -----------------------------------------------------------------------------------

    def kill(self, nodes: Sequence[int]) -> None:
        chosen = [node for node in nodes if self.is_running(node)]
        for node in chosen:
            self._container(node).kill("SIGKILL")
        for node in chosen:
            self._container(node).wait(timeout=_STOP_S)

    def stop(self, nodes: Sequence[int]) -> dict[int, int]:
        chosen = [node for node in nodes if self.is_running(node)]
        for node in chosen:
            self._container(node).kill("SIGTERM")
        return {
            node: int(self._container(node).wait(timeout=_STOP_S)["StatusCode"]) for node in chosen
        }

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        if environment:
            raise _cannot(Means.FAILPOINTS)
        self._container(node).start()
        self._watch(node)

    def wait_ready(self, nodes: Sequence[int], deadline_s: float) -> None:
        for node in nodes:

            def holds(node: int = node) -> bool:
                return self.is_ready(node)

            try:
                wait_until(holds, deadline_s, f"node {node} is ready")
            except NeverHappenedError as error:
                told = inside.last_word(self._http(node))
                raise HarnessError(f"{error}; it says {told}") from error

    def pause(self, node: int) -> None:
        self._paused.add(node)
        self._container(node).pause()

    def resume(self, node: int) -> None:
        if self._where.state(node)["Paused"]:
            self._container(node).unpause()
        self._paused.discard(node)

    # -- links -----------------------------------------------------------------------------------

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        self._ways.set(source, target, fault)

    def weather_met(self, source: int, target: int) -> int:
        return self._ways.met(source, target)

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None:
        self._links.set(CLIENTS, node, to_node)
        self._links.set(node, CLIENTS, from_node)

    def unplug(self, node: int) -> None:
        container = self._container(node)
        for name in self._where.networks(node):
            self._engine.networks.get(name).disconnect(container)
            self._unplugged[node] = (*self._unplugged.get(node, ()), name)

    def plug_in(self, node: int) -> None:
        container = self._container(node)
        for name in self._unplugged.pop(node, ()):
            # Others know it by this name; its address may be another one than before.
            self._engine.networks.get(name).connect(container, aliases=[f"node{node}"])
        self._ways.moved(node)

    # -- disks -----------------------------------------------------------------------------------

    def wipe(self, node: int) -> None:
        self._beside(node, ["sh", "-c", f"rm -rf {_DATA}/* {_DATA}/.[!.]*"], user="0:0")

    def _beside(self, node: int, command: list[str], user: str = "") -> bytes:
        """Run a program with the files of a node that is down; return what it printed."""
        container = self._container(node)
        told: bytes = self._engine.containers.run(
            container.attrs["Image"],
            command,
            entrypoint=[],
            volumes_from=[container.id],
            user=user or None,
            remove=True,
            network_disabled=True,
        )
        return told

    # -- looking inside --------------------------------------------------------------------------

    def trace_files(self) -> Sequence[Path]:
        return sorted(self._settings.directory.glob("node-*/trace.jsonl"))

    def replica_prints(self, topics: Mapping[str, int], turn: int) -> list[ReplicaPrint]:
        found = (
            inside.replica_print(self._http(node), Place(topic, partition), turn)
            for topic, partitions in topics.items()
            for partition in range(partitions)
            for node in _NODES
        )
        return [one for one in found if one is not None]

    def verify_offline(self) -> dict[int, list[str]]:
        # The exit code says that something is wrong, and the answer says what.
        command = ["sh", "-c", f"ottla log verify --json {_DATA} || true"]
        return {node: problems_in(json.loads(self._beside(node, command))) for node in _NODES}

    def offline_reads(self, places: Sequence[Place]) -> list[FinalRead]:
        def dump_on(node: int) -> dumps.Dump:
            # It ends with an exit code if it could not tell everything, and has told the rest.
            begin = "ottla log dump --json"
            return lambda arguments: self._beside(
                node, ["sh", "-c", f"{begin} {shlex.join(arguments)} || true"]
            ).decode()

        chosen = _NODES if places else ()
        return [
            read
            for node in chosen
            for read in dumps.offline_reads(node, _DATA, places, dump_on(node))
        ]

    def log_lines(self) -> dict[int, list[tuple[int, str]]]:
        kept: dict[int, list[tuple[int, str]]] | None = getattr(self, "_logs", None)
        if kept is not None:
            return kept
        return {
            node: list(
                enumerate(self._container(node).logs().decode(errors="replace").splitlines(), 1)
            )
            for node in _NODES
        }

    def resources(self) -> dict[int, Mapping[str, Any]]:
        found = dict[int, Mapping[str, Any]]()
        for node, pid in tuple(self._pids.items()):
            try:
                found[node] = uses_of(_node_below(pid), Path(f"/proc/{pid}/root{_DATA}"))
            except OSError:
                # It is down, or we may not look.
                continue
        return found

    # -- what cannot be done to it (see `means`) ---------------------------------------------------

    def cut_power(self, nodes: Sequence[int]) -> None:
        raise _cannot(Means.POWER)

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        raise _cannot(Means.TWIN)

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        raise _cannot(Means.DISK)

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        raise _cannot(Means.MEMORY)

    def data_dir(self, node: int) -> Path:
        raise _cannot(Means.FILES)


def _cannot(means: Means) -> HarnessError:
    return HarnessError(f"the backend docker has no means for this: {means.value}")


def _node_below(pid: int) -> int:
    """Return the node that the first process of a container has started, or that process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else pid


def _draw_port() -> int:
    return reserve_ports(1)[0]
