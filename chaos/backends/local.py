"""A cluster of processes on this machine, with a gate on every way between them.

    client ──▶ gate ──▶ CLIENT of a node             advertised: the gate
    node 1 ──▶ gate 1→2 ──▶ INTERNAL of node 2       dialled there by `OTTLA_DIAL`
           └─▶ gate 1→2 ──▶ REPLICATION of node 2    the same; if brokers they are both

The harness itself goes past the gates (`inside`), and asks over HTTP.

Not here: one process (`process.py`), bytes on their way (`links.py`).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, Final

from ottla.chaos.backends import dumps, inside
from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.links import CLIENTS
from ottla.chaos.backends.process import NodeProcess, surroundings
from ottla.chaos.backends.reserved import HOST, reserve_ports
from ottla.chaos.backends.verifying import verify
from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.evidence import FinalRead, ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.ports import HarnessError, LinkFault, Means
from ottla.proto.options.endpoints import ListenerName

START_DEADLINE_S: Final = 60.0
# How long a second node of the same id may live before it counts as accepted.
_TWIN_DEADLINE_S: Final = 15.0
_LISTENERS: Final = ("CLIENT", "INTERNAL", "REPLICATION", "HTTP")
_VOTERS_MAX: Final = 5
# Quick to notice, so that a scenario takes a minute and not ten (chaos.md C).
PROFILE: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "300",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "group.min.session.timeout.ms": "1000",
    # As many as there are nodes or a few more: each costs every node a log.
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_MEANS: Final = frozenset(Means) - {Means.UNPLUG}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """What a local cluster is made of."""

    directory: Path
    nodes: int = 3
    # Nodes that only vote; without any, the first brokers vote too.
    controllers: int = 0
    seed: int = 0
    # Beside `PROFILE`, and above it.
    options: Mapping[str, str] = field(default_factory=dict)
    # The module to run instead of `ottla`, with its arguments: a build that is broken on purpose.
    program: tuple[str, ...] = ("-m", "ottla")


class LocalBackend:
    """Processes and gates; opened once, closed once. See `ports.Backend`."""

    name: Final = "local"

    def __init__(self, settings: LocalSettings) -> None:
        self._settings: Final = settings
        self.nodes: Final = tuple(range(1, settings.nodes + 1))
        apart = range(settings.nodes + 1, settings.nodes + 1 + settings.controllers)
        self.controllers: Final = tuple(apart) or self.nodes[:_VOTERS_MAX]
        self._all: Final = tuple(sorted({*self.nodes, *self.controllers}))
        self._links: Final = Gatekeeper(settings.seed)
        self._ports: Final = {node: _draw_ports() for node in self._all}
        self._gates: Final = self._open_gates()
        self._processes: Final = {node: self._process_of(node) for node in self._all}
        self._twins: Final = list[subprocess.Popen[bytes]]()

    @property
    def system(self) -> str:
        broken = self._settings.program[2:]
        return f"ottla {version('ottla')}" + (f" broken: {' '.join(broken)}" if broken else "")

    @property
    def means(self) -> frozenset[Means]:
        return _MEANS

    def _open_gates(self) -> dict[tuple[int, int, ListenerName], int]:
        """Return where each gate listens: by who dials, whom, and at which of its listeners."""
        ways = [
            (source, target, name)
            for name, members in (("INTERNAL", self._all), ("REPLICATION", self.nodes))
            for source in members
            for target in members
            if source != target
        ]
        ways += [(CLIENTS, node, "CLIENT") for node in self.nodes]
        return {
            (source, target, name): self._links.add(source, target, self._ports[target][name])
            for source, target, name in ways
        }

    def _process_of(self, node: int) -> NodeProcess:
        directory = self._settings.directory / f"node-{node}"
        detours = [
            f"{HOST}:{self._ports[other][name]}>{HOST}:{gate}"
            for (source, other, name), gate in self._gates.items()
            if source == node
        ]
        return NodeProcess(
            node=node,
            directory=directory,
            command=self._command(self._options_of(node, directory, self._ports[node])),
            environment={"OTTLA_DIAL": ";".join(detours)},
            dice=Random(f"{self._settings.seed}/power/{node}"),
        )

    def _command(self, options: Mapping[str, str]) -> list[str]:
        settings = [f"{name}={value}" for name, value in options.items() if value]
        return [sys.executable, *self._settings.program, "node", "--quiet", *settings]

    def _options_of(self, node: int, directory: Path, ports: Mapping[str, int]) -> dict[str, str]:
        voters = (f"{one}@{HOST}:{self._ports[one]['INTERNAL']}" for one in self.controllers)
        roles = [
            role
            for role, members in (("broker", self.nodes), ("controller", self.controllers))
            if node in members
        ]
        advertised = {}
        if node in self.nodes:
            advertised["advertised.listeners"] = f"CLIENT://{self.bootstrap(node)}"
        return {
            "node.id": str(node),
            "process.roles": ",".join(roles),
            "controller.quorum.voters": ",".join(voters),
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in _LISTENERS),
            **advertised,
            "log.dirs": str(directory / "data"),
            "trace.file": str(directory / "trace.jsonl"),
            **PROFILE,
            **self._settings.options,
        }

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        for node in self._all:
            self.begin(node)
        self.wait_ready(self._all, START_DEADLINE_S)

    def close(self) -> None:
        for process in self._processes.values():
            if process.is_running:
                process.kill()
        for twin in self._twins:
            if twin.poll() is None:
                twin.kill()
                twin.wait()
        for process in self._processes.values():
            if process.process is not None:
                process.wait_ended()
        self._links.close()

    def bootstrap(self, node: int) -> str:
        return f"{HOST}:{self._gates[CLIENTS, node, 'CLIENT']}"

    def inside(self, node: int) -> str:
        return f"{HOST}:{self._ports[node]['CLIENT']}"

    def _http(self, node: int) -> str:
        return f"{HOST}:{self._ports[node]['HTTP']}"

    def is_running(self, node: int) -> bool:
        return self._processes[node].is_running

    def is_ready(self, node: int) -> bool:
        process = self._processes[node]
        return process.is_running and not process.is_paused and inside.is_ready(self._http(node))

    def exit_code(self, node: int) -> int | None:
        return self._processes[node].exit_code

    def active_controller(self) -> int | None:
        """Return whom the newest term names, among those who say that they lead."""
        found = [
            (told[1], node)
            for node in self.controllers
            if self._processes[node].is_running
            and not self._processes[node].is_paused
            and (told := inside.controller_of(self._http(node))) is not None
            and told[0] == node
        ]
        return max(found)[1] if found else None

    # -- nodes -----------------------------------------------------------------------------------

    def kill(self, nodes: Sequence[int]) -> None:
        self._end(nodes, NodeProcess.kill)

    def _end(self, nodes: Sequence[int], how: Callable[[NodeProcess], None]) -> None:
        chosen = [self._processes[node] for node in nodes if self._processes[node].is_running]
        for process in chosen:
            how(process)
        for process in chosen:
            process.wait_ended()

    def cut_power(self, nodes: Sequence[int]) -> None:
        chosen = [self._processes[node] for node in nodes if self._processes[node].is_running]
        for process in chosen:
            process.pull_plug()
        for process in chosen:
            process.require_cut()

    def stop(self, nodes: Sequence[int]) -> dict[int, int]:
        self._end(nodes, NodeProcess.ask_to_stop)
        codes = {node: self._processes[node].exit_code for node in nodes}
        return {node: code for node, code in codes.items() if code is not None}

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        process = self._processes[node]
        process.begin(environment)
        self._links.watch(node, process.pid)

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        original = self._processes[node]
        directory = self._settings.directory / f"twin-{node}-{len(self._twins)}"
        directory.mkdir(parents=True)
        options = self._options_of(node, directory, _draw_ports())
        options["trace.file"] = ""
        if on_same_files:
            options["log.dirs"] = str(original.data_dir)
        with (directory / "node.log").open("ab") as log:
            twin = subprocess.Popen(
                self._command(options),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=surroundings(),
                start_new_session=True,
            )
        self._twins.append(twin)
        try:
            return twin.wait(_TWIN_DEADLINE_S)
        except subprocess.TimeoutExpired:
            twin.kill()
            twin.wait()
            return None

    def wait_ready(self, nodes: Sequence[int], deadline_s: float) -> None:
        for node in nodes:

            def holds(node: int = node) -> bool:
                if not self._processes[node].is_running:
                    raise HarnessError(
                        f"node {node} ended with {self.exit_code(node)} at its start"
                    )
                return self.is_ready(node)

            try:
                wait_until(holds, deadline_s, f"node {node} is ready")
            except NeverHappenedError as error:
                told = inside.last_word(self._http(node))
                raise HarnessError(f"{error}; it says {told}") from error

    def pause(self, node: int) -> None:
        self._processes[node].pause()

    def resume(self, node: int) -> None:
        self._processes[node].resume()

    # -- links -----------------------------------------------------------------------------------

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        self._links.set(source, target, fault)

    def weather_met(self, source: int, target: int) -> int:
        return self._links.met_pieces(source, target)

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None:
        self._links.set(CLIENTS, node, to_node)
        self._links.set(node, CLIENTS, from_node)

    def unplug(self, node: int) -> None:
        raise HarnessError("processes of one machine have no network of their own")

    def plug_in(self, node: int) -> None:
        raise HarnessError("processes of one machine have no network of their own")

    # -- disks, clocks, memory -------------------------------------------------------------------

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        return self._processes[node].set_faults(clauses)

    def data_dir(self, node: int) -> Path:
        return self._processes[node].data_dir

    def wipe(self, node: int) -> None:
        if self.is_running(node):
            raise HarnessError(f"node {node} runs: its files are its own")
        shutil.rmtree(self.data_dir(node))

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        self._processes[node].limit_memory(more_bytes)

    # -- looking inside --------------------------------------------------------------------------

    def trace_files(self) -> Sequence[Path]:
        paths = (process.trace_path for process in self._processes.values())
        return [path for path in paths if path.exists()]

    def replica_prints(self, topics: Mapping[str, int], turn: int) -> list[ReplicaPrint]:
        found = (
            inside.replica_print(self._http(node), Place(topic, partition), turn)
            for topic, partitions in topics.items()
            for partition in range(partitions)
            for node in self.nodes
        )
        return [one for one in found if one is not None]

    def verify_offline(self) -> dict[int, list[str]]:
        return {node: verify(process.data_dir) for node, process in self._processes.items()}

    def offline_reads(self, places: Sequence[Place]) -> list[FinalRead]:
        roots = {node: str(self._processes[node].data_dir) for node in self.nodes if places}
        return [
            read
            for node, root in roots.items()
            for read in dumps.offline_reads(node, root, places, dumps.dump_here)
        ]

    def log_lines(self) -> dict[int, list[tuple[int, str]]]:
        return {node: process.log_lines() for node, process in self._processes.items()}

    def resources(self) -> dict[int, Mapping[str, Any]]:
        found = dict[int, Mapping[str, Any]]()
        for node, process in self._processes.items():
            try:
                if process.is_running:
                    found[node] = process.uses()
            except OSError:
                # It died while we looked.
                continue
        return found


def _draw_ports() -> dict[str, int]:
    return dict(zip(_LISTENERS, reserve_ports(len(_LISTENERS)), strict=True))
