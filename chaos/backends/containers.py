"""The cluster of `compose/` in containers, broken by the engine that runs it.

Kill, stop and pause are the engine's. A way between two nodes is cut by a rule of iptables inside
the network of the one that would receive, so that packets are really lost; that takes root, and
`nsenter`. Clients go through gates, as in `local.py`. Delay and loss between nodes take `tc netem`,
which not every kernel has: it is used where it is there, and `means` says so.

Not here: one process without a container (`local.py`).

G1  the project has a name of its own, and only its containers and volumes are touched
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import docker  # type: ignore[import-not-found,import-untyped,unused-ignore]  # it has no types

from ottla.chaos.backends import inside
from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.links import CLIENTS, HOST, take_port
from ottla.chaos.backends.verifying import problems_in
from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.evidence import ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.ports import WHOLE, HarnessError, LinkFault, Means

START_DEADLINE_S: Final = 120.0
_COMMAND_DEADLINE_S: Final = 180.0
_STOP_S: Final = 40
_NODES: Final = (1, 2, 3)
_DATA: Final = "/var/lib/ottla"
_CUT: Final = LinkFault(is_cut=True)
_MEANS: Final = frozenset(
    {
        Means.KILL, Means.PAUSE, Means.STOP, Means.CLIENT_LINKS, Means.WIPE, Means.TRACE,
        Means.DIGEST, Means.OFFLINE,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What a cluster in containers is made of."""

    directory: Path
    # Where `compose.yaml` is.
    compose_file: Path
    project: str
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


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
        # Ways that are cut: they stay so when a node starts anew.
        self._cut: Final = set[tuple[int, int]]()
        self._paused: Final = set[int]()
        self.means: Final = _MEANS | ({Means.LINKS} if _can_cut() else frozenset())

    @property
    def system(self) -> str:
        image = os.environ.get("NODE_IMAGE", "ottla")
        cuts = "cuts by iptables" if Means.LINKS in self.means else "no cuts between nodes"
        return f"the image {image} in containers of Docker ({cuts})"

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        for node in _NODES:
            folder = self._folder(node)
            folder.mkdir(parents=True, exist_ok=True)
            # The user of the container writes its trace there.
            folder.chmod(0o777)
        override = {"services": {f"node{node}": self._service(node) for node in _NODES}}
        # JSON is YAML.
        self._override.write_text(json.dumps(override, indent=2))
        self._compose("up", "--detach", *(f"node{node}" for node in _NODES))
        for node in _NODES:
            self._watch(node)
        self.wait_ready(_NODES, START_DEADLINE_S)

    @property
    def _override(self) -> Path:
        return self._settings.directory / "override.json"

    def _folder(self, node: int) -> Path:
        return self._settings.directory / f"node-{node}"

    def _service(self, node: int) -> dict[str, Any]:
        advertised = (
            f"INSIDE://node{node}:19092",
            f"OUTSIDE://{HOST}:{self._gates[node]}",
            f"INTERNAL://node{node}:9093",
        )
        options = {
            "advertised.listeners": ",".join(advertised),
            "trace.file": "/trace/trace.jsonl",
            **self._settings.options,
        }
        return {
            "restart": "no",
            "environment": {
                f"OTTLA_{name.upper().replace('.', '_')}": value for name, value in options.items()
            },
            "volumes": [f"{self._folder(node).resolve()}:/trace"],
        }

    def _compose(self, *words: str) -> None:
        ports = {f"NODE{node}_PORT": str(own[0]) for node, own in self._ports.items()}
        ports |= {f"NODE{node}_HTTP_PORT": str(own[1]) for node, own in self._ports.items()}
        done = subprocess.run(
            [
                *("docker", "compose", "--project-name", self._settings.project),
                *("--file", str(self._settings.compose_file), "--file", str(self._override)),
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=_COMMAND_DEADLINE_S,
            check=False,
            env={**os.environ, **ports},
        )
        if done.returncode != 0:
            raise HarnessError(f"docker compose {words[0]} failed: {done.stderr[-500:]}")

    def close(self) -> None:
        self._paused.clear()
        if self._override.exists():
            self._logs = self.log_lines()
            self._compose("down", "--volumes", "--timeout", "5")
        self._links.close()

    def bootstrap(self, node: int) -> str:
        return f"{HOST}:{self._gates[node]}"

    def inside(self, node: int) -> str:
        return f"{HOST}:{self._ports[node][0]}"

    def _http(self, node: int) -> str:
        return f"{HOST}:{self._ports[node][1]}"

    def _container(self, node: int) -> Any:
        return self._engine.containers.get(f"{self._settings.project}-node{node}-1")

    def _state(self, node: int) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._container(node).attrs["State"]
        return found

    def _watch(self, node: int) -> None:
        self._links.watch(node, int(self._state(node)["Pid"]))

    def is_running(self, node: int) -> bool:
        return bool(self._state(node)["Running"])

    def is_ready(self, node: int) -> bool:
        return node not in self._paused and inside.is_ready(self._http(node))

    def exit_code(self, node: int) -> int | None:
        state = self._state(node)
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
        for source, target in self._cut:
            if target == node:
                self._filter("-I", source, target)

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
        if self._state(node)["Paused"]:
            self._container(node).unpause()
        self._paused.discard(node)

    # -- links -----------------------------------------------------------------------------------

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        if fault not in (WHOLE, _CUT):
            raise _cannot(Means.WEATHER)
        way = (source, target)
        if fault.is_cut == (way in self._cut):
            return
        if fault.is_cut:
            self._cut.add(way)
            self._filter("-I", source, target)
        else:
            self._cut.discard(way)
            self._filter("-D", source, target)

    def _filter(self, action: str, source: int, target: int) -> None:
        """Drop, or stop dropping, what comes from one node, in the network of another."""
        networks = self._container(source).attrs["NetworkSettings"]["Networks"]
        pid = int(self._state(target)["Pid"])
        for network in networks.values():
            if not network["IPAddress"] or not pid:
                continue
            rule = ["iptables", action, "INPUT", "--source", network["IPAddress"], "-j", "DROP"]
            done = subprocess.run(
                ["nsenter", "--target", str(pid), "--net", *rule],
                capture_output=True,
                text=True,
                timeout=_COMMAND_DEADLINE_S,
                check=False,
            )
            # A node that has started anew has no rules to take away.
            if done.returncode != 0 and action == "-I":
                raise HarnessError(f"{' '.join(rule)} failed: {done.stderr.strip()}")

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None:
        self._links.set(CLIENTS, node, to_node)
        self._links.set(node, CLIENTS, from_node)

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
        return {}

    # -- what cannot be done to it (see `means`) ---------------------------------------------------

    def cut_power(self, nodes: Sequence[int]) -> None:
        raise _cannot(Means.POWER)

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        raise _cannot(Means.TWIN)

    def set_faults(self, node: int, clauses: Sequence[str]) -> None:
        raise _cannot(Means.DISK)

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        raise _cannot(Means.MEMORY)

    def data_dir(self, node: int) -> Path:
        raise _cannot(Means.FILES)


def _cannot(means: Means) -> HarnessError:
    return HarnessError(f"the backend docker has no means for this: {means.value}")


def _can_cut() -> bool:
    return os.geteuid() == 0 and bool(shutil.which("nsenter")) and bool(shutil.which("iptables"))


def _draw_port() -> int:
    with take_port() as taken:
        port: int = taken.getsockname()[1]
        return port
