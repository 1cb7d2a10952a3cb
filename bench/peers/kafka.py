"""Apache Kafka as a peer: three nodes, each broker and controller (KRaft), from Maven's jars.

Settings are those that its own start script and documentation give: the heap and collector of
`kafka-server-start.sh`, all options at their defaults but for three copies with two in sync. Only
warnings are logged, and removed topics leave the disk soon, as with the other peers.

Not here: how the jars are found (`tests/interop/kafka.py`).
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.node_servers import TOP
from bench.peers.peer import HOST, NODES, MissingError, PeerError
from bench.peers.programs import ProgramPeer
from bench.peers.topics import brokers_known
from ottla.chaos.backends.reserved import reserve_ports

_SERVER: Final = "kafka.Kafka"
_STORAGE_TOOL: Final = "kafka.tools.StorageTool"
# Any 16 bytes will do.
_CLUSTER_ID: Final = "b3R0bGEtYmVuY2gtMDAwMQ"
_JAR: Final = re.compile(r"kafka_2\.13-([0-9.]+)\.jar")
_FORMAT_S_MAX: Final = 90.0
_MAVEN_S_MAX: Final = 900.0
_LISTENERS: Final = ("PLAINTEXT", "CONTROLLER")
_JVM: Final = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
# Of a program that runs for a second.
_TOOL_JVM: Final = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_OPTIONS: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.create.topics.enable": "false",
    "log.segment.delete.delay.ms": "1000",
}


# Node → the files of a formatted disk.
_formatted: Final = dict[int, dict[str, bytes]]()


def _files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@functools.cache
def class_path() -> str:
    """Return Kafka's class path; raises `MissingError` if it cannot be had."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.kafka", "class-path"],
        cwd=TOP,
        capture_output=True,
        text=True,
        timeout=_MAVEN_S_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise MissingError(f"Apache Kafka is not measured: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


class KafkaPeer(ProgramPeer):
    """Three Java processes."""

    name = "kafka"

    @functools.cached_property
    def _ports(self) -> dict[int, dict[str, int]]:
        count = len(_LISTENERS)
        drawn = reserve_ports(count * len(NODES))
        return {
            node: dict(zip(_LISTENERS, drawn[at * count : (at + 1) * count], strict=True))
            for at, node in enumerate(NODES)
        }

    @property
    def version(self) -> str:
        found = _JAR.search(class_path())
        return f"Apache Kafka {found[1] if found else 'of an unknown version'}"

    @property
    def settings(self) -> Mapping[str, str]:
        return {
            **_OPTIONS,
            "JVM": " ".join(_JVM),
            "topics": "3 copies, min.insync.replicas=2; flush.messages not set (the default) or 1",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self._ports[node]['PLAINTEXT']}" for node in NODES)

    def _java(self, program: str, options: Sequence[str]) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={TOP / 'tests' / 'interop' / 'log4j2.xml'}"
        return ["java", *options, log4j, "-cp", class_path(), program]

    def command_of(self, node: int) -> list[str]:
        return [*self._java(_SERVER, _JVM), str(self.node_dir(node) / "server.properties")]

    def _options_of(self, node: int) -> dict[str, str]:
        ports = self._ports[node]
        voters = (f"{one}@{HOST}:{self._ports[one]['CONTROLLER']}" for one in NODES)
        return {
            "node.id": str(node),
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(f"{name}://{HOST}:{ports[name]}" for name in _LISTENERS),
            "advertised.listeners": f"PLAINTEXT://{HOST}:{ports['PLAINTEXT']}",
            "log.dirs": str(self.data_dir(node)),
            **_OPTIONS,
        }

    def prepare(self) -> None:
        """Format the disks, which Kafka wants done before its first start.

        What its tool writes names no address and no directory: it runs for the first cluster, and
        those after it get the same files.
        """
        for node in NODES:
            self.data_dir(node).mkdir(parents=True, exist_ok=True)
            text = "".join(f"{k}={v}\n" for k, v in self._options_of(node).items())
            (self.node_dir(node) / "server.properties").write_text(text)
        if not _formatted:
            with ThreadPoolExecutor(len(NODES)) as pool:
                list(pool.map(self._format, NODES))
            _formatted.update({node: _files(self.data_dir(node)) for node in NODES})
            return
        for node, files in _formatted.items():
            for name, content in files.items():
                path = self.data_dir(node) / name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)

    def _format(self, node: int) -> None:
        path = self.node_dir(node) / "server.properties"
        what = ("format", "-t", _CLUSTER_ID, "-c", str(path), "--ignore-formatted")
        try:
            done = subprocess.run(
                [*self._java(_STORAGE_TOOL, _TOOL_JVM), *what],
                capture_output=True,
                text=True,
                timeout=_FORMAT_S_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"not formatted in {_FORMAT_S_MAX:.0f} s") from None
        if done.returncode != 0:
            raise PeerError(f"not formatted: {done.stdout}{done.stderr}"[:500])

    def is_ready(self) -> bool:
        self.require_alive()
        return brokers_known(self.bootstrap) == len(NODES)
