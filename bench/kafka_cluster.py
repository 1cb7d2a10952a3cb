"""Apache Kafka for a bench: three processes, brokers and controllers, with Kafka's own defaults.

It needs Java 17 and Maven (`tests/interop/kafka.py`), and has the JIT compiler that it is made for.

Not here: what is measured (`transactions.py`).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla.chaos.backends.reserved import HOST, reserve_ports
from tests.interop.kafka import BROKER, STORAGE_TOOL, class_path

NODES: Final = (1, 2, 3)
START_S: Final = 120.0
STOP_S: Final = 45.0
# Any 16 bytes will do.
_CLUSTER_ID: Final = "b3R0bGEtYmVuY2gtMDAwMQ"
_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:-UsePerfData", "-Xshare:auto")


@contextmanager
def kafka_cluster(root: Path) -> Iterator[str]:
    """Yield the addresses of three brokers that know each other; end them after the block."""
    ports = [reserve_ports(2) for _ in NODES]
    voters = ",".join(f"{node}@{HOST}:{mine[1]}" for node, mine in zip(NODES, ports, strict=True))
    addresses = ",".join(f"{HOST}:{mine[0]}" for mine in ports)
    processes = list[subprocess.Popen[bytes]]()
    try:
        for node, mine in zip(NODES, ports, strict=True):
            processes.append(_start(root / f"node-{node}", node, mine, voters))
        _until_ready(addresses, processes)
        yield addresses
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(directory: Path, node: int, ports: list[int], voters: str) -> subprocess.Popen[bytes]:
    directory.mkdir(parents=True)
    listeners = f"PLAINTEXT://{HOST}:{ports[0]},CONTROLLER://{HOST}:{ports[1]}"
    settings = {
        "node.id": node,
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": listeners,
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports[0]}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        "auto.create.topics.enable": "false",
    }
    path = directory / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    java = ["java", *_JVM, "-cp", class_path()]
    subprocess.run(
        [*java, STORAGE_TOOL, "format", "-t", _CLUSTER_ID, "-c", str(path)],
        check=True,
        capture_output=True,
    )
    with (directory / "console.log").open("wb") as console:
        return subprocess.Popen([*java, BROKER, str(path)], stdout=console, stderr=console)


def _until_ready(addresses: str, processes: list[subprocess.Popen[bytes]]) -> None:
    admin = AdminClient({"bootstrap.servers": addresses, "log_level": 0})
    end_s = time.monotonic() + START_S
    while time.monotonic() < end_s:
        if any(one.poll() is not None for one in processes):
            break
        # Not there yet.
        with suppress(KafkaException):
            if len(admin.list_topics(timeout=2).brokers) == len(NODES):
                return
    raise SystemExit("Apache Kafka does not start; see console.log")
