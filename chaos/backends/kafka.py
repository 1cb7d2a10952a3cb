"""Apache Kafka as processes of this machine: three nodes that are brokers and controllers.

It takes Java and Kafka's jars; where they are is said by the environment:

    KAFKA_CLASS_PATH   the class path of Kafka's server, as Maven prints it

Its clients go through gates; its nodes do not, because Kafka gives one address of a broker to all
others. It tells no trace and no batches, so that the rows that need them are not judged.

Not here: our own nodes (`local.py`).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ottla.chaos.backends.gatekeeper import Gatekeeper
from ottla.chaos.backends.links import CLIENTS
from ottla.chaos.backends.process import NodeProcess, surroundings
from ottla.chaos.backends.reserved import HOST, reserve_ports
from ottla.chaos.clock import NeverHappenedError, wait_until
from ottla.chaos.evidence import FinalRead, ReplicaPrint
from ottla.chaos.history import Place
from ottla.chaos.ports import HarnessError, LinkFault, Means
from ottla.clients.connection import Connection
from ottla.proto.errors import ConfigError, OttlaError
from ottla.proto.kafka.apis import METADATA

CLASS_PATH_KEY: Final = "KAFKA_CLASS_PATH"
START_DEADLINE_S: Final = 120.0
_FORMAT_DEADLINE_S: Final = 90.0
_ANSWER_S: Final = 2.0
_SERVER: Final = "kafka.Kafka"
_STORAGE_TOOL: Final = "kafka.tools.StorageTool"
# Any 16 bytes will do.
_CLUSTER_ID: Final = "b3R0bGEtY2hhb3MtMDAwMQ"
_JAR: Final = re.compile(r"kafka_2\.13-([0-9.]+)\.jar")
_LISTENERS: Final = ("PLAINTEXT", "INSIDE", "CONTROLLER")
# Small machines, and the same patience as our own nodes have in these runs.
PROFILE: Final = {
    "broker.heartbeat.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "300",
    "controller.quorum.election.timeout.ms": "1000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "auto.create.topics.enable": "false",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "background.threads": "2",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.cleaner.backoff.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "4194304",
}
_JVM: Final = (
    "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto",
)  # fmt: skip
# Two phases (KIP-939) are off here, and behind versions that Kafka 4.3 calls unstable.
_MEANS: Final = frozenset(
    {Means.KILL, Means.PAUSE, Means.STOP, Means.CLIENT_LINKS, Means.FILES, Means.WIPE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSettings:
    """What a cluster of Kafka is made of."""

    directory: Path
    class_path: str
    nodes: int = 3
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=dict)


def class_path_of(environ: Mapping[str, str]) -> str:
    """Return where Kafka's jars are, or raise `ConfigError`."""
    found = environ.get(CLASS_PATH_KEY, "")
    if not found or shutil.which("java") is None:
        raise ConfigError(
            f"The backend kafka needs `java`, and {CLASS_PATH_KEY} with Kafka's jars."
        )
    return found


class KafkaBackend:
    """Processes of Java; opened once, closed once. See `ports.Backend`."""

    name: Final = "kafka"
    means: Final = _MEANS

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings: Final = settings
        self.nodes: Final = tuple(range(1, settings.nodes + 1))
        self.controllers: Final = self.nodes
        self._links: Final = Gatekeeper(settings.seed)
        self._ports: Final = {node: _draw_ports() for node in self.nodes}
        self._gates: Final = {
            node: self._links.add(CLIENTS, node, self._ports[node]["PLAINTEXT"])
            for node in self.nodes
        }
        self._processes: Final = {node: self._process_of(node) for node in self.nodes}

    @property
    def system(self) -> str:
        found = _JAR.search(self._settings.class_path)
        return f"Apache Kafka {found[1] if found else 'of an unknown version'}"

    def _java(self, program: str) -> list[str]:
        return ["java", *_JVM, "-cp", self._settings.class_path, program]

    def _process_of(self, node: int) -> NodeProcess:
        directory = self._settings.directory / f"node-{node}"
        return NodeProcess(
            node=node,
            directory=directory,
            command=[*self._java(_SERVER), str(directory / "server.properties")],
            environment={},
            dice=None,
        )

    def _options_of(self, node: int) -> dict[str, str]:
        ports = self._ports[node]
        voters = (f"{one}@{HOST}:{self._ports[one]['CONTROLLER']}" for one in self.nodes)
        advertised = (
            f"PLAINTEXT://{HOST}:{self._gates[node]}",
            f"INSIDE://{HOST}:{ports['INSIDE']}",
        )
        return {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "INSIDE",
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in _LISTENERS),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in _LISTENERS),
            "log.dirs": str(self.data_dir(node)),
            **PROFILE,
            **self._settings.options,
        }

    # -- its life --------------------------------------------------------------------------------

    def start(self) -> None:
        for node in self.nodes:
            self._format(node)
            self.begin(node)
        self.wait_ready(self.nodes, START_DEADLINE_S)

    def _format(self, node: int) -> None:
        directory = self._settings.directory / f"node-{node}"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / "server.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in self._options_of(node).items()))
        done = subprocess.run(
            [
                *self._java(_STORAGE_TOOL),
                *("format", "-t", _CLUSTER_ID, "-c", str(path), "--ignore-formatted"),
            ],
            capture_output=True,
            text=True,
            timeout=_FORMAT_DEADLINE_S,
            check=False,
            env=surroundings(),
        )
        if done.returncode != 0:
            raise HarnessError(f"Kafka's disk was not formatted: {done.stdout}{done.stderr}"[:500])

    def close(self) -> None:
        for process in self._processes.values():
            if process.is_running:
                process.kill()
                process.wait_ended()
        self._links.close()

    def bootstrap(self, node: int) -> str:
        return f"{HOST}:{self._gates[node]}"

    def inside(self, node: int) -> str:
        return f"{HOST}:{self._ports[node]['PLAINTEXT']}"

    def is_running(self, node: int) -> bool:
        return self._processes[node].is_running

    def is_ready(self, node: int) -> bool:
        """Return whether it answers clients and knows all the others."""
        process = self._processes[node]
        return process.is_running and not process.is_paused and asyncio.run(self._answers(node))

    async def _answers(self, node: int) -> bool:
        try:
            async with asyncio.timeout(_ANSWER_S):
                line = await Connection.open(HOST, self._ports[node]["PLAINTEXT"])
                try:
                    fields: dict[str, Any] = {
                        "topics": [],
                        "allow_auto_topic_creation": False,
                        "include_topic_authorized_operations": False,
                    }
                    return node in {
                        one.node_id for one in (await line.call(METADATA, fields)).brokers
                    }
                finally:
                    line.abort()
        except (TimeoutError, OttlaError):
            return False

    def exit_code(self, node: int) -> int | None:
        return self._processes[node].exit_code

    def active_controller(self) -> int | None:
        """Return None: its brokers do not tell clients who it is."""
        return None

    # -- nodes -----------------------------------------------------------------------------------

    def kill(self, nodes: Sequence[int]) -> None:
        chosen = [self._processes[node] for node in nodes if self.is_running(node)]
        for process in chosen:
            process.kill()
        for process in chosen:
            process.wait_ended()

    def stop(self, nodes: Sequence[int]) -> dict[int, int]:
        chosen = [self._processes[node] for node in nodes if self.is_running(node)]
        for process in chosen:
            process.ask_to_stop()
        # Java says 143 of a process that SIGTERM ended properly.
        return {one.node: 0 if one.wait_ended() in (0, 143) else 1 for one in chosen}

    def begin(self, node: int, environment: Mapping[str, str] | None = None) -> None:
        process = self._processes[node]
        process.begin(environment)
        self._links.watch(node, process.pid)

    def wait_ready(self, nodes: Sequence[int], deadline_s: float) -> None:
        for node in nodes:

            def holds(node: int = node) -> bool:
                return self.is_ready(node)

            try:
                wait_until(holds, deadline_s, f"node {node} is ready")
            except NeverHappenedError as error:
                tail = [line for _, line in self._processes[node].log_lines()[-3:]]
                raise HarnessError(f"{error}; its log ends: {tail}") from error

    def pause(self, node: int) -> None:
        self._processes[node].pause()

    def resume(self, node: int) -> None:
        self._processes[node].resume()

    def set_client_link(self, node: int, to_node: LinkFault, from_node: LinkFault) -> None:
        self._links.set(CLIENTS, node, to_node)
        self._links.set(node, CLIENTS, from_node)

    def data_dir(self, node: int) -> Path:
        return self._settings.directory / f"node-{node}" / "data"

    def wipe(self, node: int) -> None:
        shutil.rmtree(self.data_dir(node))
        self._format(node)

    # -- looking inside --------------------------------------------------------------------------

    def log_lines(self) -> dict[int, list[tuple[int, str]]]:
        return {node: process.log_lines() for node, process in self._processes.items()}

    def resources(self) -> dict[int, Mapping[str, Any]]:
        return {
            node: process.uses() for node, process in self._processes.items() if process.is_running
        }

    # -- what cannot be done to it (see `means`) ---------------------------------------------------

    def cut_power(self, nodes: Sequence[int]) -> None:
        raise _cannot(Means.POWER)

    def start_twin(self, node: int, *, on_same_files: bool) -> int | None:
        raise _cannot(Means.TWIN)

    def set_link(self, source: int, target: int, fault: LinkFault) -> None:
        raise _cannot(Means.LINKS)

    def weather_met(self, source: int, target: int) -> int:
        raise _cannot(Means.WEATHER)

    def unplug(self, node: int) -> None:
        raise _cannot(Means.UNPLUG)

    def plug_in(self, node: int) -> None:
        raise _cannot(Means.UNPLUG)

    def set_faults(self, node: int, clauses: Sequence[str]) -> int:
        raise _cannot(Means.DISK)

    def limit_memory(self, node: int, more_bytes: int | None) -> None:
        raise _cannot(Means.MEMORY)

    def trace_files(self) -> Sequence[Path]:
        raise _cannot(Means.TRACE)

    def replica_prints(self, topics: Mapping[str, int], turn: int) -> list[ReplicaPrint]:
        raise _cannot(Means.DIGEST)

    def verify_offline(self) -> dict[int, list[str]]:
        raise _cannot(Means.OFFLINE)

    def offline_reads(self, places: Sequence[Place]) -> list[FinalRead]:
        raise _cannot(Means.OFFLINE)


def _cannot(means: Means) -> HarnessError:
    return HarnessError(f"the backend kafka has no means for this: {means.value}")


def _draw_ports() -> dict[str, int]:
    return dict(zip(_LISTENERS, reserve_ports(len(_LISTENERS)), strict=True))


def environment_class_path() -> str:
    return class_path_of(os.environ)
