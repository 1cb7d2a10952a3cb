"""One Kafka broker (KRaft, both roles) on loopback, for as long as a `with` block lasts.

Not here: what is asked of it (`wire.py`, `written_by_kafka.py`).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.chaos.backends.reserved import reserve_ports
from tests.interop.kafka import BROKER, STORAGE_TOOL, KafkaToolError, java_command, run_tool
from tests.interop.wire import Connection

START_DEADLINE_S: Final = 90.0
STOP_DEADLINE_S: Final = 45.0
POLL_S: Final = 0.05
# Any 16 bytes in base64 will do; a fixed one keeps runs alike.
CLUSTER_ID: Final = "b3R0bGEtaW50ZXJvcC0wMQ"
# Small: this broker holds a few megabytes, and shares two cores with the tests.
SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "2",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # Records carry times that the tests chose: nothing may be old enough to be deleted.
    "log.retention.ms": "-1",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker: where it listens and where it writes."""

    port: int
    log_dir: Path
    pid: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def start_broker(
    folder: Path,
    settings: Mapping[str, str] | None = None,
    features: Mapping[str, int] | None = None,
    *,
    port: int | None = None,
) -> Iterator[Broker]:
    """Yield a broker that answers, and stop it cleanly at the end of the block.

    A folder that a broker has used before is taken over with what is in it. Features that are not
    named are at Kafka's own levels. Settings with listeners of their own come with the `port`.
    """
    own_port, controller_port = reserve_ports(2)
    port = own_port if port is None else port
    log_dir = folder / "data"
    properties = folder / "server.properties"
    listeners = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}"
    chosen = {
        **SETTINGS,
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "log.dirs": str(log_dir),
        **(settings or {}),
    }
    properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
    levels = [
        word
        for name, level in (features or {}).items()
        for word in ("--feature", f"{name}={level}")
    ]
    formatted = run_tool(
        STORAGE_TOOL,
        "format",
        *("-t", CLUSTER_ID, "-c", str(properties), "--ignore-formatted"),
        *levels,
    )
    if formatted.returncode != 0:
        raise KafkaToolError(f"StorageTool failed:\n{formatted.stdout}{formatted.stderr}")

    command = [*java_command(BROKER, heap="512m", temporary=folder), str(properties)]
    console = folder / "console.log"
    with console.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        wait_until(lambda: _answers(process, port, console), START_DEADLINE_S, "Kafka answers")
        yield Broker(port, log_dir, process.pid)
    finally:
        _stop(process)


def wait_until(condition: Callable[[], bool], deadline_s: float, what: str) -> None:
    """Return when the condition holds; fail loudly if it does not in time."""
    end = time.monotonic() + deadline_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {deadline_s:.0f} s for this to hold: {what}")
        time.sleep(POLL_S)


def _answers(process: subprocess.Popen[bytes], port: int, console: Path) -> bool:
    if process.poll() is not None:
        raise KafkaToolError(f"Kafka ended with {process.returncode}:\n{console.read_text()}")
    with suppress(OSError), Connection(port, deadline_s=5.0) as connection:
        return connection.broker_count() == 1
    return False


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_DEADLINE_S)
        raise
