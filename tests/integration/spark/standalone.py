"""A Spark cluster of processes on loopback: a master, and workers that think they are machines.

Speculation needs it: Spark starts no second attempt of a task on the host of the first one, and a
local Spark is one host. All of 127.0.0.0/8 is loopback, so each worker has an address of its own.

Not here: what runs on it (`pipeline_process.py`).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.chaos.backends.reserved import HOST, reserve_ports
from ottla.clients.spark.session import prepare_environment, prepare_home
from tests.integration.nodes import wait_until
from tests.integration.spark.pipeline_process import QUICK_JVM

_CLASSES: Final = "org.apache.spark.deploy"
_START_S: Final = 300.0
_END_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Standalone:
    """A cluster that runs."""

    url: str
    # Processes below which executors and their Pythons are.
    workers: tuple[int, ...]


@contextmanager
def standalone(place: Path, workers: int = 2) -> Iterator[Standalone]:
    """Yield a cluster of workers with one core each, all of which have registered."""
    place.mkdir()
    prepare_environment()
    prepare_home()
    (port,) = reserve_ports(1)
    url = f"spark://{HOST}:{port}"
    started = list[subprocess.Popen[bytes]]()
    log = place / "cluster.log"

    def start(kind: str, name: str, host: str, *words: str) -> int:
        command = [f"{os.environ['SPARK_HOME']}/bin/spark-class", f"{_CLASSES}.{kind}.{name}"]
        command += ["--host", host, "--webui-port", "0", *words]
        own = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM}
        # Spark says at INFO who has registered.
        own["SPARK_CONF_DIR"] = str(place)
        with log.open("ab") as out:
            process = subprocess.Popen(
                command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=os.environ | own
            )
        started.append(process)
        return process.pid

    def all_registered() -> bool:
        for process in started:
            assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        return log.read_text(errors="replace").count("Registering worker") >= workers

    (place / "log4j2.properties").write_text(_LOGGING)
    try:
        start("master", "Master", HOST, "--port", str(port))
        pids = [
            start(
                *("worker", "Worker", f"127.0.0.{2 + number}", "--cores", "1"),
                *("--memory", "1g", "--work-dir", str(place / f"work-{number}"), url),
            )
            for number in range(workers)
        ]
        wait_until(all_registered, _START_S, "the workers have registered")
        yield Standalone(url, tuple(pids))
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


_LOGGING: Final = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
"""
